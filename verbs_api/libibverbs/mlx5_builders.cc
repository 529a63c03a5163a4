#include "verbs_api/libibverbs/mlx5_builders.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "rxe_user/memory/guarded_copy.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/raw_wqe.h"
#include "verbs_api/libibverbs/work_builder.h"
#include "wire/headers.h"

namespace verbs_api {
namespace {

using Layout = transport::MkeyConfiguration::Layout;
using Transform = transport::MkeyConfiguration::Transform;
using transport::SendOpcode;
using transport::SendRequest;

// A card stores the size of a piece and the distance to the next one in 16 bits
// each.
constexpr uint32_t kMaxPiece = 65535;
// A list's entries fit in `max_inline_data` bytes as on a card, whose work
// request has 4 bytes more.
constexpr size_t kHeader = 4;

// Returns the last request to a setter. The request must configure a memory key
// that still lacks setters. `has`: whether a setter of this kind was called
// before. Otherwise fails the batch and returns null.
SendRequest* ForSetter(WorkBuilder& builder, bool MkeySetters::*has) {
  if (builder.active && !builder.requests.empty() &&
      builder.requests.back().opcode == SendOpcode::kConfigureMkey) {
    MkeySetters& setters = builder.data.back().mkey;
    if (setters.left != 0 && !(setters.*has)) {
      setters.*has = true;
      return &builder.requests.back();
    }
  }
  Wrong(builder, EINVAL);
  return nullptr;
}

// Bytes of inline data that are available for layout and signatures.
size_t Space(ibv_qp_ex* qp) {
  return Self(qp)->pair->capacity().max_inline_data + kHeader;
}

// Appends the signatures to the layout. False: they do not fit.
bool AppendSignature(ibv_qp_ex* qp, WorkBuilder& builder) {
  uint32_t& length = builder.sges.back().length;
  static_assert(rxe_user::kPackedSignatureConfig ==
                transport::kMkeyTransformSize);
  if (length + transport::kMkeyTransformSize > Space(qp)) return false;
  const size_t at = builder.inline_bytes.size();
  builder.inline_bytes.resize(at + transport::kMkeyTransformSize);
  rxe_user::Pack(builder.data.back().mkey.signature,
                 std::span(builder.inline_bytes)
                     .subspan(at)
                     .first<transport::kMkeyTransformSize>());
  length += transport::kMkeyTransformSize;
  return true;
}

// Called when a setter has succeeded.
void Finish(ibv_qp_ex* qp, WorkBuilder& builder) {
  MkeySetters& setters = builder.data.back().mkey;
  if (--setters.left != 0) return;
  if (setters.has_signature && !AppendSignature(qp, builder)) {
    return Wrong(builder, ENOMEM);
  }
  if (!builder.is_unfinished) return;
  builder.error = 0;
  builder.is_unfinished = false;
}

void SetOperand(SendRequest* request, Layout layout,
                std::optional<uint32_t> access, Transform change) {
  request->swap = transport::MkeyOperand(layout, access, change);
}

// Sets the layout of `count` entries, where `make(i)` returns entry i. `taken`
// entries of space are not available.
template <typename Make>
void SetLayout(ibv_qp_ex* qp, WorkBuilder& builder, SendRequest* request,
               Layout layout, size_t count, size_t taken, Make&& make) {
  const size_t space = Space(qp) / transport::kMkeyEntrySize - taken;
  if (count == 0) return Wrong(builder, EINVAL);
  if (count > std::min<size_t>({space, transport::kMaxMkeyEntries,
                                builder.data.back().mkey.max_entries})) {
    return Wrong(builder, ENOMEM);
  }
  for (size_t i = 0; i < count; ++i) {
    const auto entry = make(i);
    static_assert(sizeof(entry) == transport::kMkeyEntrySize);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&entry);
    builder.inline_bytes.insert(builder.inline_bytes.end(), bytes,
                                bytes + sizeof(entry));
  }
  builder.sges.back().length =
      static_cast<uint32_t>(count * transport::kMkeyEntrySize);
  SetOperand(request, layout, transport::MkeyAccessOf(request->swap),
             transport::MkeyTransformOf(request->swap));
  Finish(qp, builder);
}

}  // namespace

