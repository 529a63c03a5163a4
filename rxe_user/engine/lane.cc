#include <sched.h>
#include <time.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "rxe_user/base/qpn.h"
#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/memory/guarded_copy.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kNever;
using transport::Time;

constexpr Time kLongAgo = std::numeric_limits<Time>::min() / 2;

// How long polls that find nothing are apart, at the least that is counted, on
// a processor of today. Where they take longer, an emulated one mostly, times
// marked (pace) are longer as well, up to so much.
constexpr Time kLeastPace = kMicrosecond;
constexpr Time kMostPace = 20 * kMicrosecond;

// An application that polled in vain for so long (pace) leaves its core to
// others.
constexpr Time kPatience = 30 * kMicrosecond;

// How long after its last poll (pace) the application is taken for one that
// polls: by a helper that an arrival has woken, which takes some microseconds
// itself, so that one who waited for this arrival and then went away is not
// meant;
constexpr Time kPollGap = 2 * kMicrosecond;
// if it had polled so often since the helper looked last, for longer: the
// helper may have taken its core, so that it could not poll since;
constexpr uint32_t kManyPolls = 4;
// by a helper on watch;
constexpr Time kNeglect = 8 * kMicrosecond;
// if nothing speaks against it.
constexpr Time kLease = 20 * kMicrosecond;
// The same for one that has been found to stop polling now and then.
constexpr Time kAttentiveLease = transport::kMillisecond;
// An application that polls a while for its completion and then waits for its
// memory is found doing the one or the other. It is served attentively from
// this sum on, to which each neglect adds so much, and from which each look
// that finds it polling takes one;
constexpr int kNeglectWeight = 3;
constexpr int kManyNeglects = 7;
// and no longer when it has come back so many times in a row before the helper
// had to come for what arrived.
constexpr int kFruitless = 16;
// How many polls that found nothing show that it is back.
constexpr int kEmptyPolls = 2;
// How long the helper leaves a polling application alone (pace), but never for
// longer than the last.
constexpr Time kLeastTrust = 20 * kMicrosecond;
constexpr Time kMostTrust = 2560 * kMicrosecond;
constexpr Time kLongestTrust = 5 * transport::kMillisecond;

// Posts that come while others are under way, or sooner than this (pace) after
// the last send, are gathered if the application has polled lately, or posts in
// a row and has polled at all: up to so much payload, which is worth a system
// call, or so many requests for each queue pair that has something to send,
// since each has a train of its own, but no more than for so many. So many
// posts in a row ask the helper to go on watch.
constexpr Time kGatherGap = 3 * kMicrosecond;
constexpr Time kPollsAtAll = transport::kMillisecond;
constexpr uint64_t kGatherBytes = 60 << 10;
constexpr int kGatherRequests = 48;
constexpr size_t kGatherQueuePairs = 4;
constexpr int kQuickPosts = 4;
// One that asks for a completion after so many that did not, of all queue
// pairs, is mostly what the application will wait for, with room to post for as
// long as it has not come: gathering ends with it, so that the peer is at it
// meanwhile.
constexpr int kManySilent = 16;
// A round takes in and gives out about so much, so that acknowledgements keep
// pace with data and others get the lock; about 20 us each.
constexpr size_t kReceiveBytes = 128 << 10;
constexpr int kReceiveCalls = 8;
constexpr size_t kTransmitBytes = 192 << 10;
constexpr int kTransmitBursts = 32;
// What comes in larger pieces is worth another look in the same round.
constexpr size_t kBulkArrival = 16 << 10;

// A helper that moves bulk whose pieces come closer together than this looks
// for the next one as long before it sleeps: being woken takes as much, and the
// waker, the peer in full flow, some microseconds. Pieces that come farther
// apart are worth a sleep each. Not if the application polls at all, since it
// may be the one whose core that would take, nor beside a thread that waits.
constexpr Time kLinger = 50 * kMicrosecond;

// How long until a send that the system did not take is tried again: at first,
// and at most, doubling in between.
constexpr Time kLeastRetry = 50 * kMicrosecond;
constexpr Time kMostRetry = 5 * transport::kMillisecond;

// A post that comes so soon after an arrival answers it. After so many arrivals
// in a row that were answered, the next answer is waited for, as long. Where
// threads take each other's cores, an answer may well take so much; and to come
// sooner for nothing would take the core that it is made on.
constexpr Time kAnswerGap = 200 * kMicrosecond;
constexpr int kAnswersExpected = 4;

