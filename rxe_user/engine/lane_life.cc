// Opening, closing and forking a lane.
#include <algorithm>
#include <new>
#include <utility>

#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/ports/udp_socket.h"
#include "rxe_user/progress/round_budget.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::Time;

// How long fork() and exit() wait for a lane's lock.
constexpr Time kForkTimeout = 100 * transport::kMillisecond;
constexpr Time kExitTimeout = 10 * transport::kMillisecond;

// Transmits by `port` what `next` fills, up to the budget of one round.
template <typename Next>
void SendLast(Port& port, Next next) {
  const ScopedFaultGuard guard;
  RoundBudget budget;
  while (!budget.spent()) {
    const transport::Burst* const burst = next(&port);
    if (burst == nullptr) break;
    budget.Charge(burst->bytes().size());
    port.Queue();
  }
  port.Flush();
}

}  // namespace

LaneImpl::LaneImpl(Clock clock) : clock_(clock) {}

LaneImpl::~LaneImpl() = default;

void LaneImpl::Open(std::unique_ptr<Port> port, Slot* slot, LaneHelper* helper,
                    Time spin) {
  lock_.Lock();
  port_ = std::move(port);
  slot_ = slot;
  helper_ = helper;
  app_.SetScale(MeasureScale());
  batcher_.SetTimerCost(helper->timer_cost());
  busy_poll_.SetUserLimit(spin);
  port_->WatchRoom([this] { endpoint_.OnRoom(Now()); });
  open_.store(port_.get(), std::memory_order_release);
  for (const int fd : port_->ReceiveDescriptors()) {
    endpoint_.NoteReceiveBuffer(ReceiveBufferOf(fd));
    helper_->AddSocket(fd, false);
  }
  // Threads that already block in WaitReadable wait for their descriptor alone,
  // and do not count as waiters.
  mode_.OnOpened();
  ApplyMode();
  Unlock();
}

// The fastest of several empty receives. Nothing is lost: there is no queue
// pair yet.
TimeScale LaneImpl::MeasureScale() {
  Time shortest = kNever;
  for (int i = 0; i < 8; ++i) {
    const Time start = Now();
    port_->Receive(/*thorough=*/true);
    shortest = std::min(shortest, Now() - start);
  }
  return TimeScale(shortest);
}

void LaneImpl::SocketAdded(int fd) {
  const Guard guard(*this);
  if (port() == nullptr) return;
  endpoint_.NoteReceiveBuffer(ReceiveBufferOf(fd));
  // Threads that already wait do not see this socket, so the helper does.
  const bool arm = armed_ || mode_.waiters() != 0;
  if (!helper_->AddSocket(fd, arm)) NoteArming(false);
}

void LaneImpl::SocketRemoved(int fd) {
  const Guard guard(*this);
  if (helper_ != nullptr) helper_->RemoveSocket(fd);
}

void LaneImpl::SetRawPort(RawPort* raw) {
  const Guard guard(*this);
  raw_ = raw;
}

int LaneImpl::FrameDescriptor() const {
  const RawPort* const raw = raw_.load(std::memory_order_acquire);
  return raw != nullptr ? raw->descriptor() : -1;
}

void LaneImpl::Close() {
  lock_.Lock();
  open_.store(nullptr, std::memory_order_release);
  mode_.OnClosed();
  armed_ = false;
  rearm_at_ = kNever;
  disarmed_until_ = 0;
  helper_wake_ = kNever;
  helper_ = nullptr;
  slot_ = nullptr;
  raw_ = nullptr;
  port_.reset();
  lock_.Unlock();
}

void LaneImpl::TransmitLast(transport::EndpointQp& qp, Time now) {
  if (port() == nullptr) return;
  TransmitSome(now);
  if (!qp.link().held) return;
  SendLast(port_->ForLastPackets(), [&](Port* port) {
    return endpoint_.PollTransmitOf(&qp, now, port);
  });
}

void LaneImpl::TransmitAtExit() {
  if (port() == nullptr || !lock_.TryLockFor(kExitTimeout)) return;
  try {
    const Time now = Now();
    Transmit(now);
    if (port_->must_retry() && !port_->blocked()) {
      endpoint_.OnRoom(now);
      SendLast(port_->ForLastPackets(),
               [&](Port* port) { return endpoint_.PollTransmit(now, port); });
    }
  } catch (const std::bad_alloc&) {
    // The remaining packets are lost.
  }
  Unlock();
}

bool LaneImpl::ReadAtExit(const std::function<void()>& read) {
  if (!lock_.TryLockFor(kExitTimeout)) return false;
  read();
  lock_.Unlock();
  return true;
}

bool LaneImpl::LockForFork() { return lock_.TryLockFor(kForkTimeout); }

void LaneImpl::AbandonInChild() {
  lock_.ResetInChild();
  open_.store(nullptr, std::memory_order_relaxed);
  mode_.OnClosed();
  helper_ = nullptr;
  slot_ = nullptr;
  raw_ = nullptr;
  if (port_ != nullptr) port_->AbandonInChild();
}

}  // namespace rxe_user
