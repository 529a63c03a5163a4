// Decides the fate of packets by rules. The fate by chance of a packet is a
// pure function of seed, rule, direction, ordinal of its queue pair, PSN
// relative to the first one, and iteration, and for a DC target, of how often
// its initiator has connected. It does not depend on timing, threads or other
// queue pairs. nth=, every= and times= are counted for each rule.
//
// No I/O, clocks or locks: one thread at a time.
#ifndef TRANSPORT_FAULTS_INJECTOR_H_
#define TRANSPORT_FAULTS_INJECTOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/types.h"
#include "transport/faults/calls.h"
#include "transport/faults/corrupt.h"
#include "transport/faults/messages.h"
#include "transport/faults/rule.h"
#include "wire/address.h"
#include "wire/packet.h"

namespace transport::faults {

// A packet that is about to be received or sent.
struct PacketFacts {
  bool transmitted = false;
  uint32_t qpn = 0;  // the local queue pair
  const wire::PacketView* packet = nullptr;
  wire::IpAddress peer;
};

// A completion that is about to be added to its queue, and has succeeded.
struct CompletionFacts {
  bool sent = false;  // of the send queue
  uint32_t qpn = 0;
  uint64_t wr_id = 0;
  uint64_t bytes = 0;        // byte_len
  bool may_be_late = false;  // the queue has a channel, and is not armed
};

// The device is about to use memory of the program.
struct TransferFacts {
  bool reads = false;  // else it writes
  uint32_t qpn = 0;
  uint64_t bytes = 0;
};

struct Fate {
  const Rule* rule = nullptr;  // null: nothing happens to it
  Time delay = 0;              // kDelay, kStall
  PacketBit flipped;           // kCorrupt
  // The packet is dropped because of an earlier hit: an acknowledgement after
  // kNoAck, any packet after kLink. Not counted.
  bool is_consequence = false;
};

// The peer that sent a request. For a DC target, the initiator.
struct RequesterFacts {
  wire::IpAddress address;
  uint32_t qpn = 0;
};

// The fate of a call of the program, or of a CM message.
struct NumberedFate {
  const Rule* rule = nullptr;  // null: nothing happens to it
  // Among the calls of this name, or the messages of this attribute and
  // direction, from 1.
  uint64_t number = 0;
  Time delay = 0;  // kDelay, kStall
};

// A CM message that is about to be processed or sent.
struct MadFacts {
  bool transmitted = false;
  uint16_t attribute = 0;
  wire::IpAddress peer;
};

// How often a rule matched and fired.
struct RuleCount {
  uint64_t matched = 0;  // packets that it is for, within its time
  uint64_t fired = 0;
  bool removed = false;  // matches nothing any more
};

// What the rules are about: bits.
enum Concern : uint32_t {
  kReceived = 1,     // packets that are received
  kTransmitted = 2,  // packets that are sent
  kRefusals = 4,     // requests that are refused in place of being executed
  kCompletions = 8,
  kProgramCalls = 16,
  kTransfers = 32,  // those whose memory is taken away
  kIterations = 64,
  kReceivedMessages = 128,
  kNextConcern = 256,  // for other bits of the caller
};

class Injector {
 public:
  // The most rules that Add permits, including removed ones.
  static constexpr size_t kMaxRulesEver = 4096;

  // `start`: the time from which `after=` counts.
  Injector(std::vector<Rule> rules, uint64_t seed, Time start);

  // --- Changes of the rules while packets pass. A rule keeps its number, which
  // no other rule gets, and its address: the rules that Decide and the others
  // return live as long as this object.

  // Numbers the rules, which come after all others; `after=` counts from `now`.
  // False, without a change, if there would be more than kMaxRulesEver.
  bool Add(std::vector<Rule> rules, Time now);
  // False if there is no such rule. A hit of the rule has no more effect on
  // later packets (kNoAck, kRnr, kNak).
  bool Remove(uint32_t number);

  // --- Queue pairs. One that OnCreated has not named has the ordinal 0, and
  // its PSNs count from 0.
  // `has_cqs`, `has_srq`: whether it has these, so that a rule can raise events
  // of them.
  void OnCreated(uint32_t qpn, bool has_cqs = true, bool has_srq = false);
  // The first PSN that the peer sends (RTR). Forgets the packets and messages
  // of both directions.
  void OnReceivePsn(uint32_t qpn, uint32_t psn);
  // The first PSN that the queue pair sends (RTS).
  void OnSendPsn(uint32_t qpn, uint32_t psn);
  // RESET: the messages of both directions count anew.
  void OnReset(uint32_t qpn);
  // Bytes of payload of a packet of RC, DC or XRC (RTR).
  void OnPathMtu(uint32_t qpn, uint32_t bytes);
  void OnDestroyed(uint32_t qpn);
  // A work request that sends a message is about to be posted. May throw
  // bad_alloc; the caller then counts it by OnPostedUnknown.
  void OnPosted(uint32_t qpn, const PostedRequest& request);
  // `count` are about to be posted that there was no memory to store.
  void OnPostedUnknown(uint32_t qpn, size_t count);
  // The last `count` of both were refused.
  void OnPostRefused(uint32_t qpn, size_t count);
  // Posted requests that have sent nothing yet were flushed.
  void OnFlushed(uint32_t qpn);
  // A packet is about to be sent, whether or not Decide is called for it.
  void OnSent(uint32_t qpn, const wire::PacketView& packet);