// How many polls in a row give way to threads that wait for the lock.
constexpr int kMostYields = 100;

// How long fork() waits for a lane's lock.
constexpr Time kForkPatience = 100 * transport::kMillisecond;

}  // namespace

Time Lane::Now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * transport::kSecond + t.tv_nsec;
}

LaneImpl::LaneImpl(Clock clock)
    : clock_(clock),
      last_poll_(kLongAgo),
      last_fruit_(kLongAgo),
      pace_(kLeastPace),
      trust_(kLeastTrust),
      last_transmit_(kLongAgo),
      retry_(kLeastRetry),
      unanswered_(kLongAgo),
      last_post_(kLongAgo),
      last_bulk_(kLongAgo),
      last_taken_(kLongAgo) {}

LaneImpl::~LaneImpl() = default;

void LaneImpl::Open(std::unique_ptr<Port> port, Slot* slot, LaneHelper* helper,
                    int index, Time spin) {
  lock_.Lock();
  port_ = std::move(port);
  slot_ = slot;
  slot_number_ = slot->number();
  helper_ = helper;
  index_ = index;
  spin_ = spin;
  open_.store(port_.get(), std::memory_order_release);
  for (const int fd : port_->ReceiveDescriptors()) {
    helper_->AddSocket(index_, fd, false);
  }
  // Threads that already wait in WaitReadable wait for their descriptor alone,
  // and do not count as waiters.
  Arm(true);
  Unlock();
}

void LaneImpl::SocketAdded(int fd) {
  const Guard guard(*this);
  // Threads that wait already do so on the sockets there were.
  if (port() != nullptr) {
    AwaitArming(helper_->AddSocket(index_, fd, armed_ || waiters_ != 0));
  }
}

void LaneImpl::Close() {
  lock_.Lock();
  open_.store(nullptr, std::memory_order_release);
  watching_.store(false, std::memory_order_relaxed);
  armed_ = false;
  rearm_at_ = kNever;
  helper_wake_ = kNever;
  helper_ = nullptr;
  slot_ = nullptr;
  port_.reset();
  lock_.Unlock();
}

// --- Calls by the application.

void LaneImpl::Posted(Time now, const PostedWork& work) {
  if (port() == nullptr) return;
  if (now - unanswered_ < kAnswerGap) {
    answers_ = std::min(answers_ + 1, kAnswersExpected);
  }
  unanswered_ = kLongAgo;
  polled_in_vain_.store(false, std::memory_order_relaxed);
  const Time gather_gap = Paced(kGatherGap);
  const bool busy =
      now - last_transmit_ < gather_gap || endpoint_.NextTimeout() != kNever;
  const Time poll_age = now - last_poll_.load(std::memory_order_relaxed);
  const bool quick =
      busy && (poll_age < Paced(kLease) ||
               (poll_age < kPollsAtAll && now - last_post_ < gather_gap));
  ++posts_;
  last_post_ = now;
  quick_posts_ = quick ? quick_posts_ + 1 : 0;
  if (quick_posts_ >= kQuickPosts && !MayGather()) watch_wanted_ = true;
  gathered_requests_ += work.requests;
  gathered_bytes_ += work.bytes;
  silent_requests_ =
      std::min(silent_requests_ + work.requests - work.signaled, kManySilent);
  const size_t trains =
      std::clamp<size_t>(endpoint_.Transmitters(), 1, kGatherQueuePairs);
  const bool awaited = work.signaled != 0 && silent_requests_ >= kManySilent;
  if (work.signaled != 0) silent_requests_ = 0;
  if (quick && (MayGather() || watch_wanted_) && !awaited &&
      gathered_requests_ < kGatherRequests * static_cast<int>(trains) &&
      gathered_bytes_ < kGatherBytes) {
    ++counters_.posts_gathered;
    return;
  }
  TransmitSome(now);
  // Which takes longer than a helper that looks is patient.
  last_post_ = Now();
}

void LaneImpl::Transmit(Time now) {
  if (port() != nullptr) TransmitSome(now);
}

