// What a recording knows about the queues of a process: to which work request a
// packet or completion belongs, and which event caused which. No I/O, no clock,
// no lock.
#ifndef RXE_USER_OBSERVE_TRACE_QUEUES_H_
#define RXE_USER_OBSERVE_TRACE_QUEUES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "rxe_user/observe/trace_events.h"
#include "transport/base/rare_event.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user::trace {

// A posted work request.
struct Post {
  uint64_t wr_id = 0;
  uint64_t remote_address = 0;
  uint64_t bytes = 0;
  uint32_t rkey = 0;
  uint32_t flags = 0;  // transport::SendFlag
  uint16_t sges = 0;
  transport::SendOpcode opcode = transport::SendOpcode::kSend;
  bool signaled = true;
  uint64_t id = 0;   // of its event
  int64_t time = 0;  // when it was posted, ns of CLOCK_MONOTONIC
  uint32_t first_psn = 0;
  uint32_t last_psn = 0;
  bool begun = false;  // whether it has its PSNs
};

// A queue to which work requests are posted.
struct QueueName {
  QueueKind kind = QueueKind::kSend;
  uint32_t number = 0;  // of the queue pair, or of the shared receive queue
};

class TraceQueues {
 public:
  // The id of the next event. Thread: any.
  uint64_t NextId() { return ++last_id_; }

  // --- Work requests.

  // Gives the requests their ids, and adds them to the queue.
  void Add(const QueueName& queue, std::span<Post> posts);
  // The newest requests of the queue, `posts`, were refused.
  void Remove(const QueueName& queue, std::span<const Post> posts);

  // --- Packets. Sets id, cause and queue pair in the header, and the message.
  // Returns the work request that begins with the packet. `*repeated`, unless
  // null: the PSN of a request packet that was sent before.
  std::optional<BegunEvent> OnPacket(
      const transport::ObservedPacket& packet, PacketEvent* event,
      std::optional<uint32_t>* repeated = nullptr);

  // --- Decisions of a queue pair. They return the id and cause of the event.

  struct Id {
    uint64_t id = 0;
    uint64_t cause = 0;
  };
  Id OnDecision(const transport::RareEvent& event);
  // The request with this PSN; null if unknown.
  const Post* FindByPsn(uint32_t qpn, uint32_t psn) const;
  // The highest PSN that the queue pair has sent.
  uint32_t highest_psn(uint32_t qpn) const;
  // Why the queue pair retransmits.
  RetransmissionReason why(uint32_t qpn) const;
  // From now on, messages are segmented into packets of this size, bytes.
  void SetMtu(uint32_t qpn, transport::QpType type, uint32_t mtu);

  // --- Completions.

  // `queue`: where the request was posted; `cq`: where it completes. Returns
  // the events: those of requests without a completion that ended with it, and
  // its own. `*ended`, unless null: the request; empty if unknown.
  std::vector<CompletedEvent> OnCompletion(
      const transport::Completion& completion, const QueueName& queue,
      uint64_t cq, std::optional<Post>* ended = nullptr);
  // The id of the completion that the program polled; 0 if unknown.
  uint64_t OnPolled(uint64_t cq, uint32_t qpn, uint64_t wr_id);
  // Counts a poll that found nothing; returns and forgets the count.
  void OnEmptyPoll(uint64_t cq) { ++completions_[cq].empty_polls; }
  uint64_t TakeEmptyPolls(uint64_t cq);

  // The queue was destroyed; its number is not reused.
  void ForgetQueue(const QueueName& queue);
  void ForgetCq(uint64_t cq) { completions_.erase(cq); }

 private:
  // The limit of remembered requests and completions of a queue. Needed because
  // nothing removes the receives of an XRC SRQ.
  static constexpr size_t kMax = 1 << 16;

  struct QueuePair {
    transport::QpType type = transport::QpType::kRc;
    uint32_t mtu = 1024;
    // Posted, not completed; the first `begun` of them have their PSNs.
    std::deque<Post> sends;
    size_t begun = 0;
    uint32_t messages = 0;
    bool has_sent = false;
    uint32_t highest_psn = 0;
    uint64_t last_begun = 0;     // event of the message that is being sent
    uint64_t coming_packet = 0;  // id of the packet that is being processed
    uint64_t decision = 0;       // the last NAK or timer
    uint64_t repeat = 0;         // the last retransmission or timer
    uint64_t nak = 0;            // the NAK that is to be sent
    uint64_t error = 0;          // the change to ERR or SQE
    RetransmissionReason why = RetransmissionReason::kGap;

    bool is_reliable() const {
      return type != transport::QpType::kUc && type != transport::QpType::kUd;
    }
  };
  struct Unpolled {
    uint64_t id;
    uint32_t qpn;
    uint64_t wr_id;
  };
  struct Completions {
    std::deque<Unpolled> unpolled;
    uint64_t empty_polls = 0;
  };

  std::deque<Post>& ListOf(const QueueName& queue);
  // The id of the packet that the queue pair is processing; its event follows.
  uint64_t ComingPacket(QueuePair* qp);
  std::optional<BegunEvent> OnRequest(QueuePair* qp,
                                      const transport::ObservedPacket& packet,
                                      PacketEvent* event,
                                      std::optional<uint32_t>* repeated);
  std::optional<BegunEvent> Begin(QueuePair* qp, uint32_t psn, bool is_read);
  // `has_answer`: the cause of a successful completion is a packet.
  uint64_t CauseOf(const transport::Completion& completion, bool has_answer,
                   QueuePair* qp);
  void Forget(uint32_t qpn);

  std::atomic<uint64_t> last_id_ = 0;
  std::unordered_map<uint32_t, QueuePair> queue_pairs_;
  std::unordered_map<uint64_t, std::deque<Post>> receives_;  // by kind, number
  std::unordered_map<uint64_t, Completions> completions_;    // by CQ
};

}  // namespace rxe_user::trace

#endif  // RXE_USER_OBSERVE_TRACE_QUEUES_H_
