// How a lane makes progress. docs/design/progress.md has the whole picture; the
// rules by which it decides are in rxe_user/progress/.
//
// The promise: whenever the lane is unlocked, for everything that will have to
// be done there is a thread that will come to do it, in time.
//
//   arrivals   are noticed by whom mode() names;
//   timers     and sends that the system did not take are the helper's;
//   leftovers  are packets that could be sent but were left to share a system
//              call with what follows: posts for PostBatcher's deadline, an
//              acknowledgement until the application's next call or the
//              helper's next check.
//
// `helper_wake_` is when the helper comes by itself. Unlock() compares it with
// Need(), and wakes the helper if that is too late. Deadlines mostly move away
// before they come, and the helper comes for the last that was known all the
// same, so this is seldom: some once per retransmission timeout.
//
// While the application polls (Mode::kPolling) it sees to timers and leftovers
// itself, and the helper checks now and then that it does.
#ifndef RXE_USER_ENGINE_LANE_IMPL_H_
#define RXE_USER_ENGINE_LANE_IMPL_H_

#include <atomic>
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

// What a lane needs of its helper thread.
class LaneHelper {
 public:
  virtual ~LaneHelper() = default;
  // The helper is to run, soon. Any thread.
  virtual void Wake() = 0;
  // The lane has one more socket. False if it should be armed, and the system
  // refuses that. Lane locked.
  virtual bool AddSocket(int fd, bool armed) = 0;
  // It is about to be closed. Lane locked.
  virtual void RemoveSocket(int fd) = 0;
  // From now on the sockets wake the helper (at once, if there is something to
  // receive), or do not. False if the system refuses: then some of them do not.
  // Lane locked.
  virtual bool Arm(bool on) = 0;
  // What setting its timer takes. Any thread.
  virtual transport::Time timer_cost() const = 0;
};

class LaneImpl final : public Lane, private transport::StraySink {
 public:
  // What a poll has found to receive, to send or timed out; the most first.
  enum class Found {
    kSomething,
    kNothing,
    kNothingForLong,  // it should leave its core to others
  };
  // Lane::Now, or a test's.
  using Clock = transport::Time (*)();
  explicit LaneImpl(Clock clock = &Lane::Now);
  ~LaneImpl() override;

  // Gives the lane its sockets. `spin` is what the user lets the helper
  // busy-poll. The borrowed things outlive it, or the Close that follows.
  void Open(std::unique_ptr<Port> port, Slot* slot, LaneHelper* helper,
            transport::Time spin = 0);
  // `fd` has been added to port() and is to be waited on. Not locked.
  void SocketAdded(int fd);
  // Frames come and go by `raw` as well, which outlives the lane's time open.
  // Not locked.
  void SetRawPort(RawPort* raw);
  // `fd` is not to be waited on any more. Not locked.
  void SocketRemoved(int fd);
  // Gives up what Open gave, and closes the sockets. The helper thread has
  // ended; nobody waits.
  void Close();

  transport::Endpoint& endpoint() override { return endpoint_; }
  void Posted(transport::Time now, const PostedWork& work) override;
  void Transmit(transport::Time now) override;
  void Receive(transport::Time now) override;

  // --- The application, by its completion queues; lane not locked.

  // One non-blocking round of receive, timers and transmit if the lane is free;
  // renews the lease that keeps the helper thread out of the way.
  Found Progress();
  // Renews the lease without a round: the application is at what it was brought
  // before.
  void RenewLease();
  // The application stops polling (it asked for an event, or blocks): the
  // helper thread takes over at once.
  void DropLease();

  // --- The helper thread; lane not locked.

  // Does what nobody else does. Returns when it must come again at the latest.
  // `by_socket`: a socket has woken the thread.
  transport::Time RunHelper(bool by_socket = false);

  // --- A thread that blocks; lane not locked.

  // False when the lane is not open yet: then the thread does not serve it, and
  // neither calls the next two.
  bool EnterWait();
  // One round. True when another one should follow at once; else the thread may
  // sleep until something comes on the sockets (port()->ReceiveDescriptors()).
  // `by_socket`: one of them has woken the thread.
  bool PollOnce(transport::Time now, bool by_socket = false);
  // Until then, unless it is 0, sockets must not wake a thread: they have done
  // so for nothing.
  transport::Time sockets_rest_until() const {
    return rest_until_.load(std::memory_order_relaxed);
  }
  void LeaveWait();

  // --- Others.

  // A datagram that came by way of the broker. Lane not locked.
  void DeliverStray(const Stray& stray);
  // The program ends by exit(), and the helper with it: transmits what was left
  // to the application's next call or to the helper. Waits some ms at most.
  void TransmitAtExit();
  // Null before Open. Lane not locked.
  Port* port() const { return open_.load(std::memory_order_acquire); }
  // The descriptor of its frames, or -1. Lane not locked.
  int FrameDescriptor() const;
  Mode mode() const { return mode_.mode(); }
  const LaneCounters& counters() const { return counters_; }
  // Whether a thread waits for the lane's lock: a hint.
  bool contended() const { return lock_.contended(); }

