// The work of the service's control thread: MADs, timers, and calls of
// handlers.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/cm/cm_service_impl.h"
#include "rxe_user/cm/translated_mads.h"
#include "wire/cm.h"

namespace rxe_user {

using transport::cm::Event;
using transport::cm::EventKind;

void CmServiceImpl::OnBell() {
  sockets_.Silence();
  if (refresh_.exchange(false)) control_->Refresh();
  if (close_gone_addresses_.exchange(false)) {
    const std::lock_guard lock(opening_);
    CloseGoneAddresses();
  }
  std::vector<transport::cm::ConnectedPeer> connected;
  {
    const std::lock_guard lock(mutex_);
    connected = ReleaseHeld();
    manager_->OnTimer(Now());
    Drain();
  }
  // Report before the application gets the events, as OnSteered does.
  for (const auto& peer : connected) slot_->TellConnected(OpenOf(peer));
  Dispatch();
}

void CmServiceImpl::OnBroker() {
  slot_->OnReadable([this](const Stray& stray) {
    ReadSteered(stray.destination);
    OnDatagram({.source = stray.source,
                .destination = stray.destination,
                .source_port = stray.source_port},
               stray.bytes);
  });
  // The call may have changed which slot reads which socket.
  control_->Refresh();
  Dispatch();
}

void CmServiceImpl::OnSocket(const CmSockets::Opened& opened) {
  ReadSocket(opened);
  Dispatch();
}

void CmServiceImpl::ReadSteered(const wire::IpAddress& local) {
  const std::optional<CmSockets::Opened> opened = sockets_.At(local);
  if (opened.has_value() &&
      slot_->ManagementOf(opened->local) == Slot::Management::kBroker) {
    ReadSocket(*opened);
  }
}

// Drains the slot's own socket even if its datagrams are not used.
void CmServiceImpl::ReadSocket(const CmSockets::Opened& opened) {
  const Slot::Management from = slot_->ManagementOf(opened.local);
  CmSockets::Read(
      opened.local, sockets_.Received(opened),
      [&](const transport::cm::MadFlow& flow, std::span<const uint8_t> bytes) {
        if (from == Slot::Management::kSocket) OnDatagram(flow, bytes);
        if (from == Slot::Management::kBroker) OnSteered(flow, bytes);
      });
}

void CmServiceImpl::OnUndelivered(const CmSockets::Opened& opened) {
  sockets_.ReadUndelivered(opened, [&](const transport::cm::OutgoingMad& mad) {
    const std::lock_guard lock(mutex_);
    manager_->OnUndelivered(mad, Now());
    Drain();
  });
}

std::optional<transport::cm::IncomingMad> CmServiceImpl::Verify(
    const transport::cm::MadFlow& flow, std::span<const uint8_t> bytes) {
  transport::cm::IncomingMad in = {
      .local = flow.destination, .remote = flow.source, .bytes = {}};
  bool is_good = false;
  switch (ParseMadPacket(flow, bytes, &in.bytes)) {
    case transport::cm::MadPacketError::kOk:
      is_good = true;
      break;
    case transport::cm::MadPacketError::kBadIcrc:
      is_good = FindTranslatedSender(
          flow, bytes,
          [this](transport::cm::CmId id) {
            const std::lock_guard lock(mutex_);
            return manager_->PeerOf(id);
          },
          &in);
      break;
    default:
      return std::nullopt;
  }
  if (observer_ != nullptr) {
    observer_->OnPacket(
        {.direction = transport::Direction::kReceived,
         .bytes = bytes,
         .source = in.remote,
         .destination = flow.destination,
         .source_port = flow.source_port,
         .disposition = is_good ? transport::Disposition::kDelivered
                                : transport::Disposition::kBadIcrc});
  }
  return is_good ? std::optional(in) : std::nullopt;
}

void CmServiceImpl::OnDatagram(const transport::cm::MadFlow& flow,
                               std::span<const uint8_t> bytes) {
  const auto in = Verify(flow, bytes);
  if (!in.has_value()) return;
  const std::lock_guard lock(mutex_);
  Take(*in);
  Drain();
}

void CmServiceImpl::OnSteered(const transport::cm::MadFlow& flow,
                              std::span<const uint8_t> bytes) {
  const auto in = Verify(flow, bytes);
  wire::CmView view;
  if (!in.has_value() ||
      wire::CmView::Parse(in->bytes, &view) != wire::CmParseError::kOk ||
      view.attribute() != wire::CmAttribute::kRtu) {
    return;
  }
  std::optional<transport::cm::ConnectedPeer> connected;
  {
    const std::lock_guard lock(mutex_);
    connected = Take(*in, view.remote_comm_id());
    Drain();
  }
  // Report before the application gets the event, since it may be killed then.
  if (connected.has_value()) slot_->TellConnected(OpenOf(*connected));
}

void CmServiceImpl::OnAddresses() {
  // Retry after a lack of memory. After a broker that does not answer, much
  // later, since this thread has waited for it.
  constexpr std::chrono::milliseconds kAgain{10}, kAgainOpening{300'000};
  changes_retry_ = ControlThread::Clock::now() + kAgain;
  if (changes_.empty()) changes_ = sockets_.ReadWatch();
  bool all = !sockets_.is_behind();
  {
    const std::lock_guard lock(opening_);
    const int error = listens_all_ ? OpenAll(ListDevicesAgain()) : 0;
    if (error == ETIMEDOUT) {
      changes_retry_ = ControlThread::Clock::now() + kAgainOpening;
    }
    all &= error == 0;
  }
  while (!changes_.empty()) {
    // on_link_ does not change after the start.
    if (on_link_ != nullptr) {
      on_link_(changes_.front().interface, changes_.front().change);
    }
    changes_.erase(changes_.begin());
  }
  if (all) changes_retry_ = ControlThread::Clock::time_point::max();
}

CmFaults::Fate CmServiceImpl::FateOf(bool sent, std::span<const uint8_t> mad,
                                     const wire::IpAddress& peer) {
  wire::CmView view;
  if (faults_ == nullptr ||
      wire::CmView::Parse(mad, &view) != wire::CmParseError::kOk) {
    return {};
  }
  return faults_->Decide(sent, view.attribute(), peer);
}

std::optional<transport::cm::ConnectedPeer> CmServiceImpl::Take(
    const transport::cm::IncomingMad& in,
    std::optional<transport::cm::CmId> steered_to) {
  const CmFaults::Fate fate = FateOf(false, in.bytes, in.remote);
  if (fate.delay == 0) {
    return PassToManager(in, steered_to, fate.copies);
  }
  if (!HasRoomToHold()) return std::nullopt;
  HeldMad held;
  held.in = in;
  held.steered_to = steered_to;
  held.bytes.assign(in.bytes.begin(), in.bytes.end());
  held_.emplace(Now() + fate.delay, std::move(held));
  return std::nullopt;
}

std::optional<transport::cm::ConnectedPeer> CmServiceImpl::PassToManager(
    const transport::cm::IncomingMad& in,
    std::optional<transport::cm::CmId> steered_to, int copies) {
  using State = transport::cm::State;
  const bool may_connect = steered_to.has_value() &&
                           manager_->state(*steered_to) != State::kEstablished;
  for (int i = 0; i < copies; ++i) manager_->OnMad(in, Now());
  // Report neither duplicates nor MADs of senders other than the peer.
  if (!may_connect || manager_->state(*steered_to) != State::kEstablished) {
    return std::nullopt;
  }
  return manager_->Connected(*steered_to);
}

void CmServiceImpl::Send(const transport::cm::OutgoingMad& mad) {
  const CmFaults::Fate fate = FateOf(true, mad.bytes, mad.remote);
  if (fate.delay != 0) {
    if (!HasRoomToHold()) return;
    HeldMad held;
    held.out = mad;
    held_.emplace(Now() + fate.delay, std::move(held));
    return;
  }
  for (int i = 0; i < fate.copies; ++i) (void)sockets_.Send(mad);
}

bool CmServiceImpl::HasRoomToHold() {
  if (held_.size() < kMaxHeld) return true;
  WarnOnce("fault rules hold " + std::to_string(kMaxHeld) +
           " messages of the connection manager: others that they would delay "
           "are lost");
  return false;
}

std::vector<transport::cm::ConnectedPeer> CmServiceImpl::ReleaseHeld() {
  const Time now = Now();
  std::vector<transport::cm::ConnectedPeer> connected;
  while (!held_.empty() && held_.begin()->first <= now) {
    HeldMad held = std::move(held_.begin()->second);
    held_.erase(held_.begin());
    if (faults_->LinkIsDown()) continue;
    if (held.out) {
      (void)sockets_.Send(*held.out);
    } else {
      held.in.bytes = held.bytes;
      if (auto peer = PassToManager(held.in, held.steered_to)) {
        connected.push_back(std::move(*peer));
      }
    }
  }
  return connected;
}

void CmServiceImpl::Drain() {
  transport::cm::OutgoingMad mad;
  while (manager_->PollTransmit(&mad)) Send(mad);
  Time next = manager_->NextTimeout();
  if (!held_.empty()) next = std::min(next, held_.begin()->first);
  // A later deadline is noticed when the earlier one expires.
  if (next < deadline_.exchange(next)) sockets_.Ring();
}

bool CmServiceImpl::FindHandler(Handler* handler) {
  const auto known = handlers_.find(next_->id);
  if (next_->kind != EventKind::kRequest &&
      next_->kind != EventKind::kServiceRequest) {
    if (known != handlers_.end()) *handler = known->second;
    return known != handlers_.end();
  }
  const auto listening = listening_.find(next_->listener);
  if (listening != listening_.end()) {
    *handler = services_.at(listening->second).handler;
    handlers_.insert_or_assign(next_->id, *handler);
    return true;
  }
  // The listener has ended before the application has seen the request.
  if (known != handlers_.end()) {
    *handler = std::move(known->second);
    handlers_.erase(known);
  }
  (void)manager_->Destroy(next_->id, Now());
  Drain();
  return false;
}

void CmServiceImpl::Dispatch() {
  std::unique_lock lock(mutex_);
  dispatcher_ = std::this_thread::get_id();
  while (next_.has_value() || manager_->PollEvent(&next_.emplace())) {
    running_ = true;
    // If a handler runs out of memory it is called again; only the bell wakes
    // us for that.
    absl::Cleanup again = [this] { sockets_.Ring(); };
    const absl::Cleanup ended = [&] {
      if (!lock.owns_lock()) lock.lock();
      running_ = false;
      done_->notify_all();
    };
    Handler handler;
    const bool wanted = FindHandler(&handler);
    Event event = *next_;
    const auto listening = listening_.find(event.listener);
    event.listener = listening == listening_.end() ? 0 : listening->second;
    lock.unlock();
    if (wanted) handler->OnCmEvent(event);
    handler.reset();
    lock.lock();
    next_.reset();
    std::move(again).Cancel();
  }
  next_.reset();
}

}  // namespace rxe_user
