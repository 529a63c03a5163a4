// Two nodes with one connection, RC or UC: what most transport tests need.
//
//   sim::Pair pair;
//   pair.Connect();
//   pair.a.Write(/*wr_id=*/1, /*local=*/0, /*remote=*/64, /*length=*/3000);
//   pair.Run();
//   EXPECT_EQ(pair.a.TakeSend(), ...);
//
// Each side owns one buffer of `buffer_bytes`, registered with all rights.
// Local and remote addresses are offsets into it.
#ifndef TRANSPORT_SIM_PAIR_H_
#define TRANSPORT_SIM_PAIR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/queues.h"

namespace sim {

struct PairOptions {
  transport::QpType type = transport::QpType::kRc;  // or kUc
  uint64_t seed = 1;
  size_t buffer_bytes = 1 << 20;
  transport::QpCapacity capacity = {.max_send_wr = 256,
                                    .max_recv_wr = 256,
                                    .max_send_sge = 16,
                                    .max_recv_sge = 16,
                                    .max_inline_data = 256};
  bool signal_all = false;
  bool srq = false;  // both sides receive from an SRQ
  // For both sides; addresses, QPNs and PSNs are filled in.
  uint32_t path_mtu = 1024;
  uint8_t max_rd_atomic = 16;
  uint8_t timeout = 14;  // 67 ms
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint32_t access_flags = kAllAccess;
  uint32_t psn_a = 0x123456;  // first PSN that a sends
  uint32_t psn_b = 0xfffff0;
  LinkProfile link;
  NodeProfile node;
};

class Pair {
 public:
  class Side {
   public:
    // --- State.
    Node* node = nullptr;
    std::unique_ptr<uint8_t[]> buffer;
    Region region;
    SimCq send_cq;
    SimCq recv_cq;
    SimEvents events;
    std::unique_ptr<SimSrq> srq;
    std::unique_ptr<transport::QueuePair> qp;
    // The attributes that Connect uses; a test may change them before.
    transport::QpAttributes attributes;

    // --- Posting. Each call lets the node transmit, and returns the queue
    // pair's result. The remote side is the peer's region.
    int Post(const transport::SendRequest& request);
    int Send(uint64_t wr_id, uint64_t local, uint32_t length,
             uint32_t flags = transport::kSendSignaled);
    int Write(uint64_t wr_id, uint64_t local, uint64_t remote, uint32_t length,
              uint32_t flags = transport::kSendSignaled);
    int WriteWithImm(uint64_t wr_id, uint64_t local, uint64_t remote,
                     uint32_t length, uint32_t imm_be,
                     uint32_t flags = transport::kSendSignaled);
    int Read(uint64_t wr_id, uint64_t local, uint64_t remote, uint32_t length,
             uint32_t flags = transport::kSendSignaled);
    int FetchAdd(uint64_t wr_id, uint64_t local, uint64_t remote, uint64_t add,
                 uint32_t flags = transport::kSendSignaled);
    int CompareSwap(uint64_t wr_id, uint64_t local, uint64_t remote,
                    uint64_t compare, uint64_t swap,
                    uint32_t flags = transport::kSendSignaled);
    // Posts to the queue pair's receive queue, or to the SRQ.
    int Receive(uint64_t wr_id, uint64_t local, uint32_t length);
    int Modify(transport::QpState state);

    transport::Sge sge(uint64_t local, uint32_t length) const {
      return {region.va + local, length, region.lkey};
    }
    std::vector<transport::Completion> TakeSend() { return send_cq.TakeAll(); }
    std::vector<transport::Completion> TakeRecv() { return recv_cq.TakeAll(); }
    uint64_t Word(uint64_t local) const;  // 8 bytes of the buffer

   private:
    friend class Pair;
    Side* peer_ = nullptr;
    Network* network_ = nullptr;
    int PostOne(transport::SendOpcode opcode, uint64_t wr_id, uint64_t local,
                uint64_t remote, uint32_t length, uint32_t flags,
                uint32_t imm_be, uint64_t compare_add, uint64_t swap);
  };

  explicit Pair(const PairOptions& options = {});
  ~Pair();

  // Takes both sides through INIT and RTR to RTS.
  void Connect();
  void ToInit(Side& side);
  void ToRtr(Side& side);
  void ToRts(Side& side);

  // Runs until nothing is left to happen, at most a minute of virtual time.
  void Run();
  // Runs until `side` has `count` send completions.
  bool RunUntilSent(Side& side, size_t count,
                    Time limit = 60 * transport::kSecond);
  Time now() const { return net.now(); }

  Checker checker;
  Network net;
  Side a;
  Side b;

 private:
  void Create(Side& side, const PairOptions& options, uint32_t qpn);
  void Modify(Side& side, transport::QpState state);

  const transport::QpType type_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_PAIR_H_