bool LaneImpl::Progress() {
  if (port() == nullptr) return false;
  const Time now = Now();
  const Time gap = now - last_poll_.load(std::memory_order_relaxed);
  last_poll_.store(now, std::memory_order_relaxed);
  if (polled_in_vain_.load(std::memory_order_relaxed)) {
    KeepPace(gap);
    // This one may not get the lock; then it is quick, and says nothing.
    polled_in_vain_.store(false, std::memory_order_relaxed);
  }
  // Several threads may poll; that counts get lost then does no harm.
  polls_.store(polls_.load(std::memory_order_relaxed) + 1,
               std::memory_order_relaxed);
  // Polling never ends: others would hardly ever find the lock free.
  if (lock_.contended() &&
      yields_.fetch_add(1, std::memory_order_relaxed) < kMostYields) {
    return false;
  }
  if (!lock_.TryLock()) return false;
  yields_.store(0, std::memory_order_relaxed);
  const bool did = port() != nullptr && Round(now, Caller::kPoller);
  // A round with much to do takes longer than a helper that looks is patient,
  // and than the next poll.
  const Time end = did ? Now() : now;
  if (did) {
    last_poll_.store(end, std::memory_order_relaxed);
    last_fruit_.store(end, std::memory_order_relaxed);
  }
  const Time patience = Paced(kPatience);
  const bool found =
      end - last_fruit_.load(std::memory_order_relaxed) <= patience;
  // One that posts is at work, however long that keeps it from polling (or
  // another thread of it).
  const bool yield = !found && end - last_post_ > patience;
  if (yield) ++counters_.yields;
  Unlock();
  polled_in_vain_.store(!did && found, std::memory_order_relaxed);
  if (yield) {
    // What the application waits for may need this very core: the peer, where
    // there are more pollers than cores. On a core of its own this is a system
    // call that returns.
    ::sched_yield();
  }
  return did;
}

void LaneImpl::SignOfLife() {
  if (port() == nullptr) return;
  polled_in_vain_.store(false, std::memory_order_relaxed);
  last_poll_.store(Now(), std::memory_order_relaxed);
  polls_.store(polls_.load(std::memory_order_relaxed) + 1,
               std::memory_order_relaxed);
}

// The least of late: that a poll was interrupted says little.
void LaneImpl::KeepPace(Time gap) {
  const Time pace = pace_.load(std::memory_order_relaxed);
  const Time next =
      std::clamp(std::min(gap, pace + pace / 4), kLeastPace, kMostPace);
  if (next != pace) pace_.store(next, std::memory_order_relaxed);
}

Time LaneImpl::Paced(Time time) const {
  return pace_.load(std::memory_order_relaxed) * time / kLeastPace;
}

void LaneImpl::DropLease() {
  last_poll_.store(kLongAgo, std::memory_order_relaxed);
  // Not on watch: the lane is armed, a waiter is there, or the helper lingers.
  // Should it go on watch this moment, it will look again after the least
  // trust.
  if (!OnWatch()) return;
  lock_.Lock();
  if (port() != nullptr && OnWatch()) {
    watching_.store(false);
    // The helper may sleep beyond when it said it would come.
    if (look_missed_.exchange(false)) helper_wake_ = kNever;
    trust_ = Paced(kLeastTrust);
    if (waiters_ == 0) Arm(true);
  }
  Unlock();
}

// --- Rounds.

void LaneImpl::Unlock() {
  bool wake = false;
  if (port() != nullptr) {
    if (HasLeftovers() && !MayLeave() && !watch_wanted_ && !transmitted_) {
      TransmitSome(Now());
    }
    // On watch the helper comes soon, whatever there is.
    if (!OnWatch() || (HasLeftovers() && !MayLeave())) {
      const Time need = Need();
      if (need != kNever) last_need_ = need;
      if (!waiter_comes_ && need < helper_wake_) {
        helper_wake_ = need;
        wake = true;
        called_.store(true, std::memory_order_relaxed);
        ++counters_.helper_wakes;
      }
    }
  }
  transmitted_ = false;
  LaneHelper* const helper = helper_;
  lock_.Unlock();
  if (wake) helper->Wake();
}

