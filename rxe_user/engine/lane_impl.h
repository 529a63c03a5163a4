// How a lane makes progress, and who sees to it when nobody polls.
//
// The promise that everything here keeps: whenever the lane is unlocked, for
// everything that will have to be done there is a thread that will come to do
// it, in time. Three kinds of things can have to be done:
//
//   arrivals   are noticed by the helper thread if the lane is *armed* (its
//              sockets wake the helper) or it *lingers*, looking by itself
//              (while bulk flows, or as long as the user lets it), by a thread
//              that blocks in Engine::WaitReadable, or by the application's own
//              polling;
//   timers     and sends that the system did not take wait for a time, the
//              helper's;
//   leftovers  are packets that could be sent but were left, because more will
//              follow soon and they can share a system call.
//
// The helper has told when it will come by itself (`helper_wake_`). Unlock()
// compares this with what there is to do, and wakes the helper if it is too
// late, unless a thread in WaitReadable is about to go round again. Deadlines
// mostly move away before they come, and the helper comes for the last that was
// known nevertheless, so this is seldom: some once per retransmission timeout.
//
// While the application polls, waking the helper for each arrival would cost
// more than the arrival. A helper that is woken and sees that the application
// polls *goes on watch*: it disarms the lane and comes back by itself after
// `trust_`, which doubles (20 us up to 2.5 ms, longer where polls take longer)
// as long as the application polls. Only while the helper is on watch, or
// called to it, are leftovers left, and by the helper itself, for `kAnswerGap`,
// where an answer of the application is expected to take them along. So an
// application that stops polling without a word is noticed after `trust_`
// (twice, if the helper comes late: it may itself have kept the application's
// core, and judges by when it was due), and one that says so
// (ibv_req_notify_cq, blocking) at once. One that has been noticed several
// times, such as one that polls for its own completion and then waits for its
// memory to change, is served *attentively* from then on: a poll that brings
// something arms the lane, polls that bring nothing disarm it (a system call
// each, against a needless wake-up), and nothing is left but an acknowledgement
// that an answer is expected to take along, for `trust_` at most. That ends
// when it has come back to poll or post again and again before it was needed: a
// thread that lost its core for a while was taken for one that stopped.
#ifndef RXE_USER_ENGINE_LANE_IMPL_H_
#define RXE_USER_ENGINE_LANE_IMPL_H_

#include <atomic>
#include <memory>

#include "rxe_user/broker/slot.h"
#include "rxe_user/engine/adaptive_lock.h"
#include "rxe_user/engine/lane.h"
#include "rxe_user/ports/port.h"

namespace rxe_user {

// What a lane needs of the helper thread.
class LaneHelper {
 public:
  virtual ~LaneHelper() = default;
  // The helper is to take its turn at every lane, soon. Any thread.
  virtual void Wake() = 0;
  // Lane `index` has one more socket. False if it should be armed, and the
  // system refuses that. Lane locked.
  virtual bool AddSocket(int index, int fd, bool armed) = 0;
  // From now on the sockets of lane `index` wake the helper (at once, if there
  // is something to receive), or do not. False if the system refuses: then some
  // of them do not. Lane locked.
  virtual bool Arm(int index, bool on) = 0;
};

// For tests and `rxe-user stat`. Guarded by the lane's lock.
struct LaneCounters {
  uint64_t rounds = 0;
  uint64_t helper_wakes = 0;      // times that unlocking had to wake the helper
  uint64_t watches = 0;           // times that the helper went on watch
  uint64_t neglects = 0;          // times that it found work left lying
  uint64_t strays_forwarded = 0;  // datagrams of other slots
  uint64_t posts_gathered = 0;    // posts that were left to share a send
  uint64_t yields = 0;  // polls and looks that left their core to others
};

class LaneImpl final : public Lane, private transport::StraySink {
 public:
  // Lane::Now, or a test's.
  using Clock = transport::Time (*)();
  explicit LaneImpl(Clock clock = &Lane::Now);
  ~LaneImpl() override;

  // Gives the lane its sockets. `index` is its number at `helper`, which looks
  // for more for `spin` after it has taken something in, unless the application
  // polls or a thread waits. The borrowed things outlive it, or the Close that
  // follows.
  void Open(std::unique_ptr<Port> port, Slot* slot, LaneHelper* helper,
            int index, transport::Time spin = 0);
  // `fd` has been added to port() and is to be waited on. Not locked.
  void SocketAdded(int fd);
  // Gives up what Open gave, and closes the sockets. The helper thread has
  // ended; nobody waits.
  void Close();

  transport::Endpoint& endpoint() override { return endpoint_; }
  void Posted(transport::Time now, const PostedWork& work) override;
  void Transmit(transport::Time now) override;
  bool Progress() override;
  void SignOfLife() override;
  void DropLease() override;

  // --- The helper thread; lane not locked.

  // Its turn. Returns when it must come again at the latest.
  transport::Time HelperTurn();

  // --- A thread that blocks; lane not locked.

  // False when the lane is not open yet: then the thread does not serve it, and
  // neither calls the next two.
  bool EnterWait();
  // One round. True when another one should follow at once; else the thread may
  // sleep until something comes on the sockets (port()->ReceiveDescriptors()).
  bool WaitTurn(transport::Time now);
  void LeaveWait();

  // --- Others.

  // A datagram that came by way of the broker. Lane not locked.
  void DeliverStray(const Stray& stray);
  // Null before Open. Lane not locked.
  Port* port() const { return open_.load(std::memory_order_acquire); }
  const LaneCounters& counters() const { return counters_; }

  // --- fork.

