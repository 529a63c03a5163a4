#include "transport/testing/requester_peer.h"

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "wire/icrc.h"

namespace transport {
namespace {

constexpr uint32_t kFirstModify =
    kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr uint32_t kRtrModify = kQpState | kQpAv | kQpPathMtu | kQpDestQpn |
                                kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr uint32_t kRtsModify = kQpState | kQpTimeout | kQpRetryCnt |
                                kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic;

void AddLine(const std::string& line, std::string* all) {
  if (!all->empty()) *all += "; ";
  *all += line;
}

}  // namespace

RequesterPeer::RequesterPeer(const Options& options)
    : buffer_(65507), sink_(buffer_, options.max_segments) {
  local = &memory.Add(kVa, 1 << 20, kPd, kAccessLocalWrite);
  for (size_t i = 0; i < local->bytes.size(); ++i) {
    local->bytes[i] = static_cast<uint8_t>(i % 251);
  }
  QpConfig config;
  config.qpn = kQpn;
  config.pd = kPd;
  config.capacity = options.capacity;
  config.signal_all = options.signal_all;
  config.memory = &memory;
  config.memory_placement = options.memory_placement;
  config.stops_at_data_errors = options.stops_at_data_errors;
  config.send_cq = &send_cq;
  config.recv_cq = &recv_cq;
  config.events = &events;
  qp = MakeQueuePair(endpoint, config);

  attributes.path_mtu = kMtu;
  attributes.rq_psn = 1;
  attributes.sq_psn = kPsn;
  attributes.dest_qpn = kPeerQpn;
  attributes.av.source = *wire::IpAddress::Parse("10.0.0.1");
  attributes.av.destination = *wire::IpAddress::Parse("10.0.0.2");
  attributes.av.source_port = 0xc001;
  attributes.max_rd_atomic = 4;
  attributes.max_dest_rd_atomic = 4;
  attributes.timeout = 14;  // 67.1 ms
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
}

void RequesterPeer::Connect() {
  for (const auto& [state, mask] : {std::pair(QpState::kInit, kFirstModify),
                                    std::pair(QpState::kRtr, kRtrModify),
                                    std::pair(QpState::kRts, kRtsModify)}) {
    attributes.state = state;
    ASSERT_EQ(qp->Modify(attributes, mask, now), 0);
  }
}

int RequesterPeer::Modify(QpState to) {
  attributes.state = to;
  return qp->Modify(attributes, kQpState, now);
}

int RequesterPeer::Drain(bool notify) {
  attributes.state = QpState::kSqd;
  attributes.en_sqd_async_notify = notify;
  return qp->Modify(attributes, kQpState | kQpEnSqdAsyncNotify, now);
}

int RequesterPeer::Post(SendRequest request, std::vector<Sge> sges) {
  request.sges = sges;
  request.remote_addr += kRemoteVa;
  request.rkey = kRkey;
  return qp->PostSend(request, now);
}

int RequesterPeer::Send(uint64_t wr_id, uint32_t length, uint32_t flags) {
  return Post({.wr_id = wr_id, .opcode = SendOpcode::kSend, .flags = flags},
              {Local(0, length)});
}

int RequesterPeer::Write(uint64_t wr_id, uint32_t length, uint32_t flags) {
  return Post(
      {.wr_id = wr_id, .opcode = SendOpcode::kRdmaWrite, .flags = flags},
      {Local(0, length)});
}

int RequesterPeer::Read(uint64_t wr_id, uint32_t length, uint32_t flags,
                        uint64_t offset) {
  return Post({.wr_id = wr_id, .opcode = SendOpcode::kRdmaRead, .flags = flags},
              {Local(offset, length)});
}

int RequesterPeer::FetchAdd(uint64_t wr_id, uint64_t add, uint32_t flags) {
  return Post({.wr_id = wr_id,
               .opcode = SendOpcode::kFetchAdd,
               .flags = flags,
               .compare_add = add},
              {Local(0, 8)});
}

std::string RequesterPeer::Describe(const wire::PacketView& packet) {
  std::string line = packet.info().name;
  for (const char* prefix : {"RC_", "RDMA_"}) {
    if (line.rfind(prefix, 0) == 0)
      line = line.substr(std::string(prefix).size());
  }
  line += " " + std::to_string(packet.bth().psn);
  if (packet.bth().ack_req) line += " A";
  if (packet.bth().solicited) line += " S";
  const wire::OpcodeInfo& info = packet.info();
  const auto number = [&line](const char* name, uint64_t value) {
    line += std::string(" ") + name + " " + std::to_string(value);
  };
  if (info.Has(wire::kXrcEth)) number("srqn", packet.xrc_srqn());
  if (info.Has(wire::kFeth)) {
    number("type", packet.feth().placement_type);
    number("level", packet.feth().selectivity);
  }
  if (info.Has(wire::kReth)) {
    number("va", packet.reth().va - kRemoteVa);
    number("len", packet.reth().length);
    EXPECT_EQ(packet.reth().rkey, kRkey);
  }
  if (info.Has(wire::kAtomicEth)) {
    number("va", packet.atomic().va - kRemoteVa);
    const bool add = packet.operation() == wire::Operation::kFetchAdd;
    if (!add) number("compare", packet.atomic().compare);
    number(add ? "add" : "swap", packet.atomic().swap_or_add);
    EXPECT_EQ(packet.atomic().rkey, kRkey);
  }
  if (info.Has(wire::kImmDt)) number("imm", packet.imm_be());
  if (info.Has(wire::kIeth)) number("inv", packet.invalidate_rkey());
  if (info.carries_payload) {
    line += " [" + std::to_string(packet.payload().size()) + "]";
  }
  return line;
}

std::string RequesterPeer::TransmitOne() {
  const Burst* const burst = endpoint.PollTransmit(now, &sink_);
  if (burst == nullptr) return "";
  std::string lines;
  const std::span<const uint8_t> bytes = burst->bytes();
  for (int i = 0; i < burst->segments(); ++i) {
    const size_t at = i * burst->segment_size();
    const auto datagram =
        bytes.subspan(at, std::min(burst->segment_size(), bytes.size() - at));
    EXPECT_TRUE(burst->flow()->icrc.Verify(datagram, static_cast<uint16_t>(i)));
    wire::PacketView packet;
    EXPECT_EQ(wire::PacketView::Parse(datagram, &packet),
              wire::ParseError::kOk);
    EXPECT_EQ(packet.bth().dest_qpn, kPeerQpn);
    EXPECT_EQ(packet.bth().pkey, wire::kDefaultPkey);
    EXPECT_TRUE(packet.bth().mig_req);
    EXPECT_EQ(datagram.size() % 4, 0u);
    AddLine(Describe(packet), &lines);
    sent.push_back({packet.bth().psn, packet.bth().ack_req, packet.operation(),
                    packet.info().Has(wire::kReth) ? packet.reth().length : 0});
    payload.insert(payload.end(), packet.payload().begin(),
                   packet.payload().end());
  }
  ++bursts;
  return lines;
}

std::string RequesterPeer::Transmit() {
  sent.clear();
  payload.clear();
  bursts = 0;
  std::string all;
  for (std::string one = TransmitOne(); !one.empty(); one = TransmitOne()) {
    AddLine(one, &all);
  }
  EXPECT_FALSE(endpoint.HasTransmit());
  return all;
}

wire::Headers RequesterPeer::Response(wire::Operation operation,
                                      uint32_t psn) const {
  wire::Headers headers;
  headers.bth.opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
  headers.bth.dest_qpn = kQpn;
  headers.bth.psn = psn;
  headers.aeth.syndrome = wire::MakeAckSyndrome(wire::kCreditNone);
  return headers;
}

void RequesterPeer::Deliver(const wire::Headers& headers, size_t payload_bytes,
                            uint8_t first) {
  EXPECT_EQ(TryDeliver(headers, payload_bytes, first), Disposition::kDelivered);
}

std::vector<uint8_t> RequesterPeer::Build(const wire::Headers& headers,
                                          size_t payload_bytes, uint8_t first,
                                          uint16_t ip_id) const {
  wire::Headers padded = headers;
  padded.bth.pad_count = wire::PadCount(payload_bytes);
  std::vector<uint8_t> packet(wire::kMaxHeaderSize);
  packet.resize(wire::EmitHeaders(padded, packet.data()));
  for (size_t i = 0; i < payload_bytes; ++i) {
    packet.push_back(static_cast<uint8_t>(first + i));
  }
  packet.resize(packet.size() + padded.bth.pad_count + wire::kIcrcSize);
  wire::IcrcFlow(attributes.av.destination, attributes.av.source, source_port,
                 wire::kRoceUdpPort)
      .Store(packet, ip_id);
  return packet;
}

Disposition RequesterPeer::TryDeliver(const wire::Headers& headers,
                                      size_t payload_bytes, uint8_t first) {
  const std::vector<uint8_t> packet = Build(headers, payload_bytes, first, 0);
  Datagram datagram;
  datagram.source = attributes.av.destination;
  datagram.destination = attributes.av.source;
  datagram.source_port = source_port;
  datagram.traffic_class = traffic_class;
  datagram.hop_limit = 64;
  datagram.bytes = packet;
  return endpoint.OnDatagram(datagram, now);
}

void RequesterPeer::DeliverBatch(const std::vector<wire::Headers>& packets) {
  GroBatch batch;
  std::vector<uint8_t> bytes;
  uint16_t ip_id = 0;
  for (const wire::Headers& headers : packets) {
    const std::vector<uint8_t> packet = Build(headers, 0, 0, ip_id++);
    if (batch.segment_size == 0) batch.segment_size = packet.size();
    bytes.insert(bytes.end(), packet.begin(), packet.end());
  }
  batch.bytes = bytes;
  batch.source = attributes.av.destination;
  batch.destination = attributes.av.source;
  batch.source_port = source_port;
  batch.hop_limit = 64;
  endpoint.OnGroBatch(batch, now, nullptr);
}

void RequesterPeer::Ack(uint32_t psn, uint8_t credit_code, uint32_t msn) {
  wire::Headers headers = Response(wire::Operation::kAcknowledge, psn);
  headers.aeth = {wire::MakeAckSyndrome(credit_code), msn};
  Deliver(headers);
}

void RequesterPeer::Nak(uint32_t psn, wire::NakCode code) {
  wire::Headers headers = Response(wire::Operation::kAcknowledge, psn);
  headers.aeth.syndrome = wire::MakeNakSyndrome(code);
  Deliver(headers);
}

Disposition RequesterPeer::Acknowledge(wire::Operation operation, uint32_t psn,
                                       uint8_t syndrome, size_t payload_bytes) {
  wire::Headers headers = Response(operation, psn);
  headers.aeth.syndrome = syndrome;
  return TryDeliver(headers, payload_bytes, 1);
}

void RequesterPeer::RnrNak(uint32_t psn, uint8_t timer) {
  wire::Headers headers = Response(wire::Operation::kAcknowledge, psn);
  headers.aeth.syndrome = wire::MakeRnrSyndrome(timer);
  Deliver(headers);
}

void RequesterPeer::ReadResponse(wire::Operation operation, uint32_t psn,
                                 size_t payload_bytes, uint8_t first) {
  Deliver(Response(operation, psn), payload_bytes, first);
}

void RequesterPeer::AtomicAck(uint32_t psn, uint64_t original) {
  wire::Headers headers = Response(wire::Operation::kAtomicAcknowledge, psn);
  headers.atomic_ack.original = original;
  Deliver(headers);
}

void RequesterPeer::At(Time time) {
  while (endpoint.NextTimeout() <= kStart + time) {
    now = std::max(now, endpoint.NextTimeout());
    endpoint.OnTimer(now);
    // A timer must not be due again before its packets are sent.
    if (endpoint.NextTimeout() <= now) break;
  }
  now = kStart + time;
}

void RequesterPeer::MeasureRoundTrip(Time rtt) {
  Send(1, 1);
  EXPECT_EQ(Transmit(), "SEND_ONLY 100 A [1]");
  At(rtt);
  Ack(100);
  EXPECT_EQ(Completions(), "1 ok");
  EXPECT_EQ(path().smoothed_rtt(), rtt);
}

Time RequesterPeer::NextTimer() const {
  const Time next = endpoint.NextTimeout();
  return next == kNever ? kNever : next - kStart;
}

std::string RequesterPeer::Completions() {
  std::string all;
  for (const Completion& c : send_cq.Take()) {
    EXPECT_EQ(c.qpn, kQpn);
    EXPECT_LE(c.time, now);
    std::string line = std::to_string(c.wr_id);
    if (c.status == WcStatus::kSuccess) {
      line += " ok";
      if (c.byte_len != 0) line += " " + std::to_string(c.byte_len);
    } else {
      line += " status " + std::to_string(static_cast<int>(c.status));
    }
    AddLine(line, &all);
  }
  return all;
}

std::string RequesterPeer::Events() {
  std::string all;
  for (QpEvent event : events.Take()) {
    AddLine(std::to_string(static_cast<int>(event)), &all);
  }
  return all;
}

}  // namespace transport