bool LaneImpl::Round(Time now, Caller caller) {
  ++counters_.rounds;
  const size_t received = ReceiveSome(now, caller);
  bool did = received != 0;
  if (caller == Caller::kPoller && attentive_ && OnWatch()) PayAttention(did);
  if (endpoint_.NextTimeout() <= now) {
    endpoint_.OnTimer(now);
    did = true;
  }
  if (port_->blocked() || endpoint_.HasTransmit()) {
    // What a small arrival asks to be sent, its acknowledgement mostly, can
    // share a packet train with what the application says to it.
    // Never twice in a row: a drizzle of arrivals must not hold it up.
    const bool leave = caller == Caller::kPoller && OnWatch() && !left_ &&
                       received != 0 && received < kBulkArrival &&
                       (WillBeAnswered(now) || !attentive_);
    if (!leave) {
      TransmitSome(now);
      did = true;
    }
    left_ = leave;
  }
  return did;
}

size_t LaneImpl::ReceiveSome(Time now, Caller caller) {
  const bool thorough = caller != Caller::kPoller;
  size_t bytes = 0;
  for (int i = 0; i < kReceiveCalls && bytes < kReceiveBytes; ++i) {
    const std::span<const transport::Train> trains = port_->Receive(thorough);
    if (!trains.empty()) {
      const GuardedSpell spell;
      for (const transport::Train& train : trains) {
        bytes += std::max<size_t>(train.bytes.size(), 1);
        endpoint_.OnTrain(train, now, this);
      }
    }
    if (!port_->more() || lock_.contended()) break;
    if (!thorough && bytes < kBulkArrival) break;
    // One that comes alone is answered before anything else is looked for, if
    // somebody is going to sleep on the sockets, and will find them readable.
    const bool alone = trains.size() == 1 && bytes < kBulkArrival;
    if (alone && (armed_.load(std::memory_order_relaxed) || waiters_ != 0)) {
      break;
    }
  }
  if (bytes != 0 && port_->TakeOverflow() != 0)
    endpoint_.OnReceiveOverflow(now);
  return bytes;
}

void LaneImpl::OnStray(const transport::Datagram& datagram, uint32_t qpn) {
  if (SlotOf(qpn) == slot_number_ || slot_ == nullptr) return;
  ++counters_.strays_forwarded;
  slot_->Forward({datagram.source, datagram.destination, datagram.source_port,
                  datagram.traffic_class, datagram.hop_limit, datagram.bytes});
}

size_t LaneImpl::TransmitSome(Time now) {
  gathered_requests_ = 0;
  gathered_bytes_ = 0;
  left_ = false;
  transmitted_ = true;
  answer_until_ = 0;
  port_->Flush();
  const GuardedSpell spell;
  size_t bytes = 0;
  for (int i = 0; i < kTransmitBursts && bytes < kTransmitBytes; ++i) {
    transport::Burst* burst = port_->NextBurst();
    if (burst == nullptr || !endpoint_.PollTransmit(now, burst)) break;
    bytes += burst->bytes().size();
    port_->Queue();
    if (bytes >= kTransmitBytes / 4 && lock_.contended()) break;
  }
  port_->Flush();
  if (bytes != 0) last_transmit_ = now;
  if (!port_->blocked()) {
    retry_ = kLeastRetry;
    retry_at_ = 0;
  } else if (now >= retry_at_) {
    retry_at_ = now + retry_;
    retry_ = std::min(retry_ * 2, kMostRetry);
  }
  return bytes;
}

bool LaneImpl::HasLeftovers() const {
  return !port_->blocked() && endpoint_.HasTransmit();
}

Time LaneImpl::Need() const {
  if (HasLeftovers() || watch_wanted_) return 0;
  Time need = std::min(endpoint_.NextTimeout(), rearm_at_);
  if (port_->blocked()) need = std::min(need, retry_at_);
  return need;
}

void LaneImpl::Arm(bool on) {
  if (!on) rearm_at_ = kNever;
  if (armed_ == on && rearm_at_ == kNever) return;
  armed_ = on;
  empty_polls_ = 0;
  AwaitArming(helper_->Arm(index_, on));
}

// The system is short of memory, or of what it lets a user wait for.
void LaneImpl::AwaitArming(bool armed) {
  rearm_at_ = armed ? kNever : Now() + kMostRetry;
}

// --- The helper thread.

