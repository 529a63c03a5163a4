// How a lane makes progress. docs/design/progress.md explains the whole;
// rxe_user/progress/ has the rules.
//
// Invariant: whenever the lane is unlocked, every pending task has a thread
// that will do it in time.
//
//   arrivals   are noticed by the thread that mode() names;
//   timers     and sends that the system refused are the helper's;
//   leftovers  are packets that could be sent but wait to share a system call:
//              posts until PostBatcher's deadline, an acknowledgement until the
//              application's next call or the helper's next check.
//
// `helper_wake_` is when the helper will wake. Unlock() compares it with
// Need(), and wakes the helper if it would be too late. Most deadlines are
// pushed back before they expire; the helper still wakes at the last one it was
// given, so Unlock() has to wake it only about once per retransmission timeout.
//
// While the application polls (Mode::kPolling) it runs timers and sends
// leftovers itself, and the helper checks at intervals that it still polls.
#ifndef RXE_USER_ENGINE_LANE_IMPL_H_
#define RXE_USER_ENGINE_LANE_IMPL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "rxe_user/broker/slot.h"
#include "rxe_user/engine/adaptive_lock.h"
#include "rxe_user/engine/lane.h"
#include "rxe_user/engine/lane_counters.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/progress/ack_piggyback.h"
#include "rxe_user/progress/adaptive_arming.h"
#include "rxe_user/progress/app_activity.h"
#include "rxe_user/progress/busy_poll.h"
#include "rxe_user/progress/check_interval.h"
#include "rxe_user/progress/futile_wakes.h"
#include "rxe_user/progress/mode.h"
#include "rxe_user/progress/post_batcher.h"
#include "rxe_user/progress/round_budget.h"
#include "rxe_user/progress/send_retry.h"
#include "rxe_user/progress/thread_activity.h"
#include "rxe_user/raw_packet/raw_port.h"

namespace rxe_user {

class LaneHelper {
 public:
  virtual ~LaneHelper() = default;
  // Makes the helper run soon. Any thread.
  virtual void Wake() = 0;
  // Adds a socket of the lane. False if it should be armed and the system
  // refuses that. Lane locked.
  virtual bool AddSocket(int fd, bool armed) = 0;
  // The socket is about to be closed. Lane locked.
  virtual void RemoveSocket(int fd) = 0;
  // on: from now on the sockets wake the helper, at once if there is something
  // to receive. Off: they do not. False if the system refuses for some of them.
  // Lane locked.
  virtual bool Arm(bool on) = 0;
  // The time that setting its timer takes. Any thread.
  virtual transport::Time timer_cost() const = 0;
};

class LaneImpl final : public Lane, private transport::StraySink {
 public:
  // What a poll found: something to receive, something to send, or a timer that
  // was due. The result for several lanes is the smallest of theirs.
  enum class PollResult {
    kSomething,
    kNothing,
    kNothingForLong,  // the thread should yield its core
  };
  // Lane::Now, or a test's clock.
  using Clock = transport::Time (*)();
  explicit LaneImpl(Clock clock = &Lane::Now);
  ~LaneImpl() override;

  // Gives the lane its sockets. `spin`: how long the helper may busy-poll by
  // the user's setting. `slot` and `helper` must live until Close or the
  // destructor.
  void Open(std::unique_ptr<Port> port, Slot* slot, LaneHelper* helper,
            transport::Time spin = 0);
  // `fd` has been added to port(). From now on the lane waits on it, too. Lane
  // not locked.
  void SocketAdded(int fd);
  // From now on frames are received and sent by `raw` as well, which must live
  // until Close. Lane not locked.
  void SetRawPort(RawPort* raw);
  // From now on the lane's helper does not wait on `fd`. Lane not locked.
  void SocketRemoved(int fd);
  // Undoes Open and closes the sockets. The helper thread must have ended, and
  // no thread may be waiting.
  void Close();

  transport::Endpoint& endpoint() override { return endpoint_; }
  Recorder& recorder() override { return recorder_; }
  void Posted(transport::Time now, const PostedWork& work) override;
  void Transmit(transport::Time now) override;
  void TransmitLast(transport::EndpointQp& qp, transport::Time now) override;
  void Receive(transport::Time now) override;

  // --- The application, through its completion queues; lane not locked.

  // If the lane is free: one non-blocking round of receive, timers and
  // transmit. Renews the lease that keeps the helper thread asleep.
  PollResult Progress();
  // Renews the lease without a round: the application is still consuming
  // completions of an earlier poll.
  void RenewLease();
  // The application stops polling (it requested an event, or blocks): the
  // helper thread takes over at once.
  void DropLease();

  // --- The helper thread; lane not locked.

  // Does what no other thread does. Returns the latest time of the next call.
  // `by_socket`: a socket has woken the thread.
  transport::Time RunHelper(bool by_socket = false);

  // --- A thread that blocks; lane not locked.

  // False if the lane is not open: the thread then does not serve it, and must
  // not call PollOnce or LeaveWait.
  bool EnterWait();
  // One round. True if another round should follow at once; else the thread may
  // sleep until a socket (port()->ReceiveDescriptors()) is readable.
  // `by_socket`: one of them has woken the thread.
  bool PollOnce(transport::Time now, bool by_socket = false);
  // Unless 0, threads must not wait on the sockets until this time, because
  // these woke them for nothing.
  transport::Time sockets_disarmed_until() const {
    return disarmed_until_.load(std::memory_order_relaxed);
  }
  void LeaveWait();

  // --- Other callers.

