#include "transport/faults/injector.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "wire/aeth.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace transport::faults {
namespace {

// The finalizer of SplitMix64: every bit of the input changes every bit of the
// output with a probability of one half.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// In [0, 1).
double Fraction(uint64_t random) {
  return static_cast<double>(random >> 11) * 0x1p-53;
}

Time DelayOf(const Rule& rule, uint64_t random) {
  return rule.delay + static_cast<Time>(Fraction(Mix(random)) *
                                        static_cast<double>(rule.jitter));
}

// Whether the response acknowledges the request `psn`.
bool Acknowledges(const wire::PacketView& packet, uint32_t psn) {
  if (!packet.info().is_response) return false;
  const int32_t beyond = wire::PsnDiff(packet.bth().psn, psn);
  // A NAK acknowledges what comes before its PSN.
  const bool is_nak =
      packet.info().Has(wire::kAeth) &&
      wire::AethKindOf(packet.aeth().syndrome) != wire::AethKind::kAck;
  return is_nak ? beyond > 0 : beyond >= 0;
}

// Whether it is a request of the program. A connection of DC takes a PSN, too.
bool IsOfAMessage(const wire::PacketView& packet) {
  return packet.info().is_request &&
         packet.operation() != wire::Operation::kConnect;
}

RequestFacts FactsOf(const wire::PacketView& packet, uint32_t path_mtu) {
  RequestFacts request = {.psn = packet.bth().psn,
                          .starts = packet.info().starts_message,
                          .mtu = path_mtu};
  if (packet.operation() == wire::Operation::kReadRequest) {
    request.is_read = true;
    request.bytes = packet.reth().length;
  }
  return request;
}

bool IsOfCompletions(Action action) {
  return action == Action::kComplete || action == Action::kOverrun ||
         action == Action::kLateCompletion;
}

bool Refuses(Action action) {
  return action == Action::kRnr || action == Action::kNak;
}

// Whether the rule is for something else than packets.
bool IsForNoPacket(const Rule& rule) {
  return IsOfCompletions(rule.action) || rule.action == Action::kUnmap ||
         rule.is_timed || !rule.call.empty() || rule.mads != 0;
}

}  // namespace

Injector::Injector(std::vector<Rule> rules, uint64_t seed, Time start)
    : rules_(std::make_move_iterator(rules.begin()),
             std::make_move_iterator(rules.end())),
      since_(rules_.size(), start),
      seed_(seed),
      counts_(rules_.size()) {
  Survey();
}

bool Injector::Add(std::vector<Rule> rules, Time now) {
  if (rules.size() > kMostRules - std::min(kMostRules, rules_.size())) {
    return false;
  }
  // Memory first: all of them are added, or none.
  since_.reserve(rules_.size() + rules.size());
  counts_.reserve(rules_.size() + rules.size());
  live_.reserve(rules_.size() + rules.size());
  const size_t before = rules_.size();
  try {
    for (Rule& rule : rules) {
      rule.number = static_cast<uint32_t>(rules_.size() + 1);
      rules_.push_back(std::move(rule));
    }
  } catch (...) {
    while (rules_.size() > before) rules_.pop_back();
    throw;
  }
  since_.resize(rules_.size(), now);
  counts_.resize(rules_.size());
  Survey();
  return true;
}

bool Injector::Remove(uint32_t number) {
  if (number == 0 || number > rules_.size() || counts_[number - 1].removed) {
    return false;
  }
  counts_[number - 1].removed = true;
  const Rule* const rule = &rules_[number - 1];
  for (auto& [qpn, qp] : queue_pairs_) {
    if (qp.unacknowledged_by == rule) qp.unacknowledged_by = nullptr;
    std::erase_if(qp.refusals, [rule](const QueuePair::Refusal& refusal) {
      return refusal.rule == rule;
    });
  }
  Survey();
  return true;
}

