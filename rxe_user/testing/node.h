// One end of a connection over real sockets: an engine, a queue pair, and
// memory with all rights.
#ifndef RXE_USER_TESTING_NODE_H_
#define RXE_USER_TESTING_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/testing/test_slots.h"
#include "transport/queue_pairs.h"
#include "transport/testing/open_memory.h"

namespace rxe_user {

using transport::OpenMemory;

// A completion queue with a descriptor that is readable while it is not empty.
// A child of fork may destroy it at any time.
class EventCq : public transport::CompletionSink {
 public:
  EventCq();
  ~EventCq() override;
  bool Push(const transport::Completion& completion) override;
  std::optional<transport::Completion> Poll();
  int fd() const { return fd_; }

 private:
  static constexpr size_t kCapacity = 1 << 14;

  const int fd_;
  std::mutex mutex_;
  const std::unique_ptr<transport::Completion[]> ring_;
  size_t head_ = 0;  // completions taken
  size_t tail_ = 0;  // completions added
};

// The engine of a loopback device with `address`.
std::shared_ptr<EngineImpl> MakeLoopbackEngine(const wire::IpAddress& address,
                                               EngineImpl::Parts parts);

class Node : public transport::EventSink {
 public:
  // With a new engine, which is passed to `before_open` before it opens.
  Node(TestSlots& slots, const wire::IpAddress& address,
       std::function<absl::StatusOr<std::unique_ptr<Port>>()> make_port,
       const std::function<void(EngineImpl&)>& before_open = nullptr);
  // In an existing engine.
  Node(std::shared_ptr<EngineImpl> engine, const wire::IpAddress& address);
  ~Node() override;

  EngineImpl& engine() { return *engine_; }
  // Keeps the engine open after this node is destroyed.
  std::shared_ptr<EngineImpl> shared_engine() const { return engine_; }
  LaneImpl& lane() { return engine_->lane(lane_); }
  LaneSet lanes() const { return OnlyLane(lane_); }  // only that one
  const HelperThread* helper() { return engine_->helper(lane_); }
  uint32_t qpn() const { return qpn_; }

  // Moves the queue pair to RTS, with peer `peer`.
  void Connect(const Node& peer) { ConnectTo(peer.qpn()); }
  // The same for a peer at our own address, in this process or another.
  void ConnectTo(uint32_t peer_qpn);

  // Post a request; `id` becomes the completion's wr_id.
  int Send(uint64_t id, const void* data, uint32_t bytes);
  int Write(uint64_t id, const void* data, uint32_t bytes, void* remote);
  int Read(uint64_t id, void* data, uint32_t bytes, const void* remote);
  int Receive(uint64_t id, void* data, uint32_t bytes);

  // Makes progress as an empty poll of a completion queue does.
  void Progress() { engine_->Progress(lanes()); }

  // Returns the next completion: by polling; or without making progress here
  // (only the helper thread does); or by WaitReadable. Empty after 10 s.
  std::optional<transport::Completion> Poll();
  std::optional<transport::Completion> Watch();
  std::optional<transport::Completion> Wait();

  EventCq& cq() { return cq_; }
  void OnQpEvent(transport::QueuePair&, transport::QpEvent) override {}

 private:
  void MakeQueuePair();
  int PostSend(transport::SendOpcode opcode, uint64_t id, const void* data,
               uint32_t bytes, const void* remote);

  const wire::IpAddress address_;
  std::shared_ptr<EngineImpl> engine_;
  OpenMemory memory_;
  EventCq cq_;
  uint32_t qpn_ = 0;
  int lane_ = 0;  // of the queue pair
  std::unique_ptr<transport::QueuePair> qp_;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_NODE_H_
