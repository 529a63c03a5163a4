// What the scenarios are made with: a device, connected queue pairs, patterns
// in memory, and waits for completions and asynchronous events. Only libibverbs
// is used, so that one binary runs on any device.
//
// Every wait is for an event and has a limit, which only makes a hang into a
// failure.
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

// Bytes that depend on their place and on `seed`.
void FillPattern(uint8_t* bytes, size_t size, uint32_t seed);
bool HoldsPattern(const uint8_t* bytes, size_t size, uint32_t seed);
// Throws Failure naming the first byte that is not the pattern's.
void CheckPattern(const uint8_t* bytes, size_t size, uint32_t seed,
                  const char* what);
// Throws Failure unless all bytes are `value`.
void CheckBytes(const uint8_t* bytes, size_t size, uint8_t value,
                const char* what);

// What memory is filled with where nothing may arrive.
constexpr uint8_t kUntouched = 0xee;

// Throws Failure unless a receive completed with this; `flags` are of
// IBV_WC_WITH_IMM and IBV_WC_WITH_INV.
void CheckReceived(const ibv_wc& wc, ibv_wc_opcode opcode, size_t length,
                   unsigned flags);

// One end of the connection between the two processes.
struct Rig {
  ibv_context* context = nullptr;
  int gid_index = 0;
  WireUp* wire_up = nullptr;
  // Whether this end makes the requests that a scenario is about.
  bool requester = false;
  // Whether the device here, or the peer's, is the kernel's rxe.
  bool rxe = false;
  bool peer_rxe = false;
};

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Options {
  ibv_qp_type type = IBV_QPT_RC;  // or IBV_QPT_UC
  ibv_pd* pd = nullptr;           // not nullptr: another's, who keeps it
  size_t memory = 64 * 1024;
  uint32_t depth = 64;       // of both queues
  uint32_t sges = 4;         // of a work request
  uint32_t inline_data = 0;  // bytes
  uint64_t send_ops = 0;     // not 0: for ibv_wr_*
  int mr_access = kAllAccess;
  unsigned qp_access = kAllAccess;
  bool channel = false;  // completions by way of a channel
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
// queue. Both ends make it alike; the constructor exchanges what is needed.
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
  // Of the peer's memory.
  uint64_t remote_address() const { return remote_.address; }
  uint32_t remote_key() const { return remote_.rkey; }

  // A piece of memory().
  ibv_sge Piece(size_t offset, size_t length) const;

  // Work requests, signalled. Throw Failure if the device refuses them.
  void Post(ibv_send_wr* wr);
  void PostRecv(uint64_t id, std::vector<ibv_sge> pieces);
  void Send(uint64_t id, std::vector<ibv_sge> pieces, unsigned flags = 0);
  // `opcode` is IBV_WR_RDMA_WRITE, _READ or _WRITE_WITH_IMM.
  void Rdma(ibv_wr_opcode opcode, uint64_t id, std::vector<ibv_sge> pieces,
            uint64_t remote_offset, uint32_t immediate = 0, unsigned flags = 0);
  // With the key and address given, for what must fail.
  void RdmaAt(ibv_wr_opcode opcode, uint64_t id, std::vector<ibv_sge> pieces,
              uint64_t address, uint32_t key);
  void Atomic(ibv_wr_opcode opcode, uint64_t id, size_t offset,
              uint64_t remote_address, uint32_t key, uint64_t compare_add,
              uint64_t swap);

  // Whether a completion comes within `limit_ms`.
  bool Poll(ibv_wc* wc, int limit_ms);
  // The next completion, whatever it is.
  ibv_wc Next(int limit_ms = kLimitMs);
  // The next completion, which must be this one.
  ibv_wc Expect(uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS);
  // No completion comes within `ms`.
  void ExpectNone(int ms);

  void ExpectState(ibv_qp_state state);
  // Waits for asynchronous events of the queue pair (IBV_EVENT_COMM_EST is
  // passed over) until one is `type`.
  void ExpectEvent(ibv_event_type type);
  // No asynchronous event has come.
  void ExpectNoEvent();

  // To RESET and connected anew, with another initial PSN; both ends.
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
  // The attributes of `mask` that queue pairs of this type have.
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