  // Locks the lane unless that takes too long. Parent and child unlock it
  // again, each in its way.
  bool LockForFork();
  void UnlockAfterFork() { lock_.Unlock(); }
  // Everything but the endpoint's own state is given up; all calls do nothing
  // from then on.
  void AbandonInChild();

 private:
  // Who makes a round: the application by polling may leave small things for
  // its next call; others finish.
  enum class Caller { kPoller, kFinisher };

  void Lock() override { lock_.Lock(); }
  void Unlock() override;

  transport::Time Now() const { return clock_(); }

  // `gap` lay between two polls, the first of which found nothing.
  void KeepPace(transport::Time gap);
  // `time`, which suits a processor of today, for this one.
  transport::Time Paced(transport::Time time) const;

  // The following: lane locked and open.
  bool Round(transport::Time now, Caller caller);
  size_t ReceiveSome(transport::Time now, Caller caller);
  void OnStray(const transport::Datagram& datagram, uint32_t qpn) override;
  // Returns bytes.
  size_t TransmitSome(transport::Time now);
  // There are packets that could be sent now.
  bool HasLeftovers() const;
  // When somebody must come at the latest.
  transport::Time Need() const;
  // Posts may be left to the next poll.
  bool MayGather() const { return OnWatch() && !attentive_; }
  // Leftovers may be left to the next poll, or the post that is expected.
  bool MayLeave() const { return OnWatch() && (!attentive_ || left_); }
  bool LockForTurn();
  void TrustLonger();
  bool WillBeAnswered(transport::Time now);
  bool MoreIsNear(transport::Time poll_age, size_t received, size_t sent);
  void OnNeglect();
  void PayAttention(bool received);
  // How often the application has polled or posted.
  uint32_t Calls() const {
    return polls_.load(std::memory_order_relaxed) + posts_;
  }
  void AwaitArming(bool armed);
  bool OnWatch() const { return watching_.load(std::memory_order_relaxed); }
  void Arm(bool on);

  const Clock clock_;
  AdaptiveLock lock_;
  std::atomic<Port*> open_ = nullptr;  // port_.get() once open
  // When the application polled last. Written without the lock.
  std::atomic<transport::Time> last_poll_;
  std::atomic<uint32_t> polls_ = 0;  // how often it has polled
  // When a poll last found something to do.
  std::atomic<transport::Time> last_fruit_;
  // How long polls that find nothing are apart, as far as it has shown.
  std::atomic<transport::Time> pace_;
  // The last poll found nothing, soon after one that did, and no post has
  // followed.
  std::atomic<bool> polled_in_vain_ = false;

  std::atomic<int> yields_ = 0;  // polls that gave way, in a row

  // Guarded by lock_, and not on a cache line that polls write without it:
  alignas(64) transport::Endpoint endpoint_;
  std::unique_ptr<Port> port_;
  Slot* slot_ = nullptr;
  LaneHelper* helper_ = nullptr;
  int index_ = 0;
  uint8_t slot_number_ = 0;
  // Also read without the lock, as a hint.
  std::atomic<bool> armed_ = false;
  // When the helper looks by itself, and tries to arm, since that failed.
  transport::Time rearm_at_ = transport::kNever;
  std::atomic<bool> watching_ = false;
  std::atomic<bool> called_ = false;  // the helper, by Unlock()
  // The helper did not come at helper_wake_, on watch, and will later.
  std::atomic<bool> look_missed_ = false;
  int waiters_ = 0;  // threads in WaitReadable
  transport::Time helper_wake_ = transport::kNever;
  bool waiter_comes_ = false;  // one of them goes round again at once
  // What Need() was last, other than kNever, when Unlock() compared.
  transport::Time last_need_ = 0;
  // The helper's; DropLease sets it too. Not guarded by the lock.
  std::atomic<transport::Time> trust_;
  // When the helper was to come at the latest. Its own.
  transport::Time due_ = transport::kNever;
  transport::Time last_transmit_;
  transport::Time retry_at_ = 0;  // of sends that are blocked
  transport::Time retry_;         // the next interval
  // When something was last taken in that no post has followed yet, and how
  // many in a row have been answered by a post at once, up to kAnswersExpected.
  transport::Time unanswered_;
  int answers_ = 0;
  // Until then the helper leaves an acknowledgement to the answer.
  transport::Time answer_until_ = 0;
  transport::Time last_post_;
  uint32_t posts_ = 0;           // how often it has posted
  int quick_posts_ = 0;          // in a row, soon after a send
  int gathered_requests_ = 0;    // left to be gathered
  uint64_t gathered_bytes_ = 0;  // their payload
  int silent_requests_ = 0;      // in a row, that asked for no completion
  transport::Time spin_ = 0;     // how long the user lets the helper look on
  transport::Time last_bulk_;    // when the helper moved some last
  transport::Time last_taken_;   // when it took anything in last
  bool lingers_ = false;         // it looks again at once
  // The helper is to go on watch, that posts can be gathered. Until it has
  // come, they can be too: it is on its way.
  bool watch_wanted_ = false;
  uint32_t polls_seen_ = 0;  // polls_, when the helper looked last, or slept
  int neglects_ = 0;         // how much speaks for its neglecting what arrives
  // The application has been found to stop polling without a word: it arms the
  // lane when it has got something, and disarms it when it polls again.
  bool attentive_ = false;
  uint32_t calls_at_arming_ = 0;  // Calls(), when it armed the lane
  int empty_polls_ = 0;           // in a row, while armed on watch
  int fruitless_ = 0;  // times in a row that arming on watch was for nothing
  bool left_ = false;  // the last round of polling left its packets
  bool transmitted_ = false;  // since the lane was locked
  LaneCounters counters_;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_IMPL_H_