void Injector::Survey() {
  const bool counted_received = counts_iterations_ && received_;
  const bool counted_sent = counts_iterations_ && transmitted_;
  const bool counted_messages = counts_received_messages_;
  live_.clear();
  received_ = transmitted_ = refuses_ = is_for_calls_ = unmaps_ = false;
  changes_completions_ = counts_iterations_ = false;
  counts_received_messages_ = false;
  for (const Rule& rule : rules_) {
    if (counts_[rule.number - 1].removed) continue;
    live_.push_back(&rule);
    if (IsForNoPacket(rule)) {
      changes_completions_ |= IsOfCompletions(rule.action);
      unmaps_ |= rule.action == Action::kUnmap;
      is_for_calls_ |= !rule.call.empty();
      // A call begins it, but ports hold the packets.
      if (rule.action == Action::kStall) received_ = transmitted_ = true;
      continue;
    }
    // A stall holds the packets of both directions, and ACKs are transmitted.
    received_ |= rule.received || rule.action == Action::kStall;
    transmitted_ |= rule.transmitted || rule.action == Action::kStall ||
                    rule.action == Action::kNoAck;
    refuses_ |= Refuses(rule.action);
    counts_received_messages_ |= rule.message && rule.received;
    counts_iterations_ |=
        rule.iteration.has_value() || rule.chance < 1 || rule.jitter != 0;
  }
  // What passed meanwhile was not counted, so what passed before is not either.
  const bool clears_received =
      counts_iterations_ && received_ && !counted_received;
  const bool clears_sent = counts_iterations_ && transmitted_ && !counted_sent;
  const bool clears_messages = counts_received_messages_ && !counted_messages;
  if (!clears_received && !clears_sent && !clears_messages) return;
  for (auto& [qpn, qp] : queue_pairs_) {
    if (clears_messages) qp.received_messages = {};
    if (clears_received) qp.received = {};
    if (clears_sent) qp.sent = {};
  }
}

void Injector::OnCreated(uint32_t qpn, bool has_cqs, bool has_srq) {
  ++created_;
  QueuePair qp;
  qp.ordinal = created_;
  qp.has_cqs = has_cqs;
  qp.has_srq = has_srq;
  queue_pairs_[qpn] = std::move(qp);
}

void Injector::OnReceivePsn(uint32_t qpn, uint32_t psn) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp == queue_pairs_.end()) return;
  qp->second.receive_psn = psn;
  qp->second.knows_receive_psn = true;
  qp->second.sent = {};
  qp->second.received = {};
  qp->second.unacknowledged_by = nullptr;
  qp->second.refusals.clear();
  qp->second.sent_messages = {};
  qp->second.received_messages = {};
  if (counts_received_messages_) qp->second.received_messages.StartAt(psn);
}

void Injector::OnSendPsn(uint32_t qpn, uint32_t psn) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp != queue_pairs_.end()) qp->second.send_psn = psn;
}

void Injector::OnDestroyed(uint32_t qpn) { queue_pairs_.erase(qpn); }

void Injector::OnReset(uint32_t qpn) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp == queue_pairs_.end()) return;
  qp->second.sent_messages = {};
  qp->second.received_messages = {};
}

void Injector::OnPathMtu(uint32_t qpn, uint32_t bytes) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp != queue_pairs_.end() && bytes != 0) qp->second.path_mtu = bytes;
}

void Injector::OnPosted(uint32_t qpn, const PostedRequest& request) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp != queue_pairs_.end()) qp->second.sent_messages.OnPosted(request);
}

void Injector::OnFlushed(uint32_t qpn) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp != queue_pairs_.end()) qp->second.sent_messages.OnFlushed();
}

void Injector::OnPostRefused(uint32_t qpn, size_t count) {
  const auto qp = queue_pairs_.find(qpn);
  if (qp != queue_pairs_.end()) qp->second.sent_messages.OnRefused(count);
}

void Injector::OnSent(uint32_t qpn, const wire::PacketView& packet) {
  if (!IsOfAMessage(packet)) return;
  const auto qp = queue_pairs_.find(qpn);
  if (qp == queue_pairs_.end()) return;
  qp->second.sent_messages.OnSent(FactsOf(packet, qp->second.path_mtu));
}

uint32_t Injector::Iterations::Count(uint8_t opcode, uint32_t psn) {
  if (entries_.empty()) entries_.resize(kRemembered);
  const uint32_t key = static_cast<uint32_t>(opcode) << 24 | psn;
  Entry& entry = entries_[psn % kRemembered];
  if (entry.count == 0 || entry.key != key) entry = {.key = key};
  return ++entry.count;
}

void Injector::CountReceived(const wire::PacketView& packet, QueuePair* qp) {
  const RequestFacts request = FactsOf(packet, qp->path_mtu);
  switch (wire::TransportOf(packet.opcode())) {
    case wire::Transport::kUd:
      qp->received_messages.OnDatagram(request.psn);
      break;
    case wire::Transport::kUc:
    case wire::Transport::kDc:
      qp->received_messages.OnReceivedOnce(request);
      break;
    default:
      qp->received_messages.OnReceivedInOrder(request);
  }
}