void Mlx5Builders::SetDcAddress(ibv_qp_ex* qp, ibv_ah* ibv, uint32_t dctn,
                                uint64_t key, uint16_t stream) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    if (!builder.active || builder.data.empty() ||
        builder.data.back().is_addressed ||
        TargetOf(*Self(qp)) != transport::SendTarget::kDct) {
      return Wrong(builder, EINVAL);
    }
    const Ah* const ah = FindAddress(*Self(qp), ibv);
    if (ah == nullptr) return Wrong(builder, EINVAL);
    builder.data.back().is_addressed = true;
    builder.data.back().av = ah->av;
    builder.requests.back().remote_qpn = dctn & wire::kQpnMask;
    builder.requests.back().dc_access_key = key;
    builder.requests.back().dc_stream = stream;
  });
}

void Mlx5Builders::Memcpy(ibv_qp_ex* qp,
                          const MemcpyOperands& operands) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    if (!builder.active || operands.length == 0 ||
        operands.length > transport::kMaxMemcpy) {
      return Wrong(builder, EINVAL);
    }
    SendRequest* const request = Add(qp, builder, SendOpcode::kMemcpy);
    request->rkey = operands.to_lkey;
    request->remote_addr = operands.to;
    request->invalidate_rkey = operands.from_lkey;
    request->compare_add = operands.from;
    request->swap = operands.length;
    builder.data.back().is_set = true;
  });
}

namespace {

// Copies a WQE, which the program may change meanwhile. 0; EINVAL; EFAULT.
int ReadWqe(const void* wqe, std::array<uint8_t, kMaxWqeSize>* bytes,
            size_t* size) {
  if (wqe == nullptr) return EINVAL;
  if (!rxe_user::GuardedCopyFrom(bytes->data(), wqe, kWqeUnit)) return EFAULT;
  *size = WqeSize(std::span(*bytes).first<kWqeUnit>());
  if (*size == 0) return EINVAL;
  return rxe_user::GuardedCopyFrom(bytes->data() + kWqeUnit,
                                   static_cast<const uint8_t*>(wqe) + kWqeUnit,
                                   *size - kWqeUnit)
             ? 0
             : EFAULT;
}

// The address of a DC request. 0 or errno.
int ToAddress(ExtendedQp* qp, const RawWqe::Target& target,
              transport::AddressVector* av) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  std::memcpy(attr.grh.dgid.raw, target.gid.data(), target.gid.size());
  attr.grh.sgid_index = target.gid_index;
  attr.grh.flow_label = target.flow_label;
  attr.grh.traffic_class = target.traffic_class;
  attr.grh.hop_limit = target.hop_limit;
  attr.sl = target.service_level;
  Context* const context = qp->owner;
  if (const int error = ToAddressVector(*context, attr, av)) return error;
  qp->raw_sources.try_emplace(av->source, context->device->engine(),
                              av->source);
  return context->device->ResolveAddress(av);
}

}  // namespace

void Mlx5Builders::PostRawWqe(ibv_qp_ex* qp, const void* wqe) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    if (!builder.active) return Wrong(builder, EINVAL);
    std::array<uint8_t, kMaxWqeSize> bytes;
    size_t size = 0;
    const bool dc = TargetOf(*Self(qp)) == transport::SendTarget::kDct;
    RawWqe raw;
    int error = ReadWqe(wqe, &bytes, &size);
    if (error == 0) error = DecodeWqe(std::span(bytes).first(size), dc, &raw);
    if (error == 0 && raw.qpn != Self(qp)->pair->qpn()) error = EINVAL;
    transport::AddressVector av;
    if (error == 0 && raw.has_target) {
      error = ToAddress(Self(qp), raw.target, &av);
    }
    if (error != 0) return Wrong(builder, error);
    SendRequest* const request =
        Add(qp, builder, transport::AsRawWqe(raw.opcode));
    // The flags of the queue pair do not apply to raw requests.
    request->flags = raw.flags & ~uint32_t{transport::kSendInline};
    request->imm_be = raw.imm_be;
    request->invalidate_rkey = raw.invalidate_rkey;
    request->remote_addr = raw.remote_addr;
    request->rkey = raw.rkey;
    request->compare_add = raw.compare_add;
    request->swap = raw.swap;
    WorkBuilder::Data& data = builder.data.back();
    data.is_set = true;
    if (raw.has_target) {
      data.is_addressed = true;
      data.av = av;
      request->remote_qpn = raw.target.dct;
      request->dc_access_key = raw.target.access_key;
      request->dc_stream = raw.target.stream;
    }
    if ((raw.flags & transport::kSendInline) != 0) {
      BeginInlineData(builder, &data);
      builder.inline_bytes.insert(
          builder.inline_bytes.end(), raw.inline_bytes.begin(),
          raw.inline_bytes.begin() +
              static_cast<std::ptrdiff_t>(raw.inline_size));
      EndInlineData(builder, raw.inline_size);
    } else {
      data.first_sge = builder.sges.size();
      builder.sges.insert(
          builder.sges.end(), raw.sges.begin(),
          raw.sges.begin() + static_cast<std::ptrdiff_t>(raw.num_sge));
      data.num_sge = raw.num_sge;
    }
  });
}