  // The first rule that fires decides. Each rule counts the packets that match
  // it, whatever the others do. Call once for each packet, in their order. If
  // there is no memory, nothing happens to the packet.
  Fate Decide(const PacketFacts& facts, Time now);
  // In place of Decide for a packet that is lost anyway: it is an iteration,
  // and may begin a message.
  void CountOnly(const PacketFacts& facts);
  // The rule by which a call of the program ("ibv_reg_mr") fails (kFail), or at
  // which something else happens (call=); null: none. `wr_id`: of the first
  // request, if the call posts some. Call once for each call.
  NumberedFate DecideCall(std::string_view call, std::optional<uint64_t> wr_id,
                          Time now);
  // Call once for each message, in their order.
  NumberedFate DecideMad(const MadFacts& facts, Time now);
  // The rule, of those for completions, that hits this one; null: none. Call
  // once for each completion, in their order.
  const Rule* DecideCompletion(const CompletionFacts& facts, Time now);
  // The rule, kUnmap, that hits the transfer; null: none. `*number` is that of
  // the transfer among those of its queue pair and direction, from 1. Call once
  // for each transfer, in their order.
  const Rule* DecideTransfer(const TransferFacts& facts, Time now,
                             uint32_t* number);
  // Fires the timed rule that begins first, of those whose time has come and
  // that have not fired; null: none. A call may be late: a rule whose time is
  // over meanwhile fires, too, unless it was over before the first call, or
  // before the last SkipTimedUntil.
  const Rule* TakeTimed(Time now);
  // Timed rules whose time is over at `now` do not fire any more.
  void SkipTimedUntil(Time now) { timed_from_ = now; }
  // When the next timed rule fires after `now`; kNever: there is none.
  Time NextTimed(Time now) const;
  // Whether the rule has not been removed, and its time is not over.
  bool IsValid(const Rule& rule, Time now) const {
    return !counts_[rule.number - 1].removed && IsItsTime(rule, now);
  }
  // When the rule's time begins, and when it is over; kNever: never.
  Time BeginOf(const Rule& rule) const {
    return since_[rule.number - 1] + rule.after;
  }
  Time EndOf(const Rule& rule) const;
  // The rule, kRnr or kNak, that has hit this request before it is executed;
  // null: none. Forgets it, and those that are for earlier requests of the
  // requester.
  const Rule* TakeRefusal(uint32_t qpn, const RequesterFacts& requester,
                          uint32_t psn);

  const std::deque<Rule>& rules() const { return rules_; }
  // In the order of the rules.
  std::span<const RuleCount> counts() const { return counts_; }
  // Bits of Concern.
  uint32_t concerns() const { return concerns_; }
  bool concerns(Concern what) const { return (concerns_ & what) != 0; }

 private:
  // More requests than a window can have. Those beyond a gap wait to be
  // executed.
  static constexpr size_t kMaxRefusals = 4096;
  // The most initiators of a DC target that are known. A target has at most
  // this many connections (DcConnections::kMax).
  static constexpr size_t kMaxInitiators = 2048;

  // How often each packet of one direction has been seen. Remembers the last
  // kRemembered PSNs.
  class Iterations {
   public:
    uint32_t Count(uint8_t opcode, uint32_t psn);

   private:
    static constexpr size_t kRemembered = 4096;
    struct Entry {
      uint32_t key = 0;  // opcode and PSN
      uint32_t count = 0;
    };
    std::vector<Entry> entries_;  // allocated by the first call
  };
  // kRnr, kNak: a request that has arrived and is not executed yet.
  struct Refusal {
    uint32_t psn = 0;
    const Rule* rule = nullptr;
  };
  // What is known of one peer of a queue pair.
  struct Connection {
    // Keeps what a rule that has hit the request `psn` needs later. May throw
    // bad_alloc.
    void Remember(const Rule& rule, uint32_t psn);
    // The rule was removed.
    void Forget(const Rule* rule);
    // A packet of a message has arrived. May throw bad_alloc.
    void CountMessage(const wire::PacketView& packet, uint32_t path_mtu);
    // For a DC target: a packet is seen. If it begins another session, all
    // counts begin anew: the initiator has connected again, or it is another
    // one with the same number and address. Late packets of an earlier session
    // change nothing.
    void FollowSession(const wire::PacketView& packet);

