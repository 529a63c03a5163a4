// Hosts with DC queue pairs on a network that loses only what a test says.
#ifndef TRANSPORT_TESTING_DC_HOSTS_H_
#define TRANSPORT_TESTING_DC_HOSTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/dc/dc_connections.h"
#include "transport/dc/dc_lane.h"
#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/packet.h"

namespace transport {

// A datagram between two of them.
struct DcDatagram {
  std::vector<uint8_t> bytes;
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;

  wire::PacketView view() const;
  // For instance "DC_SEND_ONLY".
  std::string name() const { return view().info().name; }
};

class DcHost final : public DcLane {
 public:
  static constexpr PdId kPd = 7;
  static constexpr uint32_t kMtu = 256;
  static constexpr uint64_t kKey = 0x1122334455667788;

  explicit DcHost(int number);
  ~DcHost() override;

  // In RTS (kDci), or RTR (kDct).
  std::unique_ptr<QueuePair> MakeDci(uint32_t qpn, Time now,
                                     uint8_t retry_cnt = 7);
  std::unique_ptr<QueuePair> MakeDct(uint32_t qpn, Time now,
                                     uint64_t key = kKey);
  // In RESET.
  std::unique_ptr<QueuePair> Make(QpType type, uint32_t qpn, uint64_t key = 0);
  // From RESET.
  static void BringUp(QueuePair& qp, Time now, uint8_t retry_cnt = 7);
  void PostReceive(uint64_t wr_id, uint64_t offset = 0, uint32_t length = 4096);
  // The address of a DCT of `to`, for a SendRequest.
  AddressVector AddressOf(const DcHost& to, uint16_t port = 0xc005) const;

  // --- DcLane.
  std::optional<uint32_t> AllocateNumber() override;
  void ReleaseNumber(uint32_t number) override;
  // The source port of `connect`.
  std::optional<uint16_t> SourcePort(const AddressVector& target,
                                     const Received& connect) override;
  uint32_t Random() override;

  wire::IpAddress address;
  FakeMemory memory;
  FakeMemory::Region* region;
  RecordingCq send_cq;
  RecordingCq recv_cq;
  RecordingEvents events;
  FakeSrq srq;
  uint32_t next_number = 0x800001;
  uint16_t errored_streams = 0;  // QpConfig::dci_errored_streams
  std::set<uint32_t> numbers;    // of connections
  size_t max_numbers = SIZE_MAX;
  std::deque<uint32_t> next_random;  // before those that are made up
  Endpoint endpoint;
  DcConnections connections{endpoint, *this};

 private:
  uint32_t random_ = 0x1000;
};

class DcHosts {
 public:
  explicit DcHosts(int count);

  DcHost& operator[](size_t i) { return *hosts_[i]; }
  // Delivers all packets that are sent, until there are no more. Their names,
  // joined by spaces.
  std::string Exchange();
  // As Exchange, and runs timers, until nothing is due within `limit`.
  std::string Run(Time limit);
  // To the host with that address.
  Disposition Deliver(const DcDatagram& datagram);
  // What `host` sends now, in at most `bursts`.
  std::vector<DcDatagram> Transmit(DcHost& host, size_t bursts = SIZE_MAX);

  Time now = 1000 * kSecond;
  // True: the packet is lost.
  std::function<bool(const DcDatagram&)> lose;
  std::vector<DcDatagram> sent;  // all, lost or not

 private:
  std::vector<std::unique_ptr<DcHost>> hosts_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_DC_HOSTS_H_
