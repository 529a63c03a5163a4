// Records what the device does for this process to a pcapng file
// (docs/trace-format.md): packets, work requests, completions, decisions of
// queue pairs, calls. Or counts it (tally.h), or both.
#ifndef RXE_USER_OBSERVE_TRACER_H_
#define RXE_USER_OBSERVE_TRACER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/buffered_file.h"
#include "rxe_user/observe/tally.h"
#include "rxe_user/observe/trace_blocks.h"
#include "rxe_user/observe/trace_cm.h"
#include "rxe_user/observe/trace_paths.h"
#include "rxe_user/observe/trace_queues.h"
#include "transport/endpoint/packet_observer.h"
#include "transport/qp/attributes.h"

namespace rxe_user {

// Thread: any, also with a lane's lock held; waits at most as BufferedFile. The
// other side of the price of a recording that is off: nothing here is called.
class Tracer final : public transport::PacketObserver {
 public:
  struct Options {
    bool payload = false;    // record whole packets
    Tally* tally = nullptr;  // counts; null: none. Outlives the tracer
    BufferedFile::Limits limits = {.flush_after =
                                       std::chrono::milliseconds(100)};
  };

  // Starts a recording in file `name` (OpenOutputFile); empty: it only counts.
  // Null on failure, after a line on stderr.
  static std::unique_ptr<Tracer> Begin(const std::string& name,
                                       const Options& options);
  ~Tracer() override;

  // --- The device. The lane's lock is held.

  void OnPacket(const transport::ObservedPacket& packet) override;
  uint64_t OnHeld(const transport::ObservedPacket& packet) override;
  void OnOverflow(uint64_t packets) override;
  bool WantsKernelTime() const override { return file_ != nullptr; }
  // `attributes`: of the queue pair; null: none.
  void OnRareEvent(const transport::RareEvent& event, transport::QpType type,
                   const transport::QpAttributes* attributes);
  void OnAsyncEvent(uint32_t qpn, int event);
  void OnCompletion(const transport::Completion& completion,
                    const trace::QueueName& queue, uint64_t cq);

  // --- The program.

  // Surrounds a call that posts. While it exists, no other thread posts to that
  // queue in between.
  class Posting {
   public:
    Posting(Tracer& tracer, const trace::QueueName& queue, uint32_t qpn,
            std::vector<trace::Post> posts);
    // The first `accepted` requests are in the queue; the next one was refused
    // with `error`, unless that is 0.
    void End(size_t accepted, int error);

   private:
    Tracer& tracer_;
    const trace::QueueName queue_;
    const uint32_t qpn_;
    std::vector<trace::Post> posts_;
    std::unique_lock<std::mutex> order_;
    int64_t time_ = 0;
  };
  void OnPolled(uint64_t cq, uint32_t qpn, uint64_t wr_id);
  void OnEmptyPoll(uint64_t cq);
  void OnArmed(uint64_t cq, bool solicited_only, uint32_t unpolled);
  // Something other than a packet that a fault rule has hit.
  struct FaultHit {
    bool received = false;
    uint32_t number = 0;        // of the transfer, call or CM message
    uint8_t attribute = 0;      // of the CM message
    transport::Time delay = 0;  // drawn by a rule `delay`
  };
  // A fault rule has hit a completion, which OnCompletion reports later, or a
  // transfer of the queue pair. With queue pair 1: a CM message. With queue
  // pair 0: a call, or a time.
  void OnFault(const transport::faults::Rule& rule, uint32_t qpn,
               const FaultHit& hit);
  // Counts a hit of a fault rule. OnCall reports a call that failed.
  void CountFault(uint32_t rule);
  // Records a fault rule at the end of the program.
  void OnFaultRule(const FaultRuleStatus& rule);
  // A call that began at `begin` (Now()) has returned.
  void OnCall(std::string_view function, std::string_view arguments,
              int64_t begin, int64_t result, int error);

  // A shared receive queue, or a completion queue, is destroyed.
  void OnDestroyed(const trace::QueueName& queue);
  void OnCqDestroyed(uint64_t cq);

  // ns since 1970.
  static int64_t Now();

  // As BufferedFile's.
  bool IsInterrupted(std::chrono::milliseconds patience) {
    return file_ != nullptr && file_->IsInterrupted(patience);
  }
  // Also writes to the file how many events and packets are missing.
  void Flush(std::chrono::milliseconds patience);

  // --- fork. The child records nothing more here, and must not destroy this.
  void LockForFork();
  void UnlockInParent();
  void AbandonInChild();

 private:
  static constexpr size_t kOrders = 16;

  Tracer(std::unique_ptr<BufferedFile> file, const Options& options);

  // Whether nothing is recorded: there is no file, or it cannot be written.
  bool no_file() const { return file_ == nullptr || file_->failed(); }

  trace::EventHeader Header(uint64_t id, uint64_t cause, uint32_t qpn,
                            int64_t time);
  template <typename Event>
  void Write(const Event& event);
  // With the time and the thread of now.
  template <typename Event>
  void WriteNow(Event event, int64_t now);
  // Writes how many records were dropped, in front of the next one.
  void WriteMissed(std::vector<uint8_t>* out);

  // --- Counting. mutex_ is held, and tally_ is not null.
  // `post`: the request, if it is known.
  void CountCompletion(const transport::Completion& completion,
                       const trace::QueueName& queue,
                       const std::optional<trace::Post>& post);
  void CountRepeated(uint32_t qpn, uint32_t psn);
  void CountDecision(const transport::RareEvent& event);
  // The known properties of the request with this PSN.
  TallyItem ItemOf(uint32_t qpn, uint32_t psn) const;

  const std::unique_ptr<BufferedFile> file_;  // may be null
  const bool payload_;
  Tally* tally_;  // may be null; what it counts is guarded by mutex_
  std::atomic<uint64_t> missed_events_ = 0;
  std::atomic<uint64_t> missed_packets_ = 0;

  // Held by the threads that post to a queue, by its number; taken before a
  // lane's lock.
  std::mutex orders_[kOrders];
  std::mutex mutex_;  // guards queues_, but NextId; nothing is called under it
  trace::TraceQueues queues_;
  trace::TraceCm cm_;        // under mutex_
  trace::TracePaths paths_;  // under mutex_
};

// A completion queue in front of the real one.
class TracedCompletions final : public transport::CompletionSink {
 public:
  TracedCompletions(Tracer& tracer, transport::CompletionSink& sink,
                    const trace::QueueName& queue)
      : tracer_(tracer), sink_(sink), queue_(queue), cq_(sink.Report().id) {}

  bool Push(const transport::Completion& completion) override {
    tracer_.OnCompletion(completion, queue_, cq_);
    return sink_.Push(completion);
  }
  transport::CqReport Report() override { return sink_.Report(); }

 private:
  Tracer& tracer_;
  transport::CompletionSink& sink_;
  const trace::QueueName queue_;
  const uint64_t cq_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_TRACER_H_