uint32_t Injector::RelativePsn(const PacketFacts& facts, QueuePair* qp) {
  const uint32_t psn = facts.packet->bth().psn;
  if (qp == nullptr) return psn;
  const bool is_response = facts.packet->info().is_response;
  // A response has the PSN of its request.
  if (facts.transmitted != is_response) {
    return wire::PsnAdd(psn, -static_cast<int64_t>(qp->send_psn));
  }
  // A datagram may come from anybody.
  if (!qp->knows_receive_psn) {
    qp->receive_psn = psn;
    qp->knows_receive_psn = true;
  }
  return wire::PsnAdd(psn, -static_cast<int64_t>(qp->receive_psn));
}

bool Injector::Matches(const Rule& rule, const PacketFacts& facts,
                       const QueuePair* qp, uint32_t relative,
                       uint32_t iteration, Fate* fate) const {
  if (IsForNoPacket(rule)) return false;
  if (!(facts.transmitted ? rule.transmitted : rule.received)) return false;
  const wire::PacketView& packet = *facts.packet;
  if (!rule.opcodes[packet.opcode()]) return false;
  if (rule.qpn && *rule.qpn != facts.qpn) return false;
  if (rule.ordinal && (qp == nullptr || *rule.ordinal != qp->ordinal)) {
    return false;
  }
  if (rule.peer && *rule.peer != facts.peer) return false;
  if (rule.psn &&
      *rule.psn != (rule.psn_is_relative ? relative : packet.bth().psn)) {
    return false;
  }
  if (rule.iteration && *rule.iteration != iteration) return false;
  if (rule.longer_than && packet.payload().size() <= *rule.longer_than) {
    return false;
  }
  if ((rule.message || rule.wr_id) &&
      (qp == nullptr || !IsOfMessage(rule, facts, *qp))) {
    return false;
  }
  // They need to know more of a connection than its packets.
  if (qp == nullptr &&
      (rule.action == Action::kNoAck || Refuses(rule.action))) {
    return false;
  }
  if (rule.action == Action::kEvent && rule.event_of != EventOf::kDevice &&
      (qp == nullptr ||
       (rule.event_of == EventOf::kCompletionQueue && !qp->has_cqs) ||
       (rule.event_of == EventOf::kSharedReceiveQueue && !qp->has_srq))) {
    return false;
  }
  if (rule.action == Action::kCorrupt) {
    const std::optional<Place> place = PlaceOf(rule.corruption, packet);
    if (!place) return false;
    fate->place = *place;
  }
  return true;
}

bool Injector::IsOfMessage(const Rule& rule, const PacketFacts& facts,
                           const QueuePair& qp) {
  // An answer belongs to the message of its request.
  const bool is_own = facts.transmitted != facts.packet->info().is_response;
  // Only the program's own requests have a wr_id that it knows.
  if (rule.wr_id && !is_own) return false;
  const Message* const message =
      (is_own ? qp.sent_messages : qp.received_messages)
          .Find(facts.packet->bth().psn);
  return message != nullptr &&
         (!rule.message || *rule.message == message->number) &&
         (!rule.wr_id || rule.wr_id == message->wr_id);
}

bool Injector::Fires(const Rule& rule, uint64_t match, uint64_t chance) const {
  if (!rule.nth.empty() &&
      std::none_of(rule.nth.begin(), rule.nth.end(), [&](const Range& range) {
        return range.first <= match && match <= range.last;
      })) {
    return false;
  }
  if (match % rule.every != 0) return false;
  if (rule.chance < 1 && Fraction(chance) >= rule.chance) return false;
  return counts_[rule.number - 1].fired < rule.times;
}

uint32_t Injector::Count(const PacketFacts& facts, QueuePair* qp) {
  if (qp == nullptr) return 1;
  uint32_t iteration = 1;
  if (counts_iterations_) {
    iteration = (facts.transmitted ? qp->sent : qp->received)
                    .Count(facts.packet->opcode(), facts.packet->bth().psn);
  }
  if (counts_received_messages_ && !facts.transmitted &&
      IsOfAMessage(*facts.packet)) {
    CountReceived(*facts.packet, qp);
  }
  return iteration;
}

