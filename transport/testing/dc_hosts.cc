#include "transport/testing/dc_hosts.h"

#include "gtest/gtest.h"
#include "transport/testing/bring_up.h"

namespace transport {

wire::PacketView DcDatagram::view() const {
  wire::PacketView view;
  EXPECT_EQ(wire::PacketView::Parse(bytes, &view), wire::ParseError::kOk);
  return view;
}

DcHost::DcHost(int number)
    : address(*wire::IpAddress::Parse("10.0.0." + std::to_string(number))),
      region(&memory.Add(0x10000, 1 << 20, kPd,
                         kAccessLocalWrite | kAccessRemoteWrite |
                             kAccessRemoteRead | kAccessRemoteAtomic)) {}

DcHost::~DcHost() { EXPECT_TRUE(numbers.empty()); }

std::unique_ptr<QueuePair> DcHost::Make(QpType type, uint32_t qpn,
                                        uint64_t key) {
  QpConfig config;
  config.type = type;
  config.qpn = qpn;
  config.pd = kPd;
  config.memory = &memory;
  config.send_cq = &send_cq;
  config.recv_cq = &recv_cq;
  config.events = &events;
  if (type == QpType::kDci) {
    config.dci_errored_streams = errored_streams;
    config.capacity = {
        .max_send_wr = 64, .max_send_sge = 4, .max_inline_data = 64};
  } else {
    config.srq = &srq;
  }
  return MakeQueuePair(endpoint, config, 0, {},
                       {.connections = &connections, .access_key = key});
}

void DcHost::BringUp(QueuePair& qp, Time now, uint8_t retry_cnt) {
  QpAttributes to;
  to.access_flags = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                    kAccessRemoteAtomic;
  to.path_mtu = kMtu;
  to.sq_psn = 0xfffff0;
  to.max_rd_atomic = 4;
  to.timeout = 14;
  to.retry_cnt = retry_cnt;
  to.rnr_retry = 7;
  to.min_rnr_timer = 12;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    if (state == QpState::kRts && qp.config().type == QpType::kDct) break;
    to.state = state;
    ASSERT_EQ(qp.Modify(to, RequiredAttributes(qp.config().type, state), now),
              0);
  }
}

std::unique_ptr<QueuePair> DcHost::MakeDci(uint32_t qpn, Time now,
                                           uint8_t retry_cnt) {
  auto qp = Make(QpType::kDci, qpn);
  BringUp(*qp, now, retry_cnt);
  return qp;
}

std::unique_ptr<QueuePair> DcHost::MakeDct(uint32_t qpn, Time now,
                                           uint64_t key) {
  auto qp = Make(QpType::kDct, qpn, key);
  BringUp(*qp, now);
  return qp;
}

void DcHost::PostReceive(uint64_t wr_id, uint64_t offset, uint32_t length) {
  srq.queue.push_back(
      {wr_id, kPd, {{region->va + offset, length, region->lkey}}});
}

AddressVector DcHost::AddressOf(const DcHost& to, uint16_t port) const {
  AddressVector av;
  av.source = address;
  av.destination = to.address;
  av.source_port = port;
  return av;
}

std::optional<uint32_t> DcHost::AllocateNumber() {
  if (numbers.size() >= max_numbers) return std::nullopt;
  numbers.insert(next_number);
  return next_number++;
}

void DcHost::ReleaseNumber(uint32_t number) {
  EXPECT_EQ(numbers.erase(number), 1u);
}

std::optional<uint16_t> DcHost::SourcePort(const AddressVector& /*target*/,
                                           const Received& connect) {
  EXPECT_EQ(connect.datagram->destination, address);
  return connect.datagram->source_port;
}

uint32_t DcHost::Random() {
  if (next_random.empty()) return ++random_;
  const uint32_t next = next_random.front();
  next_random.pop_front();
  return next;
}

DcHosts::DcHosts(int count) {
  for (int i = 1; i <= count; ++i) {
    hosts_.push_back(std::make_unique<DcHost>(i));
  }
}

std::vector<DcDatagram> DcHosts::Transmit(DcHost& host, size_t bursts) {
  std::vector<DcDatagram> packets;
  OneBurst sink(buffer_, 64);
  for (; bursts > 0; --bursts) {
    Burst* const burst = host.endpoint.PollTransmit(now, &sink);
    if (burst == nullptr) break;
    const AddressVector& av = burst->flow()->av;
    uint16_t ip_id = 0;
    for (std::span<const uint8_t> rest = burst->bytes(); !rest.empty();) {
      const auto bytes =
          rest.first(std::min(rest.size(), burst->segment_size()));
      rest = rest.subspan(bytes.size());
      packets.push_back({{bytes.begin(), bytes.end()},
                         av.source,
                         av.destination,
                         av.source_port});
      const wire::IcrcFlow flow(av.source, av.destination, av.source_port,
                                wire::kRoceUdpPort);
      EXPECT_TRUE(flow.Verify(packets.back().bytes, ip_id++));
    }
  }
  return packets;
}

Disposition DcHosts::Deliver(const DcDatagram& datagram) {
  for (auto& host : hosts_) {
    if (host->address != datagram.destination) continue;
    // As a socket that does not merge: every identification is 0.
    DcDatagram copy = datagram;
    wire::IcrcFlow(datagram.source, datagram.destination, datagram.source_port,
                   wire::kRoceUdpPort)
        .Store(copy.bytes, 0);
    Datagram arrived;
    arrived.bytes = copy.bytes;
    arrived.source = copy.source;
    arrived.destination = copy.destination;
    arrived.source_port = copy.source_port;
    arrived.hop_limit = 64;
    return host->endpoint.OnDatagram(arrived, now);
  }
  return Disposition::kUnknownQp;
}

std::string DcHosts::Exchange() {
  std::string names;
  for (bool some = true; some;) {
    some = false;
    for (auto& host : hosts_) {
      for (const DcDatagram& packet : Transmit(*host)) {
        some = true;
        sent.push_back(packet);
        names += (names.empty() ? "" : " ") + packet.name();
        if (lose && lose(packet)) continue;
        Deliver(packet);
      }
    }
  }
  return names;
}

std::string DcHosts::Run(Time limit) {
  std::string names = Exchange();
  for (const Time end = now + limit;;) {
    Time next = kNever;
    for (auto& host : hosts_) {
      next = std::min(next, host->endpoint.NextTimeout());
    }
    if (next > end) return names;
    now = std::max(now, next);
    for (auto& host : hosts_) host->endpoint.OnTimer(now);
    const std::string more = Exchange();
    if (!more.empty()) names += (names.empty() ? "" : " ") + more;
  }
}

}  // namespace transport
