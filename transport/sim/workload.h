// The work of a simulated run's applications, and its expected result.
//
// All work requests are planned before the run. Every message has its own
// target, or overwrites one where the ordering rules of RC (IBA vol. 1,
// 10.8.3.3) determine the result. So the final content of all memory is known:
// each host keeps an `expected` image beside the real one.
#ifndef TRANSPORT_SIM_WORKLOAD_H_
#define TRANSPORT_SIM_WORKLOAD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/network.h"
#include "transport/sim/operations.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"
#include "transport/sim/scenario.h"

namespace sim {

// A host's memory: the actual and the expected content. Guard bytes surround
// each allocation.
class Arena {
 public:
  explicit Arena(size_t capacity);

  // Allocates `bytes` of random content and returns their offset: a multiple of
  // 8, plus `skew`.
  size_t Allocate(Random& random, size_t bytes, size_t skew = 0);
  uint8_t* actual(size_t offset = 0) { return actual_.get() + offset; }
  uint8_t* expected(size_t offset = 0) { return expected_.get() + offset; }
  size_t used() const { return used_; }
  size_t capacity() const { return capacity_; }
  // Makes the actual content the expected one.
  void Accept(size_t offset, size_t bytes);
  // Offset of the first difference, or used().
  size_t FirstDifference() const;

 private:
  size_t capacity_;
  size_t used_ = 0;
  std::unique_ptr<uint8_t[]> actual_;
  std::unique_ptr<uint8_t[]> expected_;
};

// A piece of an arena.
struct Piece {
  size_t offset = 0;
  size_t length = 0;
};

// A send work request and its expected effect.
struct Op {
  uint64_t wr_id = 0;
  transport::SendOpcode opcode = transport::SendOpcode::kSend;
  uint32_t flags = 0;
  std::vector<transport::Sge> sges;
  uint32_t imm_be = 0;
  uint32_t invalidate_rkey = 0;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;  // as in SendRequest
  uint64_t swap = 0;

  uint32_t length = 0;
  std::vector<Piece> local;      // in the arena of the sender
  Piece remote;                  // in the arena of the peer
  std::vector<uint8_t> content;  // transferred bytes (not for atomics)
  bool settled = true;           // nothing later changes the target
  bool scribble = false;  // the source may be overwritten after completion
  int word = -1;          // atomics: index of the host's word
  uint64_t original = 0;  // atomics: the returned value
  int message = -1;       // index among messages that take a receive
  bool done = false;

  bool takes_receive() const { return TakesReceive(opcode); }
  bool is_send() const { return IsSend(opcode); }
  bool is_atomic() const { return IsAtomic(opcode); }
  bool has_imm() const { return HasImm(opcode); }
};

// Set in the wr_id of receives, clear in that of sends.
inline constexpr uint64_t kReceiveWrId = uint64_t{1} << 63;

// An error leaves the opcode undefined, so the wr_id tells.
inline bool IsReceive(const transport::Completion& wc) {
  return (wc.wr_id & kReceiveWrId) != 0;
}

// One receive.
struct Receive {
  uint64_t wr_id = 0;
  std::vector<transport::Sge> sges;
  std::vector<Piece> pieces;
};

// An SRQ for the queue pairs of one host and domain.
struct SharedReceives {
  explicit SharedReceives(transport::PdId pd) : srq(pd) {}
  SimSrq srq;
  std::vector<Receive> receives;
  size_t posted = 0;
  std::vector<bool> used;
  int recv_batch = 1;
  Time recv_pause = 0;
  Time next_post = 0;
  // Used while planning.
  uint32_t longest = 0;
  size_t messages = 0;
};

// Target of atomics of several queue pairs.
struct AtomicWord {
  bool compare_swap = false;  // otherwise fetch-add: never both
  size_t offset = 0;
  uint64_t initial = 0;
  bool uncertain = false;  // a connection that used it broke
};

struct Host;

// One end of a connection.
struct End {
  const EndScenario* scenario = nullptr;
  const ConnectionScenario* connection = nullptr;
  Host* host = nullptr;
  End* peer = nullptr;
  std::unique_ptr<transport::QueuePair> qp;
  uint32_t qpn = 0;
  SharedReceives* shared = nullptr;

  std::vector<Op> ops;
  std::vector<int> messages;      // indices into `ops` that take a receive
  std::vector<Receive> receives;  // empty with an SRQ

  // Progress.
  size_t posted = 0;
  size_t completed = 0;  // ops up to the last completion
  size_t receives_posted = 0;
  size_t receives_completed = 0;  // messages of the peer that were polled
  uint64_t receives_pushed = 0;   // the same, before the poll
  Time next_send = 0;
  Time next_receive = 0;
  int drains = 0;  // SQD events received

  // Chaos.
  bool broken = false;       // it or its peer broke: anything may fail
  bool gone = false;         // reset or destroyed: no more completions
  bool failed_send = false;  // a send completed with an error
  bool failed_receive = false;

  bool sends_done() const { return completed == ops.size(); }
};

struct Host {
  explicit Host(size_t arena_bytes) : arena(arena_bytes) {}
  const HostScenario* scenario = nullptr;
  Node* node = nullptr;
  Arena arena;
  std::map<transport::PdId, Region> pools;  // the whole arena, by domain
  std::vector<std::unique_ptr<SimCq>> cqs;
  SimEvents events;
  std::map<transport::PdId, std::unique_ptr<SharedReceives>> shared;
  std::vector<AtomicWord> words;
  std::vector<End*> ends;
  std::map<uint32_t, End*> by_qpn;
  Time next_app_run = transport::kNever;
};

// Plans all work requests of `ends` into `ops`, `messages` and `receives`, and
// computes the expected images. Receives are applied at completion, since an
// SRQ decides where messages go.
void PlanWorkload(Random& random, const Scenario& scenario,
                  const std::vector<std::unique_ptr<Host>>& hosts,
                  const std::vector<std::unique_ptr<End>>& ends);

// Whether the results of all atomics on `word` are consistent with executing
// each exactly once, in an order that preserves every queue pair's own. Returns
// the violation, or an empty string.
std::string CheckAtomicWord(Host& host, int word,
                            const std::vector<std::unique_ptr<End>>& ends);

}  // namespace sim

#endif  // TRANSPORT_SIM_WORKLOAD_H_