void Injector::CountOnly(const PacketFacts& facts) {
  const auto found = queue_pairs_.find(facts.qpn);
  if (found == queue_pairs_.end()) return;
  (void)RelativePsn(facts, &found->second);
  try {
    (void)Count(facts, &found->second);
  } catch (const std::bad_alloc&) {
    // It is not counted.
  }
}

Fate Injector::Decide(const PacketFacts& facts, Time now) {
  const auto found = queue_pairs_.find(facts.qpn);
  QueuePair* const qp = found != queue_pairs_.end() ? &found->second : nullptr;
  const uint32_t relative = RelativePsn(facts, qp);
  uint32_t iteration;
  try {
    iteration = Count(facts, qp);
  } catch (const std::bad_alloc&) {
    return {};
  }
  const uint32_t psn = facts.packet->bth().psn;
  if (qp != nullptr && qp->unacknowledged_by != nullptr) {
    if (!facts.transmitted && facts.packet->info().is_request &&
        wire::PsnDiff(psn, qp->unacknowledged_psn) <= 0) {
      qp->unacknowledged_by = nullptr;
    } else if (facts.transmitted &&
               Acknowledges(*facts.packet, qp->unacknowledged_psn)) {
      Fate fate;
      fate.rule = qp->unacknowledged_by;
      fate.is_consequence = true;
      return fate;
    }
  }
  for (const Rule* const live : live_) {
    const Rule& rule = *live;
    Fate fate;
    if (!IsItsTime(rule, now) ||
        !Matches(rule, facts, qp, relative, iteration, &fate)) {
      continue;
    }
    RuleCount& count = counts_[rule.number - 1];
    ++count.matched;
    uint64_t random = Mix(seed_ ^ Mix(rule.number));
    random = Mix(random ^
                 (uint64_t{facts.transmitted} << 63 |
                  uint64_t{qp != nullptr ? qp->ordinal : 0} << 24 | relative));
    random = Mix(random ^ iteration);
    if (!Fires(rule, count.matched, random)) continue;
    if (qp != nullptr) {
      try {
        Remember(rule, psn, qp);
      } catch (const std::bad_alloc&) {
        return {};
      }
    }
    ++count.fired;
    fate.rule = &rule;
    fate.delay = DelayOf(rule, random);
    return fate;
  }
  return {};
}

void Injector::Remember(const Rule& rule, uint32_t psn, QueuePair* qp) {
  if (rule.action == Action::kNoAck && qp->unacknowledged_by == nullptr) {
    qp->unacknowledged_by = &rule;
    qp->unacknowledged_psn = psn;
  } else if (Refuses(rule.action)) {
    if (qp->refusals.size() == kMostRefusals) qp->refusals.clear();
    qp->refusals.push_back({.psn = psn, .rule = &rule});
  }
}

CallFate Injector::DecideCall(std::string_view call,
                              std::optional<uint64_t> wr_id, Time now) {
  CallFate fate;
  const auto* const known = std::ranges::find(kCalls, call);
  if (known != std::end(kCalls)) fate.number = ++calls_[known - kCalls];
  for (const Rule* const live : live_) {
    const Rule& rule = *live;
    if (rule.call != call || !IsItsTime(rule, now) ||
        (rule.wr_id && rule.wr_id != wr_id)) {
      continue;
    }
    RuleCount& count = counts_[rule.number - 1];
    ++count.matched;
    const uint64_t random = Mix(Mix(seed_ ^ Mix(rule.number)) ^ count.matched);
    if (!Fires(rule, count.matched, random)) continue;
    ++count.fired;
    fate.rule = &rule;
    fate.delay = DelayOf(rule, random);
    return fate;
  }
  return fate;
}

CallFate Injector::DecideMad(const MadFacts& facts, Time now) {
  CallFate fate;
  const size_t index = facts.attribute - size_t{kFirstMad};
  if (index >= kMads) return fate;
  fate.number = ++mads_[facts.transmitted ? 1 : 0][index];
  for (const Rule* const live : live_) {
    const Rule& rule = *live;
    if ((rule.mads >> index & 1) == 0 || !IsItsTime(rule, now) ||
        !(facts.transmitted ? rule.transmitted : rule.received) ||
        (rule.peer && *rule.peer != facts.peer)) {
      continue;
    }
    RuleCount& count = counts_[rule.number - 1];
    ++count.matched;
    uint64_t random = Mix(seed_ ^ Mix(rule.number));
    random = Mix(random ^ (uint64_t{facts.transmitted} << 63 |
                           uint64_t{facts.attribute} << 32 | fate.number));
    if (!Fires(rule, count.matched, random)) continue;
    ++count.fired;
    fate.rule = &rule;
    fate.delay = DelayOf(rule, random);
    return fate;
  }
  return fate;
}