Time LaneImpl::HelperTurn() {
  if (!LockForTurn()) {
    TrustLonger();
    due_ = Now() + trust_;
    return due_;
  }
  look_missed_.store(false, std::memory_order_relaxed);
  if (port() == nullptr) {
    lock_.Unlock();
    return kNever;
  }
  const Time now = Now();
  // One that comes late may itself have kept the application's core meanwhile,
  // with what woke it.
  const Time seen = std::min(now, due_);
  const Time poll_age = seen - last_poll_.load(std::memory_order_relaxed);
  const uint32_t polls_made = polls_.load(std::memory_order_relaxed);
  const Time lease = Paced(kLease);
  const Time neglect = Paced(kNeglect);
  const bool in_earnest =
      watch_wanted_ || polls_made - polls_seen_ >= kManyPolls;
  const bool lingered = std::exchange(lingers_, false);
  if (in_earnest || !lingered) polls_seen_ = polls_made;
  const Time call_age = std::min(poll_age, seen - last_post_);
  // One that is posting, and polls between its sprees, is at it.
  const bool posts_count =
      watch_wanted_ || (OnWatch() && poll_age < kPollsAtAll);
  bool polls =
      (in_earnest || !lingered) &&
      (posts_count ? call_age : poll_age) < (!in_earnest ? Paced(kPollGap)
                                             : OnWatch() ? neglect
                                                         : lease);
  bool neglected = false;
  bool in_vain = false;
  Time handed_until = 0;
  // An arrival that woke us on an attentive watch is ours to see to.
  // So is what it has posted last, if it may be off to wait for its memory.
  if (!polls || (attentive_ && (armed_ || HasLeftovers()))) {
    const bool left = HasLeftovers();
    const size_t bytes = ReceiveSome(now, Caller::kFinisher);
    const bool received = bytes != 0;
    if (endpoint_.NextTimeout() <= now) endpoint_.OnTimer(now);
    // Who waits for the lock, mostly to answer what has just arrived, will send
    // its post and our acknowledgement together.
    if (received && HasLeftovers() && WillBeAnswered(now)) {
      answer_until_ = now + kAnswerGap;
    }
    handed_until = lock_.contended() ? now + kAnswerGap : answer_until_;
    const size_t sent = now < handed_until ? 0 : TransmitSome(now);
    lingers_ = MoreIsNear(poll_age, bytes, sent) && waiters_ == 0;
    in_vain = bytes + sent == 0;
    if (OnWatch()) {
      neglected = !armed_ && (left || received) && call_age > neglect;
      if (neglected) {
        OnNeglect();
      } else if (received && armed_ && Calls() == calls_at_arming_) {
        fruitless_ = 0;  // the application had armed the lane, and stayed away
      }
      polls = call_age < (attentive_ ? kAttentiveLease : lease);
    }
  }
  watch_wanted_ = false;
  if (polls) {
    if (!OnWatch()) {
      ++counters_.watches;
      trust_ = Paced(kLeastTrust);
      Arm(false);
    } else if (!neglected) {
      TrustLonger();
      neglects_ = std::max(neglects_ - 1, 0);
    }
    watching_.store(true, std::memory_order_relaxed);
    // From now on: the application has to have had the time to poll.
    helper_wake_ = Now() + trust_;
  } else {
    trust_ = Paced(kLeastTrust);
    watching_.store(false, std::memory_order_relaxed);
    // One that looks need not be woken, which is work for the sender.
    if (waiters_ == 0) {
      Arm(!lingers_);
    } else if (rearm_at_ <= now) {
      AwaitArming(false);  // beside them, the helper sees to the new socket
    }
    // A deadline that has gone away is kept: the next post would bring it back,
    // and have to wake the helper for it.
    const Time need = now < handed_until ? handed_until : Need();
    helper_wake_ = last_need_ > now ? std::min(last_need_, need) : need;
  }
  lingers_ = lingers_ && !polls;
  transmitted_ = false;
  const bool yield = lingers_ && in_vain;
  if (yield) ++counters_.yields;
  const Time wake = lingers_ ? now + 1 : helper_wake_;
  due_ = std::max(wake, now);  // at once, if there is more to send
  lock_.Unlock();
  // What it looks for may have to be made on this very core.
  if (yield) ::sched_yield();
  return wake;
}

