// Counts a queue pair's completions, independently of completion queues and
// polling (manual pages ibv_create_comp_cntr(3) and ibv_qp_attach_comp_cntr(3)
// of rdma-core 64).
#ifndef TRANSPORT_QP_COMPLETION_COUNTER_H_
#define TRANSPORT_QP_COMPLETION_COUNTER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace transport {

// Counts successes and errors, 64 bits each, wrapping.
//
// Thread: any. A thread that reads a count also sees the data written by the
// completions in it.
class CompletionCounter {
 public:
  enum class Unit : uint8_t { kRequests, kBytes };  // what `successes` counts

  explicit CompletionCounter(Unit unit) : unit_(unit) {}
  CompletionCounter(const CompletionCounter&) = delete;
  CompletionCounter& operator=(const CompletionCounter&) = delete;

  void OnSuccess(uint64_t bytes) {
    successes.fetch_add(unit_ == Unit::kBytes ? bytes : 1,
                        std::memory_order_release);
  }
  void OnError() { errors.fetch_add(1, std::memory_order_release); }

  // Programs may set them and add to them at any time.
  std::atomic<uint64_t> successes{0};
  std::atomic<uint64_t> errors{0};

 private:
  const Unit unit_;
};

// Kinds of completions for a counter. The remote ones are operations of peers
// on local memory. Values: the bits of ibv_qp_attach_comp_cntr_op.
enum class CountedCompletion : uint8_t {
  kSend,
  kReceive,
  kRead,
  kRemoteRead,
  kWrite,
  kRemoteWrite,
};
inline constexpr size_t kCountedCompletions = 6;

// The counters of one queue pair, at most one per kind.
using CompletionCounters =
    std::array<std::shared_ptr<CompletionCounter>, kCountedCompletions>;

}  // namespace transport

#endif  // TRANSPORT_QP_COMPLETION_COUNTER_H_
