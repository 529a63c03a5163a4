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
  const int32_t beyond = wire::PsnDiff(packet.psn(), psn);
  // A NAK acknowledges what comes before its PSN.
  const bool is_nak =
      packet.info().Has(wire::kAeth) &&
      wire::AethKindOf(packet.aeth().syndrome) != wire::AethKind::kAck;
  return is_nak ? beyond > 0 : beyond >= 0;
}

// Whether the packet is a request of a message. A DC CONNECT takes a PSN, but
// belongs to none.
bool IsOfAMessage(const wire::PacketView& packet) {
  return packet.info().is_request &&
         packet.operation() != wire::Operation::kConnect;
}

RequestFacts FactsOf(const wire::PacketView& packet, uint32_t path_mtu) {
  RequestFacts request = {.psn = packet.psn(),
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

// Whether the rule matches no packets.
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
  OnRulesChanged();
}

Injector::QueuePair* Injector::Find(uint32_t qpn) {
  const auto found = queue_pairs_.find(qpn);
  return found != queue_pairs_.end() ? &found->second : nullptr;
}

bool Injector::Add(std::vector<Rule> rules, Time now) {
  if (rules.size() > kMaxRulesEver - std::min(kMaxRulesEver, rules_.size())) {
    return false;
  }
  // Allocate first, so that all of them are added, or none.
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
  OnRulesChanged();
  return true;
}

bool Injector::Remove(uint32_t number) {
  if (number == 0 || number > rules_.size() || counts_[number - 1].removed) {
    return false;
  }
  counts_[number - 1].removed = true;
  const Rule* const rule = &rules_[number - 1];
  for (auto& [qpn, qp] : queue_pairs_) {
    qp.ForEach([rule](Connection& connection) { connection.Forget(rule); });
  }
  OnRulesChanged();
  return true;
}

void Injector::OnRulesChanged() {
  const uint32_t before = concerns_;
  live_.clear();
  concerns_ = 0;
  const auto concern = [this](Concern what, bool applies) {
    if (applies) concerns_ |= what;
  };
  for (const Rule& rule : rules_) {
    if (counts_[rule.number - 1].removed) continue;
    live_.push_back(&rule);
    // A stall holds the packets of both directions, whatever begins it.
    const bool stalls = rule.action == Action::kStall;
    if (IsForNoPacket(rule)) {
      concern(kCompletions, IsOfCompletions(rule.action));
      concern(kTransfers, rule.action == Action::kUnmap);
      concern(kProgramCalls, !rule.call.empty());
      concern(kReceived, stalls);
      concern(kTransmitted, stalls);
      continue;
    }
    // ACKs are transmitted.
    concern(kReceived, rule.received || stalls);
    concern(kTransmitted,
            rule.transmitted || stalls || rule.action == Action::kNoAck);
    concern(kRefusals, Refuses(rule.action));
    concern(kReceivedMessages, rule.message && rule.received);
    concern(kIterations,
            rule.iteration.has_value() || rule.chance < 1 || rule.jitter != 0);
  }
  // Packets that passed meanwhile were not counted, so earlier counts are
  // useless.
  const auto begins = [&](uint32_t all) {
    return (concerns_ & all) == all && (before & all) != all;
  };
  const bool clears_received = begins(kIterations | kReceived);
  const bool clears_sent = begins(kIterations | kTransmitted);
  const bool clears_messages = begins(kReceivedMessages);
  // Packets of either direction show that a DC session has begun.
  constexpr uint32_t kPackets = kReceived | kTransmitted;
  const bool was_blind =
      (concerns_ & kPackets) != 0 && (before & kPackets) == 0;
  if (!clears_received && !clears_sent && !clears_messages && !was_blind) {
    return;
  }
  for (auto& [qpn, qp] : queue_pairs_) {
    qp.ForEach([&](Connection& connection) {
      if (clears_messages) connection.received_messages = {};
      if (clears_received) connection.received = {};
      if (clears_sent) connection.sent = {};
      connection.may_have_ended |= was_blind;
    });
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
  QueuePair* const qp = Find(qpn);
  if (qp == nullptr) return;
  qp->receive_psn = psn;
  qp->knows_receive_psn = true;
  qp->own = {};
  qp->of_initiators.clear();
  qp->sent_messages = {};
  if (concerns(kReceivedMessages)) qp->own.received_messages.StartAt(psn);
}

void Injector::OnSendPsn(uint32_t qpn, uint32_t psn) {
  if (QueuePair* const qp = Find(qpn)) qp->send_psn = psn;
}

void Injector::OnDestroyed(uint32_t qpn) { queue_pairs_.erase(qpn); }

void Injector::OnReset(uint32_t qpn) {
  QueuePair* const qp = Find(qpn);
  if (qp == nullptr) return;
  qp->sent_messages = {};
  qp->ForEach(
      [](Connection& connection) { connection.received_messages = {}; });
}

void Injector::OnPathMtu(uint32_t qpn, uint32_t bytes) {
  QueuePair* const qp = Find(qpn);
  if (qp != nullptr && bytes != 0) qp->path_mtu = bytes;
}

void Injector::OnPosted(uint32_t qpn, const PostedRequest& request) {
  if (QueuePair* const qp = Find(qpn)) qp->sent_messages.OnPosted(request);
}

void Injector::OnPostedUnknown(uint32_t qpn, size_t count) {
  if (QueuePair* const qp = Find(qpn)) qp->sent_messages.OnPostedUnknown(count);
}

void Injector::OnFlushed(uint32_t qpn) {
  if (QueuePair* const qp = Find(qpn)) qp->sent_messages.OnFlushed();
}

void Injector::OnPostRefused(uint32_t qpn, size_t count) {
  if (QueuePair* const qp = Find(qpn)) qp->sent_messages.OnRefused(count);
}

void Injector::OnSent(uint32_t qpn, const wire::PacketView& packet) {
  if (!IsOfAMessage(packet)) return;
  QueuePair* const qp = Find(qpn);
  if (qp != nullptr) qp->sent_messages.OnSent(FactsOf(packet, qp->path_mtu));
}

uint32_t Injector::Iterations::Count(uint8_t opcode, uint32_t psn) {
  if (entries_.empty()) entries_.resize(kRemembered);
  const uint32_t key = static_cast<uint32_t>(opcode) << 24 | psn;
  Entry& entry = entries_[psn % kRemembered];
  if (entry.count == 0 || entry.key != key) entry = {.key = key};
  return ++entry.count;
}

void Injector::Connection::CountMessage(const wire::PacketView& packet,
                                        uint32_t path_mtu) {
  const RequestFacts request = FactsOf(packet, path_mtu);
  switch (wire::TransportOf(packet.opcode())) {
    case wire::Transport::kUd:
      received_messages.OnDatagram(request.psn);
      break;
    case wire::Transport::kUc:
      received_messages.OnReceivedOnce(request);
      break;
    default:
      received_messages.OnReceivedInOrder(request);
  }
}

void Injector::Connection::FollowSession(const wire::PacketView& packet) {
  const uint32_t of_packet = packet.dceth().initiator_session;
  if (session == of_packet) {
    may_have_ended = false;
    return;
  }
  const bool begins =
      packet.operation() == wire::Operation::kConnect || packet.is_dc_answer();
  // The packet may be a late one of an earlier session.
  if (session && !may_have_ended && !begins) return;
  if (session && of_packet == last_session) return;
  Connection next;
  next.number = number;
  next.last_session = session;
  next.sessions_before = session ? sessions_before + 1 : 0;
  next.session = of_packet;
  next.first_psn = packet.psn();
  // The CONNECT takes a PSN, but is no message.
  if (begins) next.received_messages.StartAt(wire::PsnAdd(next.first_psn, 1));
  *this = std::move(next);
}

void Injector::Connection::Forget(const Rule* rule) {
  if (unacknowledged_by == rule) unacknowledged_by = nullptr;
  std::erase_if(refusals, [rule](const Refusal& refusal) {
    return refusal.rule == rule;
  });
}

Injector::Connection* Injector::ConnectionOf(const PacketFacts& facts,
                                             QueuePair* qp) {
  const wire::PacketView& packet = *facts.packet;
  if (!packet.info().Has(wire::kDcEth) ||
      packet.dceth().from_initiator == facts.transmitted) {
    return &qp->own;
  }
  const Initiator initiator = {facts.peer, facts.transmitted
                                               ? packet.dest_qpn()
                                               : packet.dceth().src_qpn};
  auto& all = qp->of_initiators;
  auto found = all.find(initiator);
  if (found == all.end()) {
    // Any host may claim to be an initiator, so their number is limited.
    if (all.size() == kMaxInitiators) {
      all.erase(std::ranges::min_element(
          all, {}, [](const auto& each) { return each.second.used; }));
    }
    found = all.try_emplace(initiator).first;
    found->second.number = ++qp->initiators;
  }
  found->second.FollowSession(packet);
  found->second.used = ++uses_;
  return &found->second;
}

uint32_t Injector::RelativePsn(const PacketFacts& facts, QueuePair* qp,
                               const Connection* connection) {
  const uint32_t psn = facts.packet->bth().psn;
  if (qp == nullptr) return psn;
  if (connection->session) {
    return wire::PsnAdd(psn, -static_cast<int64_t>(connection->first_psn));
  }
  const bool is_response = facts.packet->info().is_response;
  // A response has the PSN of its request.
  if (facts.transmitted != is_response) {
    return wire::PsnAdd(psn, -static_cast<int64_t>(qp->send_psn));
  }
  // Datagrams may come from any peer: the first one begins the count.
  if (!qp->knows_receive_psn) {
    qp->receive_psn = psn;
    qp->knows_receive_psn = true;
  }
  return wire::PsnAdd(psn, -static_cast<int64_t>(qp->receive_psn));
}

bool Injector::Matches(const Rule& rule, const PacketFacts& facts,
                       const QueuePair* qp, const Connection* connection,
                       uint32_t relative, uint32_t iteration) {
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
      *rule.psn != (rule.psn_is_relative ? relative : packet.psn())) {
    return false;
  }
  if (rule.iteration && *rule.iteration != iteration) return false;
  if (rule.longer_than && packet.payload().size() <= *rule.longer_than) {
    return false;
  }
  if ((rule.message || rule.wr_id) &&
      (qp == nullptr || !IsOfMessage(rule, facts, *qp, *connection))) {
    return false;
  }
  // These actions need state that only a known queue pair has.
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
  return rule.action != Action::kCorrupt ||
         CorruptedBit(rule.corruption, packet).has_value();
}

bool Injector::IsOfMessage(const Rule& rule, const PacketFacts& facts,
                           const QueuePair& qp, const Connection& connection) {
  // An answer belongs to the message of its request.
  const bool is_own = facts.transmitted != facts.packet->info().is_response;
  // Only the program's own requests have a wr_id that it knows.
  if (rule.wr_id && !is_own) return false;
  const Message* const message =
      (is_own ? qp.sent_messages : connection.received_messages)
          .Find(facts.packet->bth().psn);
  return message != nullptr &&
         (!rule.message || *rule.message == message->number) &&
         (!rule.wr_id || rule.wr_id == message->wr_id);
}

bool Injector::Fires(const Rule& rule, uint64_t match, uint64_t chance) const {
  if (!rule.nth.empty() &&
      std::ranges::none_of(rule.nth, [&](const Range& range) {
        return range.first <= match && match <= range.last;
      })) {
    return false;
  }
  if (match % rule.every != 0) return false;
  if (rule.chance < 1 && Fraction(chance) >= rule.chance) return false;
  return counts_[rule.number - 1].fired < rule.times;
}

template <typename IsFor, typename RandomOf>
Injector::Firing Injector::FirstThatFires(Time now, const IsFor& is_for,
                                          const RandomOf& random_of) {
  Firing firing;
  for (const Rule* const rule : live_) {
    if (!IsItsTime(*rule, now) || !is_for(*rule)) continue;
    RuleCount& count = counts_[rule->number - 1];
    ++count.matched;
    if (firing.rule != nullptr) continue;
    const uint64_t random =
        random_of(Mix(seed_ ^ Mix(rule->number)), count.matched);
    if (Fires(*rule, count.matched, random)) {
      firing = {rule, DelayOf(*rule, random)};
    }
  }
  if (firing.rule != nullptr) ++counts_[firing.rule->number - 1].fired;
  return firing;
}

uint32_t Injector::Count(const PacketFacts& facts, const QueuePair& qp,
                         Connection* connection) {
  uint32_t iteration = 1;
  if (concerns(kIterations)) {
    iteration = (facts.transmitted ? connection->sent : connection->received)
                    .Count(facts.packet->opcode(), facts.packet->bth().psn);
  }
  if (concerns(kReceivedMessages) && !facts.transmitted &&
      IsOfAMessage(*facts.packet)) {
    connection->CountMessage(*facts.packet, qp.path_mtu);
  }
  return iteration;
}

void Injector::CountOnly(const PacketFacts& facts) {
  QueuePair* const qp = Find(facts.qpn);
  if (qp == nullptr) return;
  try {
    Connection* const connection = ConnectionOf(facts, qp);
    (void)RelativePsn(facts, qp, connection);
    (void)Count(facts, *qp, connection);
  } catch (const std::bad_alloc&) {
    // Without memory, the packet is not counted.
  }
}

Fate Injector::Decide(const PacketFacts& facts, Time now) {
  QueuePair* const qp = Find(facts.qpn);
  Connection* connection = nullptr;
  uint32_t relative = 0;
  uint32_t iteration = 1;
  try {
    if (qp != nullptr) connection = ConnectionOf(facts, qp);
    relative = RelativePsn(facts, qp, connection);
    if (qp != nullptr) iteration = Count(facts, *qp, connection);
  } catch (const std::bad_alloc&) {
    return {};
  }
  Fate fate;
  fate.rule = TakeUnacknowledged(facts, connection);
  if (fate.rule != nullptr) {
    fate.is_consequence = true;
    return fate;
  }
  const uint64_t place = uint64_t{facts.transmitted} << 63 |
                         uint64_t{qp != nullptr ? qp->ordinal : 0} << 24 |
                         relative;
  uint64_t time = iteration;
  if (connection != nullptr) {
    time ^= uint64_t{connection->number} << 48 ^
            uint64_t { connection->sessions_before } << 32;
  }
  const Firing firing = FirstThatFires(
      now,
      [&](const Rule& rule) {
        return Matches(rule, facts, qp, connection, relative, iteration);
      },
      [&](uint64_t random, uint64_t) {
        return Mix(Mix(random ^ place) ^ time);
      });
  if (firing.rule == nullptr) return {};
  if (connection != nullptr) {
    try {
      connection->Remember(*firing.rule, facts.packet->bth().psn);
    } catch (const std::bad_alloc&) {
      --counts_[firing.rule->number - 1].fired;
      return {};
    }
  }
  fate.rule = firing.rule;
  fate.delay = firing.delay;
  if (firing.rule->action == Action::kCorrupt) {
    fate.flipped = *CorruptedBit(firing.rule->corruption, *facts.packet);
  }
  return fate;
}

const Rule* Injector::TakeUnacknowledged(const PacketFacts& facts,
                                         Connection* connection) {
  if (connection == nullptr || connection->unacknowledged_by == nullptr) {
    return nullptr;
  }
  if (!facts.transmitted && facts.packet->info().is_request &&
      wire::PsnDiff(facts.packet->bth().psn, connection->unacknowledged_psn) <=
          0) {
    connection->unacknowledged_by = nullptr;
    return nullptr;
  }
  const bool acknowledges =
      facts.transmitted &&
      Acknowledges(*facts.packet, connection->unacknowledged_psn);
  return acknowledges ? connection->unacknowledged_by : nullptr;
}

void Injector::Connection::Remember(const Rule& rule, uint32_t psn) {
  if (rule.action == Action::kNoAck && unacknowledged_by == nullptr) {
    unacknowledged_by = &rule;
    unacknowledged_psn = psn;
  } else if (Refuses(rule.action)) {
    if (refusals.size() == kMaxRefusals) refusals.clear();
    refusals.push_back({.psn = psn, .rule = &rule});
  }
}

NumberedFate Injector::DecideCall(std::string_view call,
                                  std::optional<uint64_t> wr_id, Time now) {
  NumberedFate fate;
  const auto* const known = std::ranges::find(kCalls, call);
  if (known != std::end(kCalls)) fate.number = ++calls_[known - kCalls];
  const Firing firing = FirstThatFires(
      now,
      [&](const Rule& rule) {
        return rule.call == call && (!rule.wr_id || rule.wr_id == wr_id);
      },
      [](uint64_t random, uint64_t match) { return Mix(random ^ match); });
  fate.rule = firing.rule;
  fate.delay = firing.delay;
  return fate;
}

NumberedFate Injector::DecideMad(const MadFacts& facts, Time now) {
  NumberedFate fate;
  const size_t index = facts.attribute - size_t{kFirstMad};
  if (index >= kMads) return fate;
  fate.number = ++mads_[facts.transmitted ? 1 : 0][index];
  const uint64_t place = uint64_t{facts.transmitted} << 63 |
                         uint64_t{facts.attribute} << 32 | fate.number;
  const Firing firing = FirstThatFires(
      now,
      [&](const Rule& rule) {
        return (rule.mads >> index & 1) != 0 &&
               (facts.transmitted ? rule.transmitted : rule.received) &&
               (!rule.peer || *rule.peer == facts.peer);
      },
      [&](uint64_t random, uint64_t) { return Mix(random ^ place); });
  fate.rule = firing.rule;
  fate.delay = firing.delay;
  return fate;
}

const Rule* Injector::DecideCompletion(const CompletionFacts& facts, Time now) {
  const QueuePair* const qp = Find(facts.qpn);
  const uint32_t ordinal = qp != nullptr ? qp->ordinal : 0;
  return FirstThatFires(
             now,
             [&](const Rule& rule) {
               return IsOfCompletions(rule.action) &&
                      (facts.sent ? rule.transmitted : rule.received) &&
                      (!rule.qpn || *rule.qpn == facts.qpn) &&
                      (!rule.ordinal || *rule.ordinal == ordinal) &&
                      (!rule.longer_than || facts.bytes > *rule.longer_than) &&
                      (!rule.wr_id || *rule.wr_id == facts.wr_id) &&
                      (rule.action != Action::kLateCompletion ||
                       facts.may_be_late);
             },
             [](uint64_t random, uint64_t match) {
               return Mix(random ^ match);
             })
      .rule;
}

const Rule* Injector::DecideTransfer(const TransferFacts& facts, Time now,
                                     uint32_t* number) {
  QueuePair* const qp = Find(facts.qpn);
  const uint32_t ordinal = qp != nullptr ? qp->ordinal : 0;
  *number = qp != nullptr ? ++qp->transfers[facts.reads ? 1 : 0] : 0;
  const uint64_t place =
      uint64_t{facts.reads} << 63 | uint64_t{ordinal} << 32 | *number;
  return FirstThatFires(
             now,
             [&](const Rule& rule) {
               return rule.action == Action::kUnmap &&
                      (facts.reads ? rule.transmitted : rule.received) &&
                      (!rule.qpn || *rule.qpn == facts.qpn) &&
                      (!rule.ordinal || *rule.ordinal == ordinal) &&
                      (!rule.longer_than || facts.bytes > *rule.longer_than);
             },
             [&](uint64_t random, uint64_t) { return Mix(random ^ place); })
      .rule;
}

const Rule* Injector::TakeTimed(Time now) {
  if (!timed_from_) timed_from_ = now;
  const Rule* first = nullptr;
  for (const Rule* const rule : live_) {
    if (!rule->is_timed || counts_[rule->number - 1].fired != 0 ||
        BeginOf(*rule) > now || EndOf(*rule) <= *timed_from_) {
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

const Rule* Injector::TakeRefusal(uint32_t qpn, const RequesterFacts& requester,
                                  uint32_t psn) {
  QueuePair* const qp = Find(qpn);
  if (qp == nullptr) return nullptr;
  const auto initiator =
      qp->of_initiators.find({requester.address, requester.qpn});
  Connection& connection =
      initiator != qp->of_initiators.end() ? initiator->second : qp->own;
  const Rule* rule = nullptr;
  std::erase_if(connection.refusals, [&](const Refusal& refusal) {
    if (refusal.psn == psn && rule == nullptr) rule = refusal.rule;
    return wire::PsnDiff(refusal.psn, psn) <= 0;
  });
  return rule;
}

}  // namespace transport::faults
