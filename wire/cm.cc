#include "wire/cm.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>
#include <type_traits>

namespace wire {
namespace {

// Fields() describes each message's layout once; a Reader or a Writer runs it.
// Offsets count from the end of the MAD header. `Bits` count from the most
// significant one, as in the specification.
class Reader {
 public:
  explicit Reader(const uint8_t* p) : p_(p) {}

  template <typename T>
  void U8(int at, T& v) {
    v = static_cast<T>(p_[at]);
  }
  template <typename T>
  void U16(int at, T& v) {
    v = static_cast<T>(LoadBe16(p_ + at));
  }
  void U24(int at, uint32_t& v) { v = LoadBe24(p_ + at); }
  void U32(int at, uint32_t& v) { v = LoadBe32(p_ + at); }
  void U64(int at, uint64_t& v) { v = LoadBe64(p_ + at); }
  template <typename T>
  void Bits(int at, int first, int count, T& v) {
    v = static_cast<T>(p_[at] >> (8 - first - count) & ((1 << count) - 1));
  }
  // The upper 20 bits of three bytes.
  void U20(int at, uint32_t& v) { v = LoadBe24(p_ + at) >> 4; }
  // Three bytes that are not adjacent.
  void Scattered(int high, int middle, int low, uint32_t& v) {
    v = uint32_t{p_[high]} << 16 | uint32_t{p_[middle]} << 8 | p_[low];
  }
  void Gid(int at, IpAddress& v) { v = IpAddress::FromGid(p_ + at); }
  template <size_t kSize>
  void Data(int at, std::array<uint8_t, kSize>& v) {
    std::memcpy(v.data(), p_ + at, kSize);
  }
  // Length of additional information: `count` bits from bit 0.
  void InfoLength(int at, int count, uint8_t& v) {
    Bits(at, 0, count, v);
    v = std::min<uint8_t>(v, kCmAdditionalInfoSize);
  }

 private:
  const uint8_t* const p_;
};

// Writes into zeroed bytes.
class Writer {
 public:
  explicit Writer(uint8_t* p) : p_(p) {}

  template <typename T>
  void U8(int at, const T& v) {
    p_[at] = static_cast<uint8_t>(v);
  }
  template <typename T>
  void U16(int at, const T& v) {
    StoreBe16(p_ + at, static_cast<uint16_t>(v));
  }
  void U24(int at, uint32_t v) { StoreBe24(p_ + at, v); }
  void U32(int at, uint32_t v) { StoreBe32(p_ + at, v); }
  void U64(int at, uint64_t v) { StoreBe64(p_ + at, v); }
  template <typename T>
  void Bits(int at, int first, int count, const T& v) {
    const unsigned mask = (1u << count) - 1;
    p_[at] |= static_cast<uint8_t>((static_cast<unsigned>(v) & mask)
                                   << (8 - first - count));
  }
  void U20(int at, uint32_t v) { StoreBe24(p_ + at, v << 4); }
  void Scattered(int high, int middle, int low, uint32_t v) {
    p_[high] = static_cast<uint8_t>(v >> 16);
    p_[middle] = static_cast<uint8_t>(v >> 8);
    p_[low] = static_cast<uint8_t>(v);
  }
  void Gid(int at, const IpAddress& v) {
    std::memcpy(p_ + at, v.bytes.data(), v.bytes.size());
  }
  template <size_t kSize>
  void Data(int at, const std::array<uint8_t, kSize>& v) {
    std::memcpy(p_ + at, v.data(), kSize);
  }
  void InfoLength(int at, int count, uint8_t v) {
    Bits(at, 0, count, std::min<uint8_t>(v, kCmAdditionalInfoSize));
  }