void Mlx5Builders::ConfigureMkey(ibv_qp_ex* qp, MkeyNumbers* numbers,
                                 uint8_t setters, bool resets) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    // The second case: the previous configuration lacks setters, which can no
    // longer follow.
    if (!builder.active || (builder.error != 0 && builder.is_unfinished)) {
      return Wrong(builder, EINVAL);
    }
    // The layout must be in the work request.
    if ((qp->wr_flags & IBV_SEND_INLINE) == 0) {
      return Wrong(builder, EOPNOTSUPP);
    }
    const Mkey* const mkey = Find(numbers);
    if (mkey == nullptr || mkey->owner != Self(qp)->owner ||
        mkey->key->domain().id != Self(qp)->pair->pd()->id) {
      return Wrong(builder, EINVAL);
    }
    SendRequest* const request = Add(qp, builder, SendOpcode::kConfigureMkey);
    request->rkey = ReadOnce(mkey->lkey);
    request->compare_add = 1;
    SetOperand(request, Layout::kKeep, std::nullopt,
               resets ? Transform::kNone : Transform::kKeep);
    WorkBuilder::Data& data = builder.data.back();
    data.mkey = {.left = setters,
                 .may_have_signature = mkey->key->signatures(),
                 .max_entries = mkey->key->max_entries()};
    BeginInlineData(builder, &data);
    EndInlineData(builder, 0);
    if (setters == 0 || builder.error != 0) return;
    builder.error = EINVAL;  // until all setters have been called
    builder.is_unfinished = true;
  });
}

void Mlx5Builders::SetMkeyAccess(ibv_qp_ex* qp, uint32_t access) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    SendRequest* const request = ForSetter(builder, &MkeySetters::has_access);
    if (request == nullptr) return;
    if ((access & ~transport::kMkeyRights) != 0) return Wrong(builder, EINVAL);
    SetOperand(request, transport::MkeyLayoutOf(request->swap), access,
               transport::MkeyTransformOf(request->swap));
    Finish(qp, builder);
  });
}

void Mlx5Builders::SetMkeySignature(
    ibv_qp_ex* qp, const rxe_user::SignatureConfig& config) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    SendRequest* const request =
        ForSetter(builder, &MkeySetters::has_signature);
    if (request == nullptr) return;
    MkeySetters& setters = builder.data.back().mkey;
    if (!setters.may_have_signature || !rxe_user::IsValid(config)) {
      return Wrong(builder, EINVAL);
    }
    setters.signature = config;
    SetOperand(request, transport::MkeyLayoutOf(request->swap),
               transport::MkeyAccessOf(request->swap), Transform::kSet);
    Finish(qp, builder);
  });
}

void Mlx5Builders::SetMkeyList(ibv_qp_ex* qp, size_t count,
                               const ibv_sge* list) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    SendRequest* const request = ForSetter(builder, &MkeySetters::has_layout);
    if (request == nullptr) return;
    if (list == nullptr) return Wrong(builder, EINVAL);
    SetLayout(qp, builder, request, Layout::kList, count, 0, [&](size_t i) {
      return transport::Sge{list[i].addr, list[i].length, list[i].lkey};
    });
  });
}

void Mlx5Builders::SetMkeyInterleaved(ibv_qp_ex* qp, uint32_t repeat_count,
                                      size_t count,
                                      const MkeyPiece* pieces) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    SendRequest* const request = ForSetter(builder, &MkeySetters::has_layout);
    if (request == nullptr) return;
    if (pieces == nullptr || repeat_count == 0) return Wrong(builder, EINVAL);
    for (size_t i = 0; i < count; ++i) {
      if (pieces[i].bytes_count > kMaxPiece ||
          pieces[i].bytes_skip > kMaxPiece - pieces[i].bytes_count) {
        return Wrong(builder, EINVAL);
      }
    }
    request->compare_add = repeat_count;
    // On a card, one entry holds the repeat count of the others.
    SetLayout(qp, builder, request, Layout::kInterleaved, count, 1,
              [&](size_t i) {
                return transport::InterleavedPiece{
                    .addr = pieces[i].addr,
                    .bytes = static_cast<uint16_t>(pieces[i].bytes_count),
                    .skip = static_cast<uint16_t>(pieces[i].bytes_skip),
                    .lkey = pieces[i].lkey};
              });
  });
}

}  // namespace verbs_api