    // kNoAck: the responses that acknowledge this request are dropped until it,
    // or one before it, arrives again.
    const Rule* unacknowledged_by = nullptr;  // null: none
    uint32_t unacknowledged_psn = 0;
    std::vector<Refusal> refusals;
    Iterations sent;
    Iterations received;
    Messages received_messages;
    // --- For a DC target.
    uint32_t number = 0;  // of the initiator, in the order of first packets
    std::optional<uint32_t> session;  // the initiator's; absent: no packet yet
    std::optional<uint32_t> last_session;  // the one before
    bool may_have_ended = false;           // a CONNECT may not have been seen
    uint32_t first_psn = 0;                // of the session's first packet seen
    uint32_t sessions_before = 0;          // as far as they are known
    uint64_t used = 0;                     // uses_ at the last use
  };
  using Initiator = std::pair<wire::IpAddress, uint32_t>;  // address, number
  struct QueuePair {
    template <typename Visit>
    void ForEach(const Visit& visit) {
      visit(own);
      for (auto& [initiator, connection] : of_initiators) visit(connection);
    }

    uint32_t ordinal = 0;
    bool has_cqs = false;
    bool has_srq = false;
    uint32_t transfers[2] = {};  // so far: to memory, from memory
    uint32_t send_psn = 0;
    uint32_t receive_psn = 0;
    bool knows_receive_psn = false;  // if not, the first packet sets it
    uint32_t path_mtu = 1024;
    Messages sent_messages;
    Connection own;
    // For a DC target.
    std::map<Initiator, Connection> of_initiators;
    uint32_t initiators = 0;  // so far
  };
  // A rule that fires, and its delay with the jitter that it drew.
  struct Firing {
    const Rule* rule = nullptr;  // null: none
    Time delay = 0;
  };

  QueuePair* Find(uint32_t qpn);  // null if it is not known
  // The first rule whose time it is, for which `is_for` is true, and that
  // fires. Counts. `random_of`: the random number of the rule, from that of
  // seed and rule, and from its count of matches.
  template <typename IsFor, typename RandomOf>
  Firing FirstThatFires(Time now, const IsFor& is_for,
                        const RandomOf& random_of);
  // The connection of the packet: a DC target has one for each initiator. May
  // throw bad_alloc.
  Connection* ConnectionOf(const PacketFacts& facts, QueuePair* qp);
  // Returns the iteration. May throw bad_alloc.
  uint32_t Count(const PacketFacts& facts, const QueuePair& qp,
                 Connection* connection);
  // The rule by which the packet is an acknowledgement that is dropped; null:
  // none. `connection` may be null.
  static const Rule* TakeUnacknowledged(const PacketFacts& facts,
                                        Connection* connection);

  // The PSN counted from the first one. `qp` and `connection` may be null,
  // both.
  static uint32_t RelativePsn(const PacketFacts& facts, QueuePair* qp,
                              const Connection* connection);
  // `qp` and `connection` may be null, both.
  static bool Matches(const Rule& rule, const PacketFacts& facts,
                      const QueuePair* qp, const Connection* connection,
                      uint32_t relative, uint32_t iteration);
  // Whether the packet is of the message that the rule names.
  static bool IsOfMessage(const Rule& rule, const PacketFacts& facts,
                          const QueuePair& qp, const Connection& connection);
  // Whether `now` is within the rule's time.
  bool IsItsTime(const Rule& rule, Time now) const {
    const Time age = now - since_[rule.number - 1];
    // If kLink is not timed, `during` counts from the hit.
    const bool lasts = rule.action == Action::kLink && !rule.is_timed;
    return age >= rule.after && (lasts || age - rule.after < rule.during);
  }
  bool Fires(const Rule& rule, uint64_t match, uint64_t chance) const;
  // Sets live_ and concerns_. Iterations of a direction, and messages, count
  // anew if they were not counted before. Allocates no memory but that of
  // live_.
  void OnRulesChanged();

  std::deque<Rule> rules_;         // by number; never erased
  std::vector<const Rule*> live_;  // those that were not removed
  std::vector<Time> since_;        // when each was added
  const uint64_t seed_;
  uint32_t concerns_ = 0;
  std::vector<RuleCount> counts_;
  uint64_t calls_[std::size(kCalls)] = {};  // so far, by name
  uint64_t mads_[2][kMads] = {};            // so far: received, sent
  uint32_t created_ = 0;
  uint64_t uses_ = 0;               // of connections of DC targets
  std::optional<Time> timed_from_;  // the first TakeTimed
  std::unordered_map<uint32_t, QueuePair> queue_pairs_;
};

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_INJECTOR_H_
