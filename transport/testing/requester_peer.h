// A scripted responder: a queue pair under test sends requests, and the test
// reads them as lines of text and builds each response.
#ifndef TRANSPORT_TESTING_REQUESTER_PEER_H_
#define TRANSPORT_TESTING_REQUESTER_PEER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/burst.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace transport {

class CountingMemory : public FakeMemory {
 public:
  MemoryStatus Translate(const MemoryAccess& access, SpanList* out) override {
    ++translations;
    EXPECT_GT(access.length, 0u);
    return FakeMemory::Translate(access, out);
  }
  int translations = 0;
};

class RequesterPeer {
 public:
  static constexpr uint32_t kQpn = 0x1111;      // under test
  static constexpr uint32_t kPeerQpn = 0x2222;  // the peer's
  static constexpr uint32_t kPsn = 100;         // first PSN that it sends
  static constexpr PdId kPd = 7;
  static constexpr uint64_t kVa = 0x10000;        // of `local`
  static constexpr uint64_t kRemoteVa = 0x50000;  // "va 0" in lines
  static constexpr uint32_t kRkey = 0x77;
  static constexpr uint32_t kMtu = 256;

  struct Options {
    QpCapacity capacity = {.max_send_wr = 512,
                           .max_recv_wr = 4,
                           .max_send_sge = 4,
                           .max_recv_sge = 4,
                           .max_inline_data = 64};
    bool signal_all = false;
    bool memory_placement = true;
    bool stops_at_data_errors = false;
    int max_segments = 64;
  };

  RequesterPeer() : RequesterPeer(Options{}) {}
  explicit RequesterPeer(const Options& options);

  // Attributes for Connect; may be changed before.
  QpAttributes attributes;
  void Connect();
  int Modify(QpState to);
  // To SQD, with or without the event.
  int Drain(bool notify);

  // --- Posting. Local bytes are [offset, offset + length) of `local`, whose
  // bytes count up from 0 (modulo 251).
  Sge Local(uint64_t offset, uint32_t length) const {
    return {local->va + offset, length, local->lkey};
  }
  std::vector<uint8_t> Bytes(size_t offset, size_t length) const {
    const auto begin = local->bytes.begin() + static_cast<ptrdiff_t>(offset);
    return {begin, begin + static_cast<ptrdiff_t>(length)};
  }
  int Post(SendRequest request, std::vector<Sge> sges);
  int Send(uint64_t wr_id, uint32_t length, uint32_t flags = kSendSignaled);
  int Write(uint64_t wr_id, uint32_t length, uint32_t flags = kSendSignaled);
  int Read(uint64_t wr_id, uint32_t length, uint32_t flags = kSendSignaled,
           uint64_t offset = 0);
  int FetchAdd(uint64_t wr_id, uint64_t add, uint32_t flags = kSendSignaled);

  // --- Requests. One line per packet, for instance
  //   "SEND_FIRST 100 [256]", "WRITE_ONLY 101 A S va 0 len 16 [16]"
  // (A: AckReq, S: solicited), "READ_REQUEST 102 A va 0 len 512", "FETCH_ADD
  // 103 A va 0 add 5". Transmits everything; lines are joined by "; ".
  std::string Transmit();
  std::string TransmitOne();  // one burst
  // Packets of the last Transmit, for tests with too many for lines.
  struct Sent {
    uint32_t psn;
    bool ack_req;
    wire::Operation operation;
    uint32_t length;  // of RETH
  };
  std::vector<Sent> sent;
  std::vector<uint8_t> payload;  // payload of these packets, concatenated
  int bursts = 0;                // in the last Transmit

  // --- Responses by the test.
  uint16_t source_port = 0xc123;
  uint8_t traffic_class = 0;
  void Deliver(const wire::Headers& headers, size_t payload = 0,
               uint8_t first = 1);
  Disposition TryDeliver(const wire::Headers& headers, size_t payload,
                         uint8_t first);
  // Delivers several packets without payload as one GRO batch: all but the last
  // have one size.
  void DeliverBatch(const std::vector<wire::Headers>& packets);
  wire::Headers Response(wire::Operation operation, uint32_t psn) const;
  // Delivers any AETH, and bytes after it that may not belong there.
  Disposition Acknowledge(wire::Operation operation, uint32_t psn,
                          uint8_t syndrome, size_t payload = 0);
  void Ack(uint32_t psn, uint8_t credit_code = wire::kCreditNone,
           uint32_t msn = 0);
  void Nak(uint32_t psn, wire::NakCode code = wire::NakCode::kPsnSequence);
  void RnrNak(uint32_t psn, uint8_t timer);
  // Payload bytes are `first`, first + 1, ...
  void ReadResponse(wire::Operation operation, uint32_t psn, size_t payload,
                    uint8_t first = 1);
  void AtomicAck(uint32_t psn, uint64_t original);

  // Moves the clock to `time` after the start and runs timers, without
  // transmitting.
  void At(Time time);
  // Lets the path measure one round trip: a message of one byte that is
  // acknowledged at `rtt` after the start. Call before anything else is sent.
  void MeasureRoundTrip(Time rtt);
  // Time of the next timer after the start; kNever for none.
  Time NextTimer() const;

  // "7 ok", "7 ok 16" (with byte_len), "7 status 10"; joined by "; ".
  std::string Completions();
  std::string Events();  // numbers

  const Path& path() const { return *qp->path(); }
  uint64_t in_flight() const { return path().in_flight(); }

  static constexpr Time kStart = 1000 * kSecond;
  Time now = kStart;
  CountingMemory memory;
  FakeMemory::Region* local = nullptr;
  RecordingCq send_cq;
  RecordingCq recv_cq;
  RecordingEvents events;
  Endpoint endpoint;
  std::unique_ptr<QueuePair> qp;

 private:
  std::string Describe(const wire::PacketView& packet);
  std::vector<uint8_t> Build(const wire::Headers& headers, size_t payload,
                             uint8_t first, uint16_t ip_id) const;

  std::vector<uint8_t> buffer_;
  OneBurst sink_;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_REQUESTER_PEER_H_
