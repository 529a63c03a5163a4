#include "transport/testing/wire_peer.h"

#include <cstdio>
#include <numeric>

#include "gtest/gtest.h"
#include "wire/aeth.h"
#include "wire/icrc.h"

namespace transport {
namespace {

constexpr uint16_t kPeerPort = 0xc123;

wire::IpAddress Address(const char* text) {
  return *wire::IpAddress::Parse(text);
}

}  // namespace

WirePeer::WirePeer(const Options& options)
    : buffer_(options.burst_bytes), sink_(buffer_, options.max_segments) {
  target = &memory.Add(kVa, 64 * 1024, kPd, kAllAccess);
  QpConfig config;
  config.qpn = kQpn;
  config.pd = kPd;
  config.capacity = {.max_send_wr = 16,
                     .max_recv_wr = 16,
                     .max_send_sge = 4,
                     .max_recv_sge = 4,
                     .max_inline_data = 64};
  config.memory = &memory;
  config.memory_placement = options.memory_placement;
  config.send_cq = &send_cq;
  config.recv_cq = &recv_cq;
  config.events = &events;
  config.may_refuse = options.may_refuse;
  config.srq = options.srq ? &srq : nullptr;
  qp = MakeQueuePair(endpoint, config);

  attributes.path_mtu = kMtu;
  attributes.rq_psn = kPsn;
  attributes.sq_psn = 5000;
  attributes.dest_qpn = kPeerQpn;
  attributes.access_flags = kAllAccess;
  attributes.av.source = Address("10.0.0.1");
  attributes.av.destination = Address("10.0.0.2");
  attributes.av.source_port = 0xc001;
  attributes.max_rd_atomic = 4;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 12;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;

  datagram.source = attributes.av.destination;
  datagram.destination = attributes.av.source;
  datagram.source_port = kPeerPort;
  datagram.hop_limit = 64;
}

uint32_t WirePeer::MaskFor(QpState to) {
  switch (to) {
    case QpState::kInit:
      return kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
    case QpState::kRtr:
      return kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
             kQpMaxDestRdAtomic | kQpMinRnrTimer;
    case QpState::kRts:
      return kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn |
             kQpMaxQpRdAtomic;
    default:
      return kQpState;
  }
}

int WirePeer::Modify(QpState to) {
  attributes.state = to;
  const bool plain = to == QpState::kRts && qp->state() != QpState::kRtr;
  return qp->Modify(attributes, plain ? uint32_t{kQpState} : MaskFor(to), now);
}

void WirePeer::Connect(QpState to) {
  for (QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    ASSERT_EQ(Modify(state), 0);
    if (state == to) return;
  }
}

int WirePeer::PostReceive(uint64_t wr_id,
                          std::initializer_list<uint32_t> lengths,
                          uint64_t offset) {
  std::vector<Sge> sges;
  for (uint32_t length : lengths) {
    sges.push_back({target->va + offset, length, target->lkey});
    offset += length;
  }
  return qp->PostReceive({wr_id, sges}, now);
}

wire::Headers WirePeer::Request(wire::Operation operation, uint32_t psn,
                                bool ack_req) const {
  wire::Headers headers;
  headers.bth.opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
  headers.bth.dest_qpn = kQpn;
  headers.bth.psn = psn;
  headers.bth.ack_req = ack_req;
  return headers;
}

wire::Headers WirePeer::Write(wire::Operation operation, uint32_t psn,
                              uint64_t offset, uint32_t length,
                              bool ack_req) const {
  wire::Headers headers = Request(operation, psn, ack_req);
  headers.reth = {target->va + offset, target->rkey, length};
  return headers;
}

wire::Headers WirePeer::Read(uint32_t psn, uint64_t offset,
                             uint32_t length) const {
  wire::Headers headers = Request(wire::Operation::kReadRequest, psn);
  headers.reth = {target->va + offset, target->rkey, length};
  return headers;
}

wire::Headers WirePeer::Atomic(wire::Operation operation, uint32_t psn,
                               uint64_t offset, uint64_t swap_or_add,
                               uint64_t compare) const {
  wire::Headers headers = Request(operation, psn);
  headers.atomic = {target->va + offset, target->rkey, swap_or_add, compare};
  return headers;
}

std::vector<uint8_t> WirePeer::Pattern(size_t bytes, uint8_t first) {
  std::vector<uint8_t> pattern(bytes);
  std::iota(pattern.begin(), pattern.end(), first);
  return pattern;
}

std::vector<uint8_t> WirePeer::Build(const wire::Headers& headers,
                                     size_t payload_bytes,
                                     uint8_t first) const {
  wire::Headers padded = headers;
  padded.bth.pad_count = wire::PadCount(payload_bytes);
  std::vector<uint8_t> packet(wire::kMaxHeaderSize);
  packet.resize(wire::EmitHeaders(padded, packet.data()));
  const std::vector<uint8_t> pattern = Pattern(payload_bytes, first);
  packet.insert(packet.end(), pattern.begin(), pattern.end());
  packet.resize(packet.size() + padded.bth.pad_count + wire::kIcrcSize);
  const wire::IcrcFlow flow(datagram.source, datagram.destination,
                            datagram.source_port, wire::kRoceUdpPort);
  flow.Store(packet, 0);
  return packet;
}

Disposition WirePeer::Deliver(const std::vector<uint8_t>& packet) {
  datagram.bytes = packet;
  return endpoint.OnDatagram(datagram, now);
}

std::string WirePeer::Describe(const wire::PacketView& packet) {
  const std::string psn = std::to_string(packet.bth().psn);
  const std::string size = " [" + std::to_string(packet.payload().size()) + "]";
  if (packet.opcode() == wire::kOpcodeCnp) {
    if (packet.bth().pkey == wire::kDefaultPkey) return "CNP";
    char pkey[16];
    std::snprintf(pkey, sizeof(pkey), " pkey %04x", packet.bth().pkey);
    return std::string("CNP") + pkey;
  }
  EXPECT_EQ(packet.bth().pkey, wire::kDefaultPkey);
  if (!packet.info().Has(wire::kAeth)) {
    if (packet.operation() == wire::Operation::kReadResponseMiddle) {
      return "READ_MIDDLE " + psn + size;
    }
    return packet.info().name + (" " + psn) + size;
  }
  const wire::Aeth aeth = packet.aeth();
  const std::string tail = psn + " msn " + std::to_string(aeth.msn);
  if (wire::AethKindOf(aeth.syndrome) == wire::AethKind::kAck) {
    EXPECT_EQ(wire::AethValueOf(aeth.syndrome), wire::kCreditNone);
  }
  switch (packet.operation()) {
    case wire::Operation::kReadResponseFirst:
      return "READ_FIRST " + tail + size;
    case wire::Operation::kReadResponseLast:
      return "READ_LAST " + tail + size;
    case wire::Operation::kReadResponseOnly:
      return "READ_ONLY " + tail + size;
    case wire::Operation::kAtomicAcknowledge:
      return "ATOMIC " + tail + " = " +
             std::to_string(packet.atomic_ack().original);
    default:
      break;
  }
  switch (wire::AethKindOf(aeth.syndrome)) {
    case wire::AethKind::kAck:
      return "ACK " + tail;
    case wire::AethKind::kRnrNak:
      return "RNR " + std::to_string(wire::AethValueOf(aeth.syndrome)) + " " +
             tail;
    default:
      break;
  }
  static constexpr const char* kCodes[] = {"sequence", "invalid-request",
                                           "access", "operational"};
  const uint8_t code = wire::AethValueOf(aeth.syndrome);
  return std::string("NAK ") + (code < 4 ? kCodes[code] : "?") + " " + tail;
}

std::string WirePeer::TransmitOne() {
  const Burst* const burst = endpoint.PollTransmit(now, &sink_);
  if (burst == nullptr) return "";
  std::string lines;
  EXPECT_FALSE(burst->empty());
  const std::span<const uint8_t> bytes = burst->bytes();
  for (int i = 0; i < burst->segments(); ++i) {
    const size_t at = i * burst->segment_size();
    const auto datagram_bytes =
        bytes.subspan(at, std::min(burst->segment_size(), bytes.size() - at));
    EXPECT_TRUE(
        burst->flow()->icrc.Verify(datagram_bytes, static_cast<uint16_t>(i)));
    wire::PacketView packet;
    EXPECT_EQ(wire::PacketView::Parse(datagram_bytes, &packet),
              wire::ParseError::kOk);
    EXPECT_EQ(packet.bth().dest_qpn, kPeerQpn);
    EXPECT_EQ(packet.bth().mig_req, packet.opcode() != wire::kOpcodeCnp);
    if (!lines.empty()) lines += "; ";
    lines += Describe(packet);
    payload.insert(payload.end(), packet.payload().begin(),
                   packet.payload().end());
  }
  return lines;
}

std::string WirePeer::Transmit() {
  payload.clear();
  std::string all;
  for (std::string one = TransmitOne(); !one.empty(); one = TransmitOne()) {
    all += (all.empty() ? "" : " | ") + one;
  }
  EXPECT_FALSE(endpoint.HasTransmit());
  return all;
}

std::string WirePeer::TakeReceives() {
  std::string all;
  for (const Completion& c : recv_cq.Take()) {
    if (!all.empty()) all += "; ";
    all += std::to_string(c.wr_id);
    if (c.status != WcStatus::kSuccess) {
      all += " status " + std::to_string(static_cast<int>(c.status));
      continue;
    }
    EXPECT_EQ(c.qpn, kQpn);
    EXPECT_EQ(c.time, now);
    all += c.opcode == WcOpcode::kReceive ? " ok " : " written ";
    all += std::to_string(c.byte_len);
    if (c.flags & kWcWithImm) all += " imm " + std::to_string(c.imm_be_or_rkey);
    if (c.flags & kWcWithInvalidate) {
      all += " inv " + std::to_string(c.imm_be_or_rkey);
    }
    if (c.solicited) all += " solicited";
  }
  return all;
}

std::string WirePeer::TakeEvents() {
  std::string all;
  for (QpEvent event : events.Take()) {
    if (!all.empty()) all += " ";
    all += std::to_string(static_cast<int>(event));
  }
  return all;
}

}  // namespace transport