  // --- fork.

  // Locks the lane unless that takes too long. Parent and child unlock it
  // again, each in its way.
  bool LockForFork();
  void UnlockAfterFork() { lock_.Unlock(); }
  // Everything but the endpoint's own state is given up; all calls do nothing
  // from then on.
  void AbandonInChild();

 private:
  // The calling thread has found nothing; for long?
  Found NothingFor(transport::Time now) const;
  // Who makes a round: the application by polling may leave small things for
  // its next call; others finish.
  enum class Caller { kPoller, kFinisher };
  // What the helper has done, and found to do.
  struct HelperRound {
    bool found_left = false;  // something had been left
    size_t received = 0;      // bytes
    size_t sent = 0;
    bool more_is_near = false;
    bool missed = false;  // that had lain since the application stopped polling
    transport::Time hold_until = 0;  // what is left is left until then
  };

  void Lock() override { lock_.Lock(); }
  void Unlock() override;

  transport::Time Now() const { return clock_(); }
  TimeScale MeasureScale();

  // The following: lane locked and open.
  bool Round(transport::Time now, Caller caller);
  size_t ReceiveSome(transport::Time now, Caller caller);
  void ReceiveFrames(transport::Time now, bool patient, RoundBudget* budget);
  void OnStray(const transport::Datagram& datagram, uint32_t qpn) override;
  // Returns bytes.
  size_t TransmitSome(transport::Time now);
  bool RunTimers(transport::Time now);
  // There are packets that could be sent now.
  bool HasLeftovers() const;
  // They may be left to the next call of the application, or the helper.
  bool MayLeave() const;
  // When somebody must come at the latest.
  transport::Time Need() const;
  // Whether the helper must be woken, which is then noted as done.
  bool MustWakeHelper();
  // Arms the sockets or disarms them, as the mode says.
  void ApplyMode();
  // A socket has woken the calling thread, which has received what there was.
  void NoteWake(transport::Time now);
  void NoteArming(bool armed);

  // --- The helper thread (lane_helper.cc).
  static constexpr transport::Time kMemoryRetry = 10 * transport::kMillisecond;
  std::optional<transport::Time> CheckPolling();
  // Lane locked. May throw bad_alloc; what was received then is lost.
  transport::Time RunHelperLocked(bool by_socket, bool* yield);
  bool ApplicationPolls(transport::Time now);
  HelperRound RunInPlace(transport::Time now);
  void LengthenInterval();
  bool JudgePolling(transport::Time now, HelperRound* round);
  transport::Time ChangeMode(transport::Time now, bool polls,
                             const HelperRound& round);

  const Clock clock_;
  AdaptiveLock lock_;
  AppActivity app_;
  std::atomic<Port*> open_ = nullptr;        // port_.get() once open
  std::atomic<RawPort*> raw_ = nullptr;      // changed with the lane locked
  std::atomic<int> polls_without_lock_ = 0;  // in a row, left to who waits

  // Guarded by lock_, and not on a cache line that polls write without it:
  alignas(64) transport::Endpoint endpoint_;
  std::unique_ptr<Port> port_;
  Slot* slot_ = nullptr;
  LaneHelper* helper_ = nullptr;
  uint8_t slot_number_ = 0;
  ModeMachine mode_;
  AdaptiveArming arming_;
  PostBatcher batcher_;
  AckPiggyback acks_;
  BusyPoll busy_poll_;
  SendRetry retry_;
  bool armed_ = false;  // the sockets are
  // When arming is tried again, since the system refused it.
  transport::Time rearm_at_ = transport::kNever;
  FutileWakes futile_wakes_;
  // When sockets may wake threads again; 0: they do.
  std::atomic<transport::Time> rest_until_ = 0;
  // When the helper comes. It also writes this without the lock, in kPolling.
  std::atomic<transport::Time> helper_wake_ = transport::kNever;
  bool waiter_comes_ = false;  // a thread that waits goes round again at once
  // What Need() was last, other than kNever, when Unlock() compared.
  transport::Time last_need_ = 0;
  // Until then the helper leaves an acknowledgement to the answer.
  transport::Time hold_ack_until_ = 0;
  bool left_ = false;         // the last round of polling left its packets
  bool transmitted_ = false;  // since the lane was locked
  LaneCounters counters_;

  // The helper's own.
  CheckInterval interval_;
  uint32_t polls_seen_ = 0;    // the application's, before it busy-polled
  uint32_t batches_seen_ = 0;  // the batcher's
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_IMPL_H_