 private:
  uint8_t* const p_;
};

// `M` is message type `Message`, or const of it: a Writer's.
template <typename M, typename Message>
concept Of = std::same_as<std::remove_const_t<M>, Message>;

void Ids(auto& c, auto& m) {
  c.U32(0, m.local_comm_id);
  c.U32(4, m.remote_comm_id);
}

void PathFields(auto& c, int at, auto& path) {
  c.U16(at, path.local_lid);
  c.U16(at + 2, path.remote_lid);
  c.Gid(at + 4, path.local_gid);
  c.Gid(at + 20, path.remote_gid);
  c.U20(at + 36, path.flow_label);
  c.Bits(at + 39, 2, 6, path.packet_rate);
  c.U8(at + 40, path.traffic_class);
  c.U8(at + 41, path.hop_limit);
  c.Bits(at + 42, 0, 4, path.sl);
  c.Bits(at + 42, 4, 1, path.subnet_local);
  c.Bits(at + 43, 0, 5, path.local_ack_timeout);
}

void Fields(auto& c, Of<CmReq> auto& m) {
  c.U32(0, m.local_comm_id);
  c.U24(5, m.vendor_id);
  c.U64(8, m.service_id);
  c.U64(16, m.local_ca_guid);
  c.U32(28, m.local_qkey);
  c.U24(32, m.local_qpn);
  c.U8(35, m.responder_resources);
  c.U24(36, m.local_eecn);
  c.U8(39, m.initiator_depth);
  c.U24(40, m.remote_eecn);
  c.Bits(43, 0, 5, m.remote_cm_response_timeout);
  c.Bits(43, 5, 2, m.service);
  c.Bits(43, 7, 1, m.end_to_end_flow_control);
  c.U24(44, m.starting_psn);
  c.Bits(47, 0, 5, m.local_cm_response_timeout);
  c.Bits(47, 5, 3, m.retry_count);
  c.U16(48, m.pkey);
  c.Bits(50, 0, 4, m.path_mtu);
  c.Bits(50, 4, 1, m.rdc_exists);
  c.Bits(50, 5, 3, m.rnr_retry_count);
  c.Bits(51, 0, 4, m.max_cm_retries);
  c.Bits(51, 4, 1, m.srq);
  c.Bits(51, 5, 3, m.extended_transport);
  PathFields(c, 52, m.primary);
  PathFields(c, 96, m.alternate);
  c.Data(140, m.private_data);
}

void Fields(auto& c, Of<CmMra> auto& m) {
  Ids(c, m);
  c.Bits(8, 0, 2, m.answered);
  c.Bits(9, 0, 5, m.service_timeout);
  c.Data(10, m.private_data);
}

void Fields(auto& c, Of<CmRej> auto& m) {
  Ids(c, m);
  c.Bits(8, 0, 2, m.answered);
  c.InfoLength(9, 7, m.info_length);
  c.U16(10, m.reason);
  c.Data(12, m.additional_info);
  c.Data(84, m.private_data);
}

void Fields(auto& c, Of<CmRep> auto& m) {
  Ids(c, m);
  c.U32(8, m.local_qkey);
  c.U24(12, m.local_qpn);
  c.U24(16, m.local_eecn);
  c.U24(20, m.starting_psn);
  c.Scattered(15, 19, 23, m.vendor_id);
  c.U8(24, m.responder_resources);
  c.U8(25, m.initiator_depth);
  c.Bits(26, 0, 5, m.target_ack_delay);
  c.Bits(26, 5, 2, m.failover_accepted);
  c.Bits(26, 7, 1, m.end_to_end_flow_control);
  c.Bits(27, 0, 3, m.rnr_retry_count);
  c.Bits(27, 3, 1, m.srq);
  c.U64(28, m.local_ca_guid);
  c.Data(36, m.private_data);
}

template <typename M>
requires Of<M, CmRtu> || Of<M, CmDrep>
void Fields(auto& c, M& m) {
  Ids(c, m);
  c.Data(8, m.private_data);
}

void Fields(auto& c, Of<CmDreq> auto& m) {
  Ids(c, m);
  c.U24(8, m.remote_qpn);
  c.Data(12, m.private_data);
}

void Fields(auto& c, Of<CmApr> auto& m) {
  Ids(c, m);
  c.InfoLength(8, 8, m.info_length);
  c.U8(9, m.status);
  c.Data(12, m.additional_info);
  c.Data(84, m.private_data);
}

void Fields(auto& c, Of<CmSidrReq> auto& m) {
  c.U32(0, m.request_id);
  c.U16(4, m.pkey);
  c.U64(8, m.service_id);
  c.Data(16, m.private_data);
}

void Fields(auto& c, Of<CmSidrRep> auto& m) {
  c.U32(0, m.request_id);
  c.U8(4, m.status);
  c.InfoLength(5, 8, m.info_length);
  c.U24(8, m.qpn);
  c.U64(12, m.service_id);
  c.U32(20, m.qkey);
  c.Scattered(6, 7, 11, m.vendor_id);
  c.Data(24, m.additional_info);
  c.Data(96, m.private_data);
}

}  // namespace

CmParseError CmView::Parse(std::span<const uint8_t> mad, CmView* out) {
  if (mad.size() != kMadSize) return CmParseError::kBadSize;
  const MadHeader h = LoadMadHeader(mad.data());
  if (h.base_version != kMadBaseVersion || h.management_class != kMadClassCm) {
    return CmParseError::kOtherClass;
  }
  if (h.class_version != kCmClassVersion) return CmParseError::kBadVersion;
  if (h.method != kMadMethodSend) return CmParseError::kOtherMethod;
  if (h.attribute_id < static_cast<uint16_t>(CmAttribute::kReq) ||
      h.attribute_id > static_cast<uint16_t>(CmAttribute::kApr)) {
    return CmParseError::kUnknownAttribute;
  }
  out->mad_ = mad.data();
  return CmParseError::kOk;
}

template <typename M>
M CmView::Read() const {
  M m;
  Reader c(mad_ + kMadHeaderSize);
  Fields(c, m);
  return m;
}

template <typename M>
void EmitCm(const CmTransaction& transaction, const M& m, MadBytes out) {
  std::ranges::fill(out, uint8_t{0});
  EmitMadHeader({.management_class = kMadClassCm,
                 .class_version = kCmClassVersion,
                 .method = kMadMethodSend,
                 .transaction_id = transaction.id,
                 .attribute_id = static_cast<uint16_t>(M::kAttribute),
                 .attribute_modifier = transaction.attribute_modifier},
                out.data());
  Writer c(out.data() + kMadHeaderSize);
  Fields(c, m);
}

template CmReq CmView::Read() const;
template CmMra CmView::Read() const;
template CmRej CmView::Read() const;
template CmRep CmView::Read() const;
template CmRtu CmView::Read() const;
template CmDreq CmView::Read() const;
template CmDrep CmView::Read() const;
template CmApr CmView::Read() const;
template CmSidrReq CmView::Read() const;
template CmSidrRep CmView::Read() const;

template void EmitCm(const CmTransaction&, const CmReq&, MadBytes);
template void EmitCm(const CmTransaction&, const CmMra&, MadBytes);
template void EmitCm(const CmTransaction&, const CmRej&, MadBytes);
template void EmitCm(const CmTransaction&, const CmRep&, MadBytes);
template void EmitCm(const CmTransaction&, const CmRtu&, MadBytes);
template void EmitCm(const CmTransaction&, const CmDreq&, MadBytes);
template void EmitCm(const CmTransaction&, const CmDrep&, MadBytes);
template void EmitCm(const CmTransaction&, const CmApr&, MadBytes);
template void EmitCm(const CmTransaction&, const CmSidrReq&, MadBytes);
template void EmitCm(const CmTransaction&, const CmSidrRep&, MadBytes);

}  // namespace wire
