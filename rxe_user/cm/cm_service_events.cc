// What the control thread does.
#include <utility>

#include "rxe_user/cm/cm_service_impl.h"

namespace rxe_user {

using transport::cm::Event;
using transport::cm::EventKind;

void CmServiceImpl::OnBell() {
  sockets_.Silence();
  {
    const std::lock_guard lock(mutex_);
    manager_->OnTimer(Now());
    Drain();
  }
  Dispatch();
}

void CmServiceImpl::OnBroker() {
  slot_->OnReadable([this](const Stray& stray) {
    OnDatagram({.source = stray.source,
                .destination = stray.destination,
                .source_port = stray.source_port},
               stray.bytes);
  });
  // Who reads which socket may have changed.
  control_->Refresh();
  Dispatch();
}

// What comes to the slot's own socket is taken, whether it is of use or not.
void CmServiceImpl::OnSocket(const LocalAddress& local) {
  const bool of_use = slot_->ManagementOf(local) == Slot::Management::kSocket;
  CmSockets::Read(
      local, sockets_.Received(local),
      [&](const transport::cm::MadFlow& flow, std::span<const uint8_t> bytes) {
        if (of_use) OnDatagram(flow, bytes);
      });
  Dispatch();
}

void CmServiceImpl::OnUndelivered(const LocalAddress& local) {
  sockets_.ReadUndelivered(local, [&](const transport::cm::OutgoingMad& mad) {
    const std::lock_guard lock(mutex_);
    manager_->OnUndelivered(mad, Now());
    Drain();
  });
}

void CmServiceImpl::OnDatagram(const transport::cm::MadFlow& flow,
                               std::span<const uint8_t> bytes) {
  std::span<const uint8_t> mad;
  if (ParseMadPacket(flow, bytes, &mad) != transport::cm::MadPacketError::kOk) {
    return;
  }
  const std::lock_guard lock(mutex_);
  manager_->OnMad(
      {.local = flow.destination, .remote = flow.source, .bytes = mad}, Now());
  Drain();
}

void CmServiceImpl::OnAddresses() {
  const std::vector<LinkWatch::News> news = sockets_.ReadWatch();
  {
    const std::lock_guard lock(opening_);
    if (listens_all_) OpenAll();
  }
  // It does not change any more.
  if (on_link_ == nullptr) return;
  for (const LinkWatch::News& n : news) on_link_(n.interface, n.change);
}

void CmServiceImpl::Drain() {
  transport::cm::OutgoingMad mad;
  while (manager_->PollTransmit(&mad)) (void)sockets_.Send(mad);
  Event event;
  while (manager_->PollEvent(&event)) events_.push_back(event);
  const Time next = manager_->NextTimeout();
  // A later one is noticed when the earlier one comes.
  if (next < deadline_.exchange(next)) sockets_.Ring();
}

CmServiceImpl::Handler CmServiceImpl::HandlerOf(const Event& event) {
  if (event.kind != EventKind::kRequest &&
      event.kind != EventKind::kServiceRequest) {
    const auto found = handlers_.find(event.id);
    return found == handlers_.end() ? nullptr : found->second;
  }
  const auto listening = listening_.find(event.listener);
  if (listening != listening_.end()) {
    return handlers_[event.id] = services_.at(listening->second).handler;
  }
  // Its listener is gone, and the application has never heard of it.
  (void)manager_->Destroy(event.id, Now());
  Drain();
  return nullptr;
}

void CmServiceImpl::Dispatch() {
  std::unique_lock lock(mutex_);
  dispatcher_ = std::this_thread::get_id();
  while (!events_.empty()) {
    running_ = std::move(events_.front());
    events_.pop_front();
    Handler handler = HandlerOf(*running_);
    if (handler != nullptr) {
      Event event = *running_;
      const auto listening = listening_.find(event.listener);
      event.listener = listening == listening_.end() ? 0 : listening->second;
      lock.unlock();
      handler->OnCmEvent(event);
      handler.reset();
      lock.lock();
    }
    running_.reset();
    done_->notify_all();
  }
}

}  // namespace rxe_user