  // Processes a datagram that the broker forwarded. Lane not locked.
  void DeliverStray(const Stray& stray);
  // Call when the program ends by exit(), which also ends the helper. Transmits
  // what was left for the helper or for the application's next call. Waits a
  // few ms at most.
  void TransmitAtExit();
  // Runs `read` with the lane locked. False if that takes more than a few ms:
  // exit() may have interrupted a thread that holds the lock.
  bool ReadAtExit(const std::function<void()>& read);
  // Null before Open. Lane not locked.
  Port* port() const { return open_.load(std::memory_order_acquire); }
  // The descriptor of the raw port, or -1. Lane not locked.
  int FrameDescriptor() const;
  Mode mode() const { return mode_.mode(); }
  const LaneCounters& counters() const { return counters_; }
  // Whether a thread waits for the lane's lock. A hint.
  bool contended() const { return lock_.contended(); }

  // --- fork.

  // Locks the lane, or gives up after a limit. Afterwards the parent calls
  // UnlockAfterFork, the child AbandonInChild.
  bool LockForFork();
  void UnlockAfterFork() { lock_.Unlock(); }
  // Drops everything but the endpoint's state. All later calls do nothing.
  void AbandonInChild();

 private:
  // The result of a poll that found nothing.
  PollResult EmptyPollResult(transport::Time now) const;
  // Who makes a round. A poller may leave small packets for its next call; a
  // finisher sends them.
  enum class Caller { kPoller, kFinisher };
  // What a round of the helper did.
  struct HelperRound {
    bool had_leftovers = false;
    size_t received = 0;  // bytes
    size_t sent = 0;
    bool more_is_near = false;
    bool missed = false;  // arrivals had waited since the application stopped
                          // polling
    transport::Time hold_until = 0;  // leftovers wait until then
  };

  void Lock() override { lock_.Lock(); }
  void Unlock() override;

  transport::Time Now() const { return clock_(); }
  TimeScale MeasureScale();

  // Lane locked and open for the following.
  bool Round(transport::Time now, Caller caller);
  size_t ReceiveSome(transport::Time now, Caller caller);
  void ReceiveFrames(transport::Time now, bool patient, RoundBudget* budget);
  void OnStray(const transport::Datagram& datagram, uint32_t qpn) override;
  // Returns the bytes sent.
  size_t TransmitSome(transport::Time now);
  // If timers are due, receives and then runs them: what a timer waits for may
  // lie unread in a socket. Adds the bytes to `received`. Returns whether
  // timers were due.
  bool RunTimers(transport::Time now, size_t* received);
  // Whether there are packets that could be sent now.
  bool HasLeftovers() const;
  // Whether they may wait for the application's next call or the helper.
  bool MayLeave() const;
  // The latest time at which a thread must run.
  transport::Time Need() const;
  // Whether the helper must be woken. If so, records that it will be.
  bool MustWakeHelper();
  // Arms or disarms the sockets according to the mode.
  void ApplyMode();
  // A socket has woken the calling thread, which has received everything.
  void NoteWake(transport::Time now);
  void NoteArming(bool armed);

  // --- The helper thread (lane_helper.cc).
  static constexpr transport::Time kMemoryRetry = 10 * transport::kMillisecond;
  std::optional<transport::Time> CheckPolling();
  // Lane locked. May throw bad_alloc; packets received by then are lost.
  transport::Time RunHelperLocked(bool by_socket, bool* yield);
  bool ApplicationPolls(transport::Time now);
  HelperRound RunInPlace(transport::Time now);
  void LengthenInterval();
  bool UpdatePollingMode(transport::Time now, HelperRound* round);
  transport::Time ChangeMode(transport::Time now, bool polls,
                             const HelperRound& round);

  const Clock clock_;
  AdaptiveLock lock_;
  AppActivity app_;
  std::atomic<Port*> open_ = nullptr;        // port_.get() once open
  std::atomic<RawPort*> raw_ = nullptr;      // changed with the lane locked
  std::atomic<int> polls_without_lock_ = 0;  // in a row, for threads that wait

  // Guarded by lock_. Not on a cache line that polls write without it.
  alignas(64) transport::Endpoint endpoint_;
  std::unique_ptr<Port> port_;
  Slot* slot_ = nullptr;
  LaneHelper* helper_ = nullptr;
  ModeMachine mode_;
  AdaptiveArming arming_;
  PostBatcher batcher_;
  AckPiggyback acks_;
  BusyPoll busy_poll_;
  SendRetry retry_;
  bool armed_ = false;  // whether the sockets are
  // When to retry arming, which the system refused.
  transport::Time rearm_at_ = transport::kNever;
  FutileWakes futile_wakes_;
  // Until then sockets must not wake threads; 0: they may.
  std::atomic<transport::Time> disarmed_until_ = 0;
  // When the helper will wake. In kPolling, the helper writes this without the
  // lock.
  std::atomic<transport::Time> helper_wake_ = transport::kNever;
  // A waiting thread makes another round at once.
  bool waiter_runs_again_ = false;
  // The last Need() that Unlock() compared, unless it was kNever.
  transport::Time last_need_ = 0;
  // Until then the helper leaves an ACK to be piggybacked on the answer.
  transport::Time hold_ack_until_ = 0;
  bool left_ = false;         // the last polling round left its packets
  bool transmitted_ = false;  // since the lane was locked
  LaneCounters counters_;
  Recorder recorder_;

  // Used by the helper thread only.
  CheckInterval interval_;
  uint32_t polls_seen_ = 0;    // polls by the application before busy polling
  uint32_t batches_seen_ = 0;  // of the batcher
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_IMPL_H_
