#include "rxe_user/testing/node.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "rxe_user/engine/engine_registry.h"
#include "transport/testing/bring_up.h"

namespace rxe_user {
namespace {

using transport::Completion;

constexpr auto kTimeout = std::chrono::seconds(10);

}  // namespace

EventCq::EventCq()
    : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      ring_(std::make_unique<Completion[]>(kCapacity)) {}
EventCq::~EventCq() { ::close(fd_); }

bool EventCq::Push(const Completion& completion) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (tail_ - head_ == kCapacity) return false;
  ring_[tail_++ % kCapacity] = completion;
  const uint64_t one = 1;
  if (tail_ - head_ == 1) (void)!::write(fd_, &one, sizeof(one));
  return true;
}

std::optional<Completion> EventCq::Poll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (head_ == tail_) return std::nullopt;
  OpenMemory::Order();
  const Completion completion = ring_[head_++ % kCapacity];
  completion.slot.Free();
  uint64_t count;
  if (head_ == tail_) (void)!::read(fd_, &count, sizeof(count));
  return completion;
}

std::shared_ptr<EngineImpl> MakeLoopbackEngine(const wire::IpAddress& address,
                                               EngineImpl::Parts parts) {
  auto device = std::make_shared<Device>();
  device->name = "test";
  device->netdev = "lo";
  device->ifindex = 1;
  device->loopback = true;
  device->mtu = 65536;
  device->roce_mtu = 4096;
  device->gids = {{address, 0}};
  return MakeEngine(std::move(device), std::move(parts));
}

Node::Node(TestSlots& slots, const wire::IpAddress& address,
           std::function<absl::StatusOr<std::unique_ptr<Port>>()> make_port,
           const std::function<void(EngineImpl&)>& before_open)
    : address_(address),
      engine_(MakeLoopbackEngine(address, {[&slots] { return slots.Acquire(); },
                                           std::move(make_port)})) {
  if (before_open) before_open(*engine_);
  MakeQueuePair();
}

Node::Node(std::shared_ptr<EngineImpl> engine, const wire::IpAddress& address)
    : address_(address), engine_(std::move(engine)) {
  MakeQueuePair();
}

void Node::MakeQueuePair() {
  const absl::StatusOr<uint32_t> qpn = engine_->AllocateQpn();
  EXPECT_TRUE(qpn.ok()) << qpn.status();
  if (!qpn.ok()) return;
  qpn_ = *qpn;
  lane_ = engine_->LaneOf(qpn_);
  transport::QpConfig config;
  config.qpn = qpn_;
  config.capacity = {512, 512, 4, 4, 64};
  config.signal_all = true;
  config.memory = &memory_;
  config.send_cq = &cq_;
  config.recv_cq = &cq_;
  config.events = this;
  const Lane::Guard guard(lane());
  qp_ = transport::MakeQueuePair(lane().endpoint(), config);
}

Node::~Node() {
  if (qp_ != nullptr) {
    const Lane::Guard guard(lane());
    qp_.reset();
  }
  engine_->ReleaseQpn(qpn_);
}

void Node::ConnectTo(uint32_t peer_qpn) {
  const Lane::Guard guard(lane());
  const absl::StatusOr<uint16_t> source_port =
      engine_->SourcePort(address_, 0, qpn_, peer_qpn);
  ASSERT_TRUE(source_port.ok()) << source_port.status();
  transport::QpAttributes to =
      transport::ConnectionTo(peer_qpn, address_, address_);
  to.av.source_port = *source_port;
  to.path_mtu = 4096;
  to.sq_psn = to.rq_psn = 100;
  to.max_rd_atomic = to.max_dest_rd_atomic = 4;
  ASSERT_EQ(transport::BringUp(*qp_, to, Lane::Now()), 0);
}

int Node::PostSend(transport::SendOpcode opcode, uint64_t id, const void* data,
                   uint32_t bytes, const void* remote) {
  const transport::Sge sge = {reinterpret_cast<uint64_t>(data), bytes, 1};
  transport::SendRequest request;
  request.wr_id = id;
  request.opcode = opcode;
  request.flags = transport::kSendSignaled;
  request.sges = {&sge, 1};
  request.remote_addr = reinterpret_cast<uint64_t>(remote);
  request.rkey = 1;
  const Lane::Guard guard(lane());
  const transport::Time now = Lane::Now();
  OpenMemory::Order();
  const int error = qp_->PostSend(request, now);
  if (error == 0)
    lane().Posted(now, {.requests = 1, .bytes = bytes, .signaled = 1});
  return error;
}

int Node::Send(uint64_t id, const void* data, uint32_t bytes) {
  return PostSend(transport::SendOpcode::kSend, id, data, bytes, nullptr);
}
int Node::Write(uint64_t id, const void* data, uint32_t bytes, void* remote) {
  return PostSend(transport::SendOpcode::kRdmaWrite, id, data, bytes, remote);
}
int Node::Read(uint64_t id, void* data, uint32_t bytes, const void* remote) {
  return PostSend(transport::SendOpcode::kRdmaRead, id, data, bytes, remote);
}

int Node::Receive(uint64_t id, void* data, uint32_t bytes) {
  const transport::Sge sge = {reinterpret_cast<uint64_t>(data), bytes, 1};
  transport::ReceiveRequest request;
  request.wr_id = id;
  request.sges = {&sge, 1};
  const Lane::Guard guard(lane());
  return qp_->PostReceive(request, Lane::Now());
}

std::optional<Completion> Node::Poll() {
  const auto limit = std::chrono::steady_clock::now() + kTimeout;
  do {
    if (auto completion = cq_.Poll()) return completion;
    Progress();
  } while (std::chrono::steady_clock::now() < limit);
  return cq_.Poll();
}

std::optional<Completion> Node::Watch() {
  const auto limit = std::chrono::steady_clock::now() + kTimeout;
  do {
    if (auto completion = cq_.Poll()) return completion;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < limit);
  return std::nullopt;
}

std::optional<Completion> Node::Wait() {
  engine_->DropLease(lanes());
  for (;;) {
    if (auto completion = cq_.Poll()) return completion;
    const int error = engine_->WaitReadable(cq_.fd(), lanes());
    if (error != 0 && error != EINTR) return std::nullopt;
  }
}

}  // namespace rxe_user
