// Counting a queue pair's completions, beside its completion queues or without
// anybody polling those (manual pages ibv_create_comp_cntr(3) and
// ibv_qp_attach_comp_cntr(3) of rdma-core 64).
#ifndef TRANSPORT_QP_COMPLETION_COUNTER_H_
#define TRANSPORT_QP_COMPLETION_COUNTER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace transport {

// A count of what succeeded and one of what failed. They wrap to zero after the
// greatest value of 64 bits.
//
// Thread: any. Who reads a count sees what the completions in it have written.
class CompletionCounter {
 public:
  enum class Unit : uint8_t { kRequests, kBytes };  // of what succeeded

  explicit CompletionCounter(Unit unit) : unit_(unit) {}
  CompletionCounter(const CompletionCounter&) = delete;
  CompletionCounter& operator=(const CompletionCounter&) = delete;

  void OnSuccess(uint64_t bytes) {
    successes.fetch_add(unit_ == Unit::kBytes ? bytes : 1,
                        std::memory_order_release);
  }
  void OnError() { errors.fetch_add(1, std::memory_order_release); }

  // Programs set them and add to them as they like.
  std::atomic<uint64_t> successes{0};
  std::atomic<uint64_t> errors{0};

 private:
  const Unit unit_;
};

// What a counter can be told of. The remote ones are what peers do to memory
// here. Values: the bits of ibv_qp_attach_comp_cntr_op.
enum class CountedCompletion : uint8_t {
  kSend,
  kReceive,
  kRead,
  kRemoteRead,
  kWrite,
  kRemoteWrite,
};
inline constexpr size_t kCountedCompletions = 6;

// The counters of one queue pair: at most one for each kind.
using CompletionCounters =
    std::array<std::shared_ptr<CompletionCounter>, kCountedCompletions>;

}  // namespace transport

#endif  // TRANSPORT_QP_COMPLETION_COUNTER_H_
