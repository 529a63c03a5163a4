// The engine of the runs of UC, UD, XRC and DC: hosts and links from a
// Scenario, memory, planned messages, applications that post them at random
// times, and the checks of their completions. A service adds its queue pairs,
// addresses, and the checks of what it promises.
#ifndef TRANSPORT_SIM_SERVICE_RUN_H_
#define TRANSPORT_SIM_SERVICE_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/operations.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"
#include "transport/sim/run.h"
#include "transport/sim/scenario.h"

namespace sim {

// Guard bytes between two allocations.
inline constexpr uint64_t kGap = 64;
inline constexpr uint32_t kAtomicBytes = 8;

// The memory of a protection domain: one region. Places are reserved while
// messages are planned; then the memory is allocated.
struct Pool {
  transport::PdId pd = 7;
  uint64_t bytes = 0;
  std::unique_ptr<uint8_t[]> buffer;
  Region region;

  // Returns an offset.
  uint64_t Reserve(uint64_t length);
  // Allocates `bytes`, not initialized, and registers them as
  // [va, va + bytes).
  void Register(Node& node, uint64_t va, uint32_t access = kAllAccess);
};

// Bytes of a pool.
struct Place {
  Pool* pool = nullptr;
  uint64_t offset = 0;

  uint8_t* bytes() const { return pool->buffer.get() + offset; }
  uint64_t addr() const { return pool->region.va + offset; }
  bool Holds(const std::vector<uint8_t>& content) const;
};

// A send work request and its expected effect.
struct Message {
  transport::SendOpcode opcode = transport::SendOpcode::kSend;
  uint32_t flags = 0;
  uint32_t imm_be = 0;
  int to = 0;                 // index of its target, as the service counts them
  uint32_t header = 0;        // kTso: bytes of `content` that are the header
  uint8_t traffic_class = 0;  // UD only
  Place local;                // source, or destination of a READ or atomic
  Place remote;               // target of RDMA and atomics
  uint64_t operand = 0;       // atomics
  uint64_t found = 0;         // atomics: expected original value
  std::vector<uint8_t> content;  // payload, or the data of a READ
  bool abandoned = false;        // its queue pair was reset
  size_t arrived = 0;            // times that a receive completed for it

  bool writes() const { return Writes(opcode); }
  bool has_imm() const { return HasImm(opcode); }
  bool atomic() const { return IsAtomic(opcode); }
  bool takes_receive() const { return TakesReceive(opcode); }
  bool signaled() const { return (flags & transport::kSendSignaled) != 0; }
  bool is_inline() const { return (flags & transport::kSendInline) != 0; }
  uint32_t length() const { return static_cast<uint32_t>(content.size()); }
};

// A send queue and its messages.
struct Sender {
  Node* node = nullptr;
  SimCq send_cq;
  std::unique_ptr<transport::QueuePair> qp;
  std::vector<Message> messages;
  size_t posted = 0;
  size_t completed = 0;  // by signaled completions, or skipped by them
};

// An SRQ and its receives, of Run's slot size.
struct SharedQueue {
  explicit SharedQueue(Pool* pool) : pool(pool), queue(pool->pd) {}
  Pool* const pool;
  SimSrq queue;
  std::vector<Place> slots;  // by wr_id
  size_t posted = 0;
};

class ServiceRun : public Run {
 public:
  std::string Describe() const override { return scenario_.ToString(); }

 protected:
  // `varies_sources`: messages are posted in two pieces, some of them inline,
  // and their sources are overwritten once the application owns them again.
  ServiceRun(uint64_t seed, bool varies_sources);

  // --- Hooks of the service.
  // Sets the fields of `request` that say where it goes.
  virtual void Address(Sender&, const Message&, transport::SendRequest*) {}
  // Takes a completion that need not be the next in order, after a fault.
  virtual bool TakesOutOfOrder(Sender&, const transport::Completion&) {
    return false;
  }

  // --- Building.
  // Draws the maximum message length, at most `max`, and the slot size.
  void DrawMaxLength(uint32_t max);
  Node& AddHost();
  transport::QpConfig Config(transport::QpType type, uint32_t qpn, Node& node,
                             transport::CompletionSink* send_cq,
                             transport::CompletionSink* recv_cq);
  // Attributes of the scenario's first connection.
  transport::QpAttributes Attributes(uint32_t peer_qpn,
                                     const wire::IpAddress& own,
                                     const wire::IpAddress& peer) const;
  void BringUp(transport::QueuePair& qp, const transport::QpAttributes& to);

  // --- Planning.
  // Draws the opcode of a message of a reliable service.
  transport::SendOpcode DrawReliableOpcode();
  // Draws the other properties of such a message, except its places. `word` is
  // the value of the counter that the sender's atomics change.
  void DrawReliable(Message& message, uint64_t* word, bool solicited);
  // Draws the flags of a message of an unreliable service.
  void DrawUnreliableFlags(Message& message, uint32_t length);
  void DrawContent(Message& message, uint32_t length);
  // Puts the data of READs where they will be read.
  static void PlaceReads(const Sender& sender);

  // --- The application.
  // Calls `application` after a random time of up to `pause`.
  void RunAgain(Node& node, Time pause, std::function<void()> application);
  Time DrawPause();
  // Posts some messages, up to number `limit`.
  void PostSends(Sender& sender, size_t limit);
  void PostSend(Sender& sender);
  // Posts receives: all if `plenty`, otherwise some. True: all are posted.
  bool PostReceives(SharedQueue& shared, bool plenty);
  // Polls the send CQ. Signaled messages succeed in order.
  void TakeSends(Sender& sender);

  // --- Checks.
  // Whether `completion` reports `message`, with the data at `at`. `grh`: bytes
  // of an IP header before them.
  static bool Matches(const Message& message,
                      const transport::Completion& completion,
                      const uint8_t* at, uint32_t grh = 0);
  static void SkipUnsignaled(Sender& sender);
  void CheckAllSent(Sender& sender);
  // Checks that all messages have arrived and have had their effect. `atomics`:
  // that of atomics is known.
  void CheckEffects(const Sender& sender, bool atomics = true);
  void FailAt(const Sender& sender, const std::string& text);

  const Scenario scenario_;
  Random random_;
  const uint32_t path_mtu_;
  uint32_t max_length_ = 0;
  uint32_t slot_bytes_ = 0;  // of a receive
  SimEvents events_;

 private:
  const bool varies_sources_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_SERVICE_RUN_H_