const Rule* Injector::DecideCompletion(const CompletionFacts& facts, Time now) {
  const auto found = queue_pairs_.find(facts.qpn);
  const uint32_t ordinal =
      found != queue_pairs_.end() ? found->second.ordinal : 0;
  for (const Rule* const live : live_) {
    const Rule& rule = *live;
    if (!IsOfCompletions(rule.action) || !IsItsTime(rule, now) ||
        !(facts.sent ? rule.transmitted : rule.received) ||
        (rule.qpn && *rule.qpn != facts.qpn) ||
        (rule.ordinal && *rule.ordinal != ordinal) ||
        (rule.longer_than && facts.bytes <= *rule.longer_than) ||
        (rule.wr_id && *rule.wr_id != facts.wr_id) ||
        (rule.action == Action::kLateCompletion && !facts.may_be_late)) {
      continue;
    }
    RuleCount& count = counts_[rule.number - 1];
    ++count.matched;
    const uint64_t random = Mix(Mix(seed_ ^ Mix(rule.number)) ^ count.matched);
    if (!Fires(rule, count.matched, random)) continue;
    ++count.fired;
    return &rule;
  }
  return nullptr;
}

const Rule* Injector::DecideTransfer(const TransferFacts& facts, Time now,
                                     uint32_t* number) {
  const auto found = queue_pairs_.find(facts.qpn);
  QueuePair* const qp = found != queue_pairs_.end() ? &found->second : nullptr;
  const uint32_t ordinal = qp != nullptr ? qp->ordinal : 0;
  *number = qp != nullptr ? ++qp->transfers[facts.reads ? 1 : 0] : 0;
  for (const Rule* const live : live_) {
    const Rule& rule = *live;
    if (rule.action != Action::kUnmap || !IsItsTime(rule, now) ||
        !(facts.reads ? rule.transmitted : rule.received) ||
        (rule.qpn && *rule.qpn != facts.qpn) ||
        (rule.ordinal && *rule.ordinal != ordinal) ||
        (rule.longer_than && facts.bytes <= *rule.longer_than)) {
      continue;
    }
    RuleCount& count = counts_[rule.number - 1];
    ++count.matched;
    uint64_t random = Mix(seed_ ^ Mix(rule.number));
    random = Mix(random ^ (uint64_t{facts.reads} << 63 |
                           uint64_t{ordinal} << 32 | *number));
    if (!Fires(rule, count.matched, random)) continue;
    ++count.fired;
    return &rule;
  }
  return nullptr;
}

const Rule* Injector::TakeTimed(Time now) {
  if (!looked_at_) looked_at_ = now;
  const Rule* first = nullptr;
  for (const Rule* const rule : live_) {
    if (!rule->is_timed || counts_[rule->number - 1].fired != 0 ||
        BeginOf(*rule) > now || EndOf(*rule) <= *looked_at_) {
      continue;
    }
    if (first == nullptr || BeginOf(*rule) < BeginOf(*first)) first = rule;
  }
  if (first == nullptr) return nullptr;
  RuleCount& count = counts_[first->number - 1];
  count.matched = count.fired = 1;
  return first;
}

Time Injector::NextTimed(Time now) const {
  Time next = kNever;
  for (const Rule* const rule : live_) {
    const Time when = BeginOf(*rule);
    if (rule->is_timed && counts_[rule->number - 1].fired == 0 && when > now) {
      next = std::min(next, when);
    }
  }
  return next;
}

Time Injector::EndOf(const Rule& rule) const {
  return rule.during == kNever ? kNever : BeginOf(rule) + rule.during;
}

const Rule* Injector::TakeRefusal(uint32_t qpn, uint32_t psn) {
  const auto found = queue_pairs_.find(qpn);
  if (found == queue_pairs_.end()) return nullptr;
  const Rule* rule = nullptr;
  std::erase_if(found->second.refusals, [&](const QueuePair::Refusal& refusal) {
    if (refusal.psn == psn && rule == nullptr) rule = refusal.rule;
    return wire::PsnDiff(refusal.psn, psn) <= 0;
  });
  return rule;
}

}  // namespace transport::faults
