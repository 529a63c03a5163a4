// A scripted peer: the test builds each packet to the queue pair under test,
// and reads its packets as lines of text.
#ifndef TRANSPORT_TESTING_WIRE_PEER_H_
#define TRANSPORT_TESTING_WIRE_PEER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/burst.h"
#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/packet.h"

namespace transport {

class WirePeer {
 public:
  static constexpr uint32_t kQpn = 0x11;        // under test
  static constexpr uint32_t kPeerQpn = 0x2222;  // the peer's
  static constexpr uint32_t kPsn = 100;         // first PSN that the peer sends
  static constexpr PdId kPd = 7;
  static constexpr uint64_t kVa = 0x10000;  // of `target`
  static constexpr uint32_t kMtu = 256;
  static constexpr uint32_t kAllAccess =
      kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
      kAccessRemoteAtomic;

  struct Options {
    bool srq = false;
    bool memory_placement = true;
    int max_segments = 16;
    size_t burst_bytes = 65507;
    bool may_refuse = false;
  };

  WirePeer() : WirePeer(Options{}) {}
  explicit WirePeer(const Options& options);

  // Attributes for Connect; may be changed before.
  QpAttributes attributes;
  // Goes through the states up to `to`.
  void Connect(QpState to = QpState::kRts);
  int Modify(QpState to);
  static uint32_t MaskFor(QpState to);

  // Posts a receive over bytes [offset, offset + length) of `target`, one SGE
  // for each of `lengths`.
  int PostReceive(uint64_t wr_id, std::initializer_list<uint32_t> lengths,
                  uint64_t offset = 0);

  // --- Packets to the queue pair. Headers have P_Key, QPN and PSN set.
  wire::Headers Request(wire::Operation operation, uint32_t psn,
                        bool ack_req = false) const;
  wire::Headers Write(wire::Operation operation, uint32_t psn, uint64_t offset,
                      uint32_t length, bool ack_req = false) const;
  wire::Headers Read(uint32_t psn, uint64_t offset, uint32_t length) const;
  wire::Headers Atomic(wire::Operation operation, uint32_t psn, uint64_t offset,
                       uint64_t swap_or_add, uint64_t compare = 0) const;
  // BTH to ICRC. Payload bytes are `first`, first + 1, ...
  std::vector<uint8_t> Build(const wire::Headers& headers, size_t payload = 0,
                             uint8_t first = 1) const;
  Disposition Deliver(const std::vector<uint8_t>& packet);
  Disposition Deliver(const wire::Headers& headers, size_t payload = 0,
                      uint8_t first = 1) {
    return Deliver(Build(headers, payload, first));
  }
  // The payload bytes of Build.
  static std::vector<uint8_t> Pattern(size_t bytes, uint8_t first = 1);

  // --- Packets of the queue pair. One line per packet, for instance
  //   "ACK 100 msn 1", "NAK invalid-request 101 msn 1", "RNR 12 100 msn 0",
  //   "READ_FIRST 100 msn 1 [256]", "READ_MIDDLE 101 [256]",
  //   "ATOMIC 100 msn 1 = 5", "CNP".
  // ICRCs are checked. Transmits everything; lines are joined by "; " and
  // bursts by " | ".
  std::string Transmit();
  // One burst.
  std::string TransmitOne();
  // Payload of the packets of the last Transmit, concatenated.
  std::vector<uint8_t> payload;

  std::string TakeReceives();  // "7 ok 16", "7 ok 16 imm 5", "7 status 5"
  std::string TakeEvents();    // numbers

  Time now = 1000 * kSecond;
  FakeMemory memory;
  FakeMemory::Region* target = nullptr;
  RecordingCq send_cq;
  RecordingCq recv_cq;
  RecordingEvents events;
  FakeSrq srq;
  Endpoint endpoint;
  std::unique_ptr<QueuePair> qp;
  Datagram datagram;  // addresses and ports for Deliver

 private:
  std::string Describe(const wire::PacketView& packet);

  std::vector<uint8_t> buffer_;
  OneBurst sink_;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_WIRE_PEER_H_