// False, without the lock, if this is a mere look while an application that
// polls holds it: it is at work, and to sleep for the lock, or spin, would take
// a core from it or its peer. An arrival, however, would wake us again and
// again.
bool LaneImpl::LockForTurn() {
  const bool called = called_.exchange(false, std::memory_order_relaxed);
  const Time poll_age = Now() - last_poll_.load(std::memory_order_relaxed);
  if (!called && OnWatch() && !armed_.load(std::memory_order_relaxed) &&
      poll_age < kPollsAtAll) {
    if (lock_.TryLock()) return true;
    // Either DropLease sees that we do not come when we said, or we see that
    // the watch is over.
    look_missed_.store(true);
    if (watching_.load()) return false;
  }
  lock_.Lock();
  return true;
}

// The application has been found at work.
void LaneImpl::TrustLonger() {
  trust_ = std::min({trust_ * 2, Paced(kMostTrust), kLongestTrust});
}

// The helper has just taken in and sent so many bytes, and may look for more by
// itself: as long as the user lets it, and while bulk flows.
bool LaneImpl::MoreIsNear(Time poll_age, size_t received, size_t sent) {
  const Time now = Now();
  const bool bulk = now - last_bulk_ < kLinger && poll_age >= kPollsAtAll;
  if (received + sent >= kBulkArrival) last_bulk_ = now;
  if (received != 0) last_taken_ = now;
  return bulk || now - last_taken_ < spin_;
}

// Something that asks for an acknowledgement has been taken in, and the
// application has lately answered the like at once, by a post that the
// acknowledgement can go out with. Sent alone, that would wake the peer for
// nothing, and on the very core that the application waits for.
bool LaneImpl::WillBeAnswered(Time now) {
  if (unanswered_ != kLongAgo) answers_ = 0;  // the last one was not
  unanswered_ = now;
  return answers_ >= kAnswersExpected;
}

void LaneImpl::OnNeglect() {
  ++counters_.neglects;
  trust_ = Paced(kLeastTrust);
  neglects_ = std::min(neglects_ + kNeglectWeight, kManyNeglects);
  if (neglects_ < kManyNeglects) return;
  attentive_ = true;
  fruitless_ = 0;
  if (waiters_ == 0) Arm(true);
}

// An application that has neglected arrivals before says when it expects to
// stop polling: when it has got something.
void LaneImpl::PayAttention(bool received) {
  const bool back = armed_ && (received || ++empty_polls_ == kEmptyPolls);
  if (received) {
    calls_at_arming_ = Calls();
    if (waiters_ == 0) Arm(true);
  } else if (back) {
    Arm(false);
  }
  if (back && ++fruitless_ == kFruitless) {
    attentive_ = false;
    neglects_ = 0;
    Arm(false);
  }
}

// --- Threads that block.

bool LaneImpl::EnterWait() {
  lock_.Lock();
  const bool open = port() != nullptr;
  if (open) {
    ++waiters_;
    Arm(false);
  }
  lock_.Unlock();
  return open;
}

bool LaneImpl::WaitTurn(Time now) {
  lock_.Lock();
  if (port() == nullptr) {
    lock_.Unlock();
    return false;
  }
  Round(now, Caller::kFinisher);
  const bool more = HasLeftovers();
  waiter_comes_ = more;
  Unlock();
  return more;
}

void LaneImpl::LeaveWait() {
  lock_.Lock();
  --waiters_;
  waiter_comes_ = false;
  if (port() != nullptr && waiters_ == 0 && !OnWatch()) Arm(true);
  Unlock();
}

// --- Others.

void LaneImpl::DeliverStray(const Stray& stray) {
  const Guard guard(*this);
  if (port() == nullptr) return;
  transport::Datagram datagram;
  datagram.bytes = stray.bytes;
  datagram.source = stray.source;
  datagram.destination = stray.destination;
  datagram.source_port = stray.source_port;
  datagram.traffic_class = stray.traffic_class;
  datagram.hop_limit = stray.hop_limit;
  endpoint_.OnDatagram(datagram, Now());
}

bool LaneImpl::LockForFork() {
  const Time limit = Now() + kForkPatience;
  while (!lock_.TryLock()) {
    if (Now() > limit) return false;
    const timespec nap = {0, 20'000};
    ::nanosleep(&nap, nullptr);
  }
  return true;
}

void LaneImpl::AbandonInChild() {
  lock_.ResetInChild();
  open_.store(nullptr, std::memory_order_relaxed);
  watching_.store(false, std::memory_order_relaxed);
  helper_ = nullptr;
  slot_ = nullptr;
  if (port_ != nullptr) port_->AbandonInChild();
}

}  // namespace rxe_user
