#include "verbs_api/libibverbs/raw_wqe.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "transport/qp/send_operation.h"

namespace verbs_api {
namespace {

using transport::SendKind;
using transport::SendOpcode;

static_assert(sizeof(mlx5_wqe_ctrl_seg) == kWqeUnit &&
              sizeof(mlx5_wqe_raddr_seg) == kWqeUnit &&
              sizeof(mlx5_wqe_atomic_seg) == kWqeUnit &&
              sizeof(mlx5_wqe_data_seg) == kWqeUnit &&
              sizeof(mlx5_wqe_av) == 3 * kWqeUnit);

// A data pointer with length 0 means this many bytes.
constexpr uint32_t kLengthOfZero = 1u << 31;
// Bit of mlx5_wqe_av::grh_gid_fl: there is a global route (GRH).
constexpr uint32_t kHasRoute = 1u << 30;
// Bits of mlx5_wqe_ctrl_seg::fm_ce_se. Of the fence's values, only 0 (none) and
// 1 (local invalidates) need no wait here.
constexpr uint8_t kAlwaysComplete = MLX5_WQE_CTRL_CQ_UPDATE;
constexpr int kFenceShift = 5;
constexpr int kFirstFence = 2;

// The bytes of a WQE that are not decoded yet.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  // False, and takes nothing, if there are fewer bytes than that.
  template <typename Segment>
  bool Take(Segment* segment) {
    if (bytes_.size() < sizeof(*segment)) return false;
    std::memcpy(segment, bytes_.data(), sizeof(*segment));
    bytes_ = bytes_.subspan(sizeof(*segment));
    return true;
  }
  // The length word of the next data segment, which must exist.
  uint32_t PeekWord() const {
    uint32_t word;
    std::memcpy(&word, bytes_.data(), sizeof(word));
    return be32toh(word);
  }
  // Takes an inline segment and its padding, and returns the segment's bytes.
  // False if it ends outside of the WQE.
  bool TakeInline(size_t size, std::span<const uint8_t>* data) {
    constexpr size_t kHeader = sizeof(mlx5_wqe_inl_data_seg);
    if (size > bytes_.size() - kHeader) return false;
    *data = bytes_.subspan(kHeader, size);
    const size_t whole = (kHeader + size + kWqeUnit - 1) / kWqeUnit * kWqeUnit;
    bytes_ = bytes_.subspan(std::min(whole, bytes_.size()));
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct Opcode {
  uint8_t mlx5;
  SendOpcode opcode;
};
// The opcodes that are supported.
constexpr Opcode kOpcodes[] = {
    {MLX5_OPCODE_NOP, SendOpcode::kNop},
    {MLX5_OPCODE_SEND, SendOpcode::kSend},
    {MLX5_OPCODE_SEND_IMM, SendOpcode::kSendWithImm},
    {MLX5_OPCODE_SEND_INVAL, SendOpcode::kSendWithInvalidate},
    {MLX5_OPCODE_RDMA_WRITE, SendOpcode::kRdmaWrite},
    {MLX5_OPCODE_RDMA_WRITE_IMM, SendOpcode::kRdmaWriteWithImm},
    {MLX5_OPCODE_RDMA_READ, SendOpcode::kRdmaRead},
    {MLX5_OPCODE_ATOMIC_CS, SendOpcode::kCompareSwap},
    {MLX5_OPCODE_ATOMIC_FA, SendOpcode::kFetchAdd},
    {MLX5_OPCODE_LOCAL_INVAL, SendOpcode::kLocalInvalidate},
};

uint32_t FlagsOf(uint8_t fm_ce_se) {
  uint32_t flags = 0;
  if ((fm_ce_se & kAlwaysComplete) != 0) flags |= transport::kSendSignaled;
  if ((fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0) {
    flags |= transport::kSendSolicited;
  }
  if (fm_ce_se >> kFenceShift >= kFirstFence) flags |= transport::kSendFence;
  return flags;
}

bool TakeTarget(Reader* reader, uint16_t stream, RawWqe* out) {
  mlx5_wqe_av av;
  if (!reader->Take(&av)) return false;
  const uint32_t dct = be32toh(av.dqp_dct);
  const uint32_t route = be32toh(av.grh_gid_fl);
  if ((dct & MLX5_EXTENDED_UD_AV) == 0 || (route & kHasRoute) == 0) {
    return false;
  }
  out->has_target = true;
  RawWqe::Target& target = out->target;
  std::memcpy(target.gid.data(), av.rgid, sizeof(av.rgid));
  target.gid_index = static_cast<uint8_t>(route >> 20);
  target.flow_label = route & 0xfffff;
  target.traffic_class = av.tclass;
  target.hop_limit = av.hop_limit;
  target.service_level = av.stat_rate_sl & 0xf;
  target.dct = dct & wire::kQpnMask;
  target.access_key = be64toh(av.key.dc_key);
  target.stream = stream;
  return true;
}

bool TakeRemote(Reader* reader, RawWqe* out) {
  mlx5_wqe_raddr_seg remote;
  if (!reader->Take(&remote)) return false;
  out->remote_addr = be64toh(remote.raddr);
  out->rkey = be32toh(remote.rkey);
  return true;
}

bool TakeOperands(Reader* reader, RawWqe* out) {
  mlx5_wqe_atomic_seg operands;
  if (!reader->Take(&operands)) return false;
  const uint64_t first = be64toh(operands.swap_add);
  if (out->opcode == SendOpcode::kCompareSwap) {
    out->swap = first;
    out->compare_add = be64toh(operands.compare);
  } else {
    out->compare_add = first;
  }
  return true;
}

int TakeData(Reader* reader, RawWqe* out) {
  bool has_inline = false;
  while (!reader->empty()) {
    const uint32_t length = reader->PeekWord();
    if ((length & MLX5_INLINE_SEG) != 0) {
      std::span<const uint8_t> data;
      if (!reader->TakeInline(length & ~uint32_t{MLX5_INLINE_SEG}, &data)) {
        return EINVAL;
      }
      std::copy(data.begin(), data.end(),
                out->inline_bytes.begin() +
                    static_cast<std::ptrdiff_t>(out->inline_size));
      out->inline_size += data.size();
      has_inline = true;
    } else {
      mlx5_wqe_data_seg pointer;
      if (!reader->Take(&pointer)) return EINVAL;
      out->sges[out->num_sge++] = {
          .addr = be64toh(pointer.addr),
          .length = length == 0 ? kLengthOfZero : length,
          .lkey = be32toh(pointer.lkey)};
    }
    if (has_inline && out->num_sge != 0) return EOPNOTSUPP;
  }
  if (has_inline) out->flags |= transport::kSendInline;
  return 0;
}

}  // namespace

size_t WqeSize(std::span<const uint8_t, kWqeUnit> control) {
  mlx5_wqe_ctrl_seg segment;
  std::memcpy(&segment, control.data(), sizeof(segment));
  // The size is in the lower 6 bits; the other two are reserved.
  const size_t units = be32toh(segment.qpn_ds) & 0xff;
  return units * kWqeUnit <= kMaxWqeSize ? units * kWqeUnit : 0;
}

int DecodeWqe(std::span<const uint8_t> wqe, bool dc, RawWqe* out) {
  if (wqe.size() < kWqeUnit || WqeSize(wqe.first<kWqeUnit>()) != wqe.size()) {
    return EINVAL;
  }
  Reader reader(wqe);
  mlx5_wqe_ctrl_seg control;
  reader.Take(&control);
  const uint32_t opcode = be32toh(control.opmod_idx_opcode);
  // The upper 8 bits modify the opcode. The index in the middle is ignored.
  const auto* const known =
      std::ranges::find(kOpcodes, static_cast<uint8_t>(opcode), &Opcode::mlx5);
  if (opcode >> 24 != 0 || known == std::end(kOpcodes)) return EOPNOTSUPP;
  out->opcode = known->opcode;
  out->flags = FlagsOf(control.fm_ce_se);
  out->qpn = be32toh(control.qpn_ds) >> 8;
  out->imm_be = control.imm;
  out->invalidate_rkey = be32toh(control.imm);
  if (out->opcode == SendOpcode::kNop) return 0;  // the rest is padding
  const SendKind kind = transport::GetSendOperation(out->opcode).kind;
  if (kind == SendKind::kLocal) return reader.empty() ? 0 : EINVAL;
  if (dc && !TakeTarget(&reader, be16toh(control.dci_stream_channel_id), out)) {
    return EINVAL;
  }
  const bool is_send = transport::GetSendOperation(out->opcode).wc_opcode ==
                       transport::WcOpcode::kSend;
  if (!is_send && !TakeRemote(&reader, out)) return EINVAL;
  if (kind == SendKind::kAtomic && !TakeOperands(&reader, out)) return EINVAL;
  return TakeData(&reader, out);
}

}  // namespace verbs_api
