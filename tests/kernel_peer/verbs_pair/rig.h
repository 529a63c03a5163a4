// The tools of the scenarios: a device, connected queue pairs, patterns in
// memory, and waits for completions and asynchronous events. They only use
// libibverbs, so one binary runs on any device.
//
// Every wait is for an event. Its time limit only turns a hang into a failure.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_RIG_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_RIG_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernel_peer/verbs_pair/wire_up.h"

namespace verbs_pair {

constexpr int kLimitMs = 20'000;

int64_t NowMs();

// Bytes that depend on their position and on `seed`.
void FillPattern(uint8_t* bytes, size_t size, uint32_t seed);
bool HoldsPattern(const uint8_t* bytes, size_t size, uint32_t seed);
// Throws Failure, naming the first byte that differs from the pattern.
void CheckPattern(const uint8_t* bytes, size_t size, uint32_t seed,
                  const char* what);
// Throws Failure unless all bytes are `value`.
void CheckBytes(const uint8_t* bytes, size_t size, uint8_t value,
                const char* what);

// The content of memory that must not change.
constexpr uint8_t kUntouched = 0xee;

// Throws Failure unless a receive completed like this. `flags`:
// IBV_WC_WITH_IMM, IBV_WC_WITH_INV.
void CheckReceived(const ibv_wc& wc, ibv_wc_opcode opcode, size_t length,
                   unsigned flags);

// One end of the connection between the two processes.
struct Rig {
  ibv_context* context = nullptr;
  int gid_index = 0;
  WireUp* wire_up = nullptr;
  // Whether this end sends the requests of a scenario.
  bool requester = false;
  // Whether this device, or the peer's, is the kernel's rxe.
  bool rxe = false;
  bool peer_rxe = false;
};

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Options {
  ibv_qp_type type = IBV_QPT_RC;  // or IBV_QPT_UC
  ibv_pd* pd = nullptr;           // null: its own; otherwise the caller's
  size_t memory = 64 * 1024;
  uint32_t depth = 64;       // of both queues
  uint32_t sges = 4;         // of a work request
  uint32_t inline_data = 0;  // bytes
  uint64_t send_ops = 0;     // not 0: for ibv_wr_*
  int mr_access = kAllAccess;
  unsigned qp_access = kAllAccess;
  bool channel = false;  // wait for completions with a channel
  bool srq = false;
  // The connection's attributes, as in ibv_modify_qp.
  uint32_t sq_psn = 0x123456;  // the same at both ends
  uint8_t timeout = 14;        // 67 ms
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint32_t flow_label = 0;
};

// A queue pair connected to the peer's, with one memory region and a completion
// queue. Both ends construct it alike; the constructor exchanges the
// parameters.
class Link {
 public:
  Link(const Rig& rig, const Options& options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  ibv_qp* qp() const { return qp_; }
  ibv_cq* cq() const { return cq_; }
  ibv_srq* srq() const { return srq_; }
  ibv_pd* pd() const { return pd_; }
  ibv_mr* mr() const { return mr_; }
  uint8_t* memory() { return memory_.get(); }
  size_t memory_size() const { return options_.memory; }
  // The peer's memory.
  uint64_t remote_address() const { return remote_.address; }
  uint32_t remote_key() const { return remote_.rkey; }

  // An SGE of memory().
  ibv_sge Piece(size_t offset, size_t length) const;

  // Signaled work requests. Throw Failure if the device refuses them.
  void Post(ibv_send_wr* wr);
  void PostRecv(uint64_t id, std::vector<ibv_sge> pieces);
  void Send(uint64_t id, std::vector<ibv_sge> pieces, unsigned flags = 0);
  // `opcode` is IBV_WR_RDMA_WRITE, _READ or _WRITE_WITH_IMM.
  void Rdma(ibv_wr_opcode opcode, uint64_t id, std::vector<ibv_sge> pieces,
            uint64_t remote_offset, uint32_t immediate = 0, unsigned flags = 0);
  // With an explicit address and key, for requests that must fail.
  void RdmaAt(ibv_wr_opcode opcode, uint64_t id, std::vector<ibv_sge> pieces,
              uint64_t address, uint32_t key);
  void Atomic(ibv_wr_opcode opcode, uint64_t id, size_t offset,
              uint64_t remote_address, uint32_t key, uint64_t compare_add,
              uint64_t swap);

  // Whether a completion arrives within `limit_ms`.
  bool Poll(ibv_wc* wc, int limit_ms);
  // The next completion.
  ibv_wc Next(int limit_ms = kLimitMs);
  // Expects this as the next completion.
  ibv_wc Expect(uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS);
  // Expects that no completion arrives within `ms`.
  void ExpectNone(int ms);

  void ExpectState(ibv_qp_state state);
  // Waits for an asynchronous event of `type` on the queue pair, ignoring
  // IBV_EVENT_COMM_EST.
  void ExpectEvent(ibv_event_type type);
  // Expects that no asynchronous event has arrived.
  void ExpectNoEvent();

  // Resets and reconnects with another initial PSN, at both ends.
  void Reconnect(uint32_t sq_psn);
  void DestroyQp();

 private:
  struct Address {
    uint64_t address;
    uint32_t rkey;
    uint32_t qpn;
    ibv_gid gid;
  };

  void CreateQp();
  void Connect();
  // The attributes in `mask` that this type of queue pair has.
  int Masked(int mask) const;
  bool NextEvent(ibv_async_event* event, int limit_ms);

  Rig rig_;
  Options options_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::unique_ptr<uint8_t[]> memory_;
  Address remote_ = {};
};

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_RIG_H_
