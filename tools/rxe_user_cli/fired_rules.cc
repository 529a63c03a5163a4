#include "tools/rxe_user_cli/fired_rules.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "rxe_user/observe/trace_events.h"
#include "rxe_user/observe/trace_table.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/trace/escape.h"
#include "transport/base/types.h"
#include "transport/faults/rule.h"
#include "transport/faults/rule_parser.h"
#include "wire/cm.h"
#include "wire/psn.h"

namespace rxe_user_cli {
namespace {

namespace events = rxe_user::trace;

using transport::faults::Action;
using wire::pcapng::Direction;

// The text of an event's member, with blanks in place of the tabs that rules
// may contain.
template <size_t kSize>
std::string TextOf(const char (&member)[kSize]) {
  std::string text = events::TextOf(member);
  std::ranges::replace(text, '\t', ' ');
  return trace::Printable(text);
}

// Whether the end of a rule did not fit into the event.
bool IsCut(const std::string& rule) { return absl::EndsWith(rule, "..."); }

// The action of a rule and its argument: the words before rx, tx, matches and
// conditions.
std::string ActionWords(const std::string& rule) {
  std::string words;
  for (const absl::string_view word :
       absl::StrSplit(rule, ' ', absl::SkipEmpty())) {
    if (word == "rx" || word == "tx" || word == "maybe") break;
    if (word.find_first_of("=>") != absl::string_view::npos &&
        !absl::StartsWith(word, "byte=")) {
      break;
    }
    absl::StrAppend(&words, words.empty() ? "" : " ", word);
  }
  return words;
}

// The same for a fault that happened: a delay is the one that was drawn. Older
// recordings contain only the least delay.
std::string WordsOf(const events::FaultEvent& fault, const std::string& rule) {
  if (static_cast<Action>(fault.action) == Action::kDelay && fault.delay != 0) {
    return absl::StrCat("delay ", fault.delay, "ns");
  }
  const std::string words = ActionWords(rule);
  return words.substr(0, words.find('~'));
}

// What is known of a queue pair so far.
struct QueuePair {
  uint32_t ordinal = 0;  // 0: its creation is not recorded
  uint32_t send_psn = 0;
  std::optional<uint32_t> receive_psn;
  size_t completed_sends = 0;  // that succeeded
  size_t completed_receives = 0;
};

// " for=2ms" if the rule has that, which is how long `link` changes the port.
std::string DurationWord(const std::string& rule) {
  for (const absl::string_view word :
       absl::StrSplit(rule, ' ', absl::SkipEmpty())) {
    if (absl::StartsWith(word, "for=")) return absl::StrCat(" ", word);
  }
  return "";
}

struct PacketIteration {
  const trace::Packet* packet = nullptr;
  uint32_t iteration = 0;
};

class Reader {
 public:
  explicit Reader(const trace::Recording& recording) : recording_(recording) {
    std::map<
        std::tuple<Direction, wire::IpAddress, uint32_t, uint8_t, uint32_t>,
        uint32_t>
        iterations;
    // Packet events of the copies that rules made of received packets.
    std::unordered_set<uint64_t> copies;
    for (const trace::Event& event : recording.events) {
      const auto fault = event.As<events::FaultEvent>();
      if (fault && static_cast<Action>(fault->action) == Action::kDuplicate) {
        copies.insert(fault->header.cause);
      }
    }
    for (const trace::Packet& packet : recording.packets) {
      uint32_t& iteration = iterations[{packet.direction, packet.dst,
                                        packet.qpn, packet.opcode, packet.psn}];
      const bool is_copy = packet.direction == Direction::kReceived &&
                           copies.contains(packet.event) && iteration != 0;
      if (!is_copy) ++iteration;
      if (packet.event != 0) packets_[packet.event] = {&packet, iteration};
      // The cause of a received packet that a rule held back is the fault.
      if (packet.cause != 0) {
        packets_.try_emplace(packet.cause, PacketIteration{&packet, iteration});
      }
    }
  }

  FiredRules Read() {
    for (const trace::Event& event : recording_.events) {
      if (const auto call = event.As<events::CallEvent>()) {
        OnCall(*call);
      } else if (const auto state = event.As<events::QpStateEvent>()) {
        OnState(*state);
      } else if (const auto done = event.As<events::CompletedEvent>()) {
        OnCompleted(*done);
      } else if (const auto fault = event.As<events::FaultEvent>()) {
        OnFault(*fault);
      }
    }
    rules_.text = calls_text_ + transfers_text_ + rules_.text;
    return std::move(rules_);
  }

 private:
  void Add(const std::string& rule) {
    absl::StrAppend(&rules_.text, rule, "\n");
    ++rules_.rules;
  }
  void LeaveOut(const std::string& rule, const std::string& why) {
    absl::StrAppend(&rules_.text, "# left out, ", why, ": ", rule, "\n");
    ++rules_.left_out;
  }

  void OnCall(const events::CallEvent& call) {
    const std::string function = TextOf(call.function);
    const std::string arguments = TextOf(call.arguments);
    uint64_t number = ++calls_[function];
    if (call.result == 1 && absl::StartsWith(function, "ibv_create_qp")) {
      constexpr char kNumber[] = "qp_num=";
      const size_t at = arguments.find(kNumber);
      if (at == std::string::npos) return;
      const auto qpn = static_cast<uint32_t>(std::strtoul(
          arguments.c_str() + at + sizeof(kNumber) - 1, nullptr, 16));
      queue_pairs_[qpn] = QueuePair();
      queue_pairs_[qpn].ordinal = ++created_;
    } else if (call.error != 0 &&
               arguments.find("refused: fault rule ") != std::string::npos) {
      // "refused: fault rule 1 (fail ibv_reg_mr ENOMEM nth=2)", or with its
      // number, "refused: fault rule 1, call 2 (fail ...".
      const size_t at = arguments.find("(fail ");
      if (at == std::string::npos) return;
      std::string rule = arguments.substr(at + 1);
      if (absl::EndsWith(rule, ")")) rule.pop_back();
      if (IsCut(ActionWords(rule))) return LeaveOut(rule, kCut);
      constexpr std::string_view kCall = ", call ";
      const size_t told = arguments.find(kCall);
      if (told < at) {
        number =
            std::strtoull(arguments.c_str() + told + kCall.size(), nullptr, 10);
      } else if (absl::StartsWith(function, "ibv_post_")) {
        return LeaveOut(rule, "a recording does not count posts");
      }
      absl::StrAppend(&calls_text_, ActionWords(rule), " nth=", number, "\n");
      ++rules_.rules;
    }
  }

  void OnState(const events::QpStateEvent& state) {
    QueuePair& qp = queue_pairs_[state.header.qpn];
    const auto to = static_cast<transport::QpState>(state.to);
    if (to == transport::QpState::kRtr &&
        state.type != static_cast<uint8_t>(transport::QpType::kUd)) {
      qp.receive_psn = state.receive_psn;
    } else if (to == transport::QpState::kRts) {
      qp.send_psn = state.send_psn;
    }
  }

  // The completion that a rule changed follows the rule's fault.
  void OnCompleted(const events::CompletedEvent& done) {
    QueuePair& qp = queue_pairs_[done.header.qpn];
    const bool received = done.opcode >= 128;
    size_t& count = received ? qp.completed_receives : qp.completed_sends;
    const auto pending = completions_.find(done.header.qpn);
    if (pending != completions_.end()) {
      const std::string rule = pending->second;
      completions_.erase(pending);
      if (qp.ordinal == 0) return LeaveOut(rule, kNotCreated);
      return Add(absl::StrCat(ActionWords(rule), received ? " rx" : " tx",
                              " qp=@", qp.ordinal, " nth=", ++count));
    }
    if (done.status == 0) ++count;
  }

  void OnFault(const events::FaultEvent& fault) {
    const std::string rule = TextOf(fault.text);
    const auto action = static_cast<Action>(fault.action);
    const size_t call = rule.find(" call=");
    const size_t end_of_call =
        call == std::string::npos ? call : rule.find(' ', call + 1);
    // Parts that would be printed may have been cut off: how long the link is
    // down, the name of a call, and any part of a rule for a time.
    const bool is_of_packet = fault.header.qpn != 0 || fault.header.cause != 0;
    if (IsCut(rule) && (action == Action::kLink || IsCut(ActionWords(rule)) ||
                        (!is_of_packet && end_of_call == std::string::npos))) {
      return LeaveOut(rule, kCut);
    }
    if (std::strcmp(transport::faults::TargetOf(action), "completion") == 0) {
      if (action == Action::kComplete) {
        completions_[fault.header.qpn] = rule;
      } else {
        LeaveOut(rule, "a matter of time");
      }
      return;
    }
    if (fault.header.qpn == 1) {
      const bool sent =
          fault.way == static_cast<uint8_t>(events::WhichWay::kSent);
      absl::StrAppend(
          &calls_text_, WordsOf(fault, rule), sent ? " tx" : " rx", " op=",
          wire::CmAttributeName(static_cast<wire::CmAttribute>(fault.opcode)),
          " nth=", fault.psn, "\n");
      ++rules_.rules;
      return;
    }
    if (call != std::string::npos) {
      absl::StrAppend(&calls_text_, WordsOf(fault, rule),
                      rule.substr(call, end_of_call == std::string::npos
                                            ? end_of_call
                                            : end_of_call - call),
                      " nth=", fault.psn,
                      action == Action::kLink ? DurationWord(rule) : "", "\n");
      ++rules_.rules;
      return;
    }
    const QueuePair& qp = queue_pairs_[fault.header.qpn];
    if (action == Action::kUnmap) {
      if (qp.ordinal == 0) return LeaveOut(rule, kNotCreated);
      const bool received =
          fault.way == static_cast<uint8_t>(events::WhichWay::kReceived);
      // The number of transfers depends on timing.
      absl::StrAppend(&transfers_text_, ActionWords(rule),
                      received ? " rx" : " tx", " qp=@", qp.ordinal,
                      " nth=", fault.psn, " maybe\n");
      ++rules_.rules;
      return;
    }
    // A fault with neither packet nor queue pair is that of a rule for a time.
    const bool may_be_timed =
        action == Action::kEvent || action == Action::kLink;
    if (may_be_timed && fault.header.qpn == 0 && fault.header.cause == 0) {
      return Add(rule);
    }
    const auto seen = packets_.find(fault.header.cause != 0 ? fault.header.cause
                                                            : fault.header.id);
    if (seen == packets_.end()) {
      return LeaveOut(rule, "its packet is not recorded");
    }
    const trace::Packet& packet = *seen->second.packet;
    const bool is_sent = packet.direction == Direction::kSent;
    // Relative PSNs, as transport::faults::Injector counts them.
    const bool counts_sends = is_sent != packet.info().is_response;
    if (!counts_sends &&
        wire::TransportOf(packet.opcode) == wire::Transport::kDc) {
      return LeaveOut(rule, "a DC target counts PSNs from each CONNECT");
    }
    if (qp.ordinal == 0) return LeaveOut(rule, kNotCreated);
    if (!counts_sends && !qp.receive_psn) {
      return LeaveOut(rule, "the first PSN of its peer is not known");
    }
    const uint32_t base = counts_sends ? qp.send_psn : *qp.receive_psn;
    std::string words = action == Action::kDelay
                            ? absl::StrCat("delay ", fault.delay, "ns")
                            : ActionWords(rule);
    if (action == Action::kLink) words += DurationWord(rule);
    const uint32_t iteration = seen->second.iteration;
    // Whether there is a second iteration, and which PSNs have an ACK, depends
    // on timing.
    const bool may_differ = iteration > 1 || packet.is_acknowledge();
    Add(absl::StrCat(words, is_sent ? " tx" : " rx", " op=", packet.info().name,
                     " qp=@", qp.ordinal, " psn=+",
                     wire::PsnAdd(packet.psn, -static_cast<int64_t>(base)),
                     " iter=", iteration, may_differ ? " maybe" : ""));
  }

  static constexpr char kCut[] = "the recording has only its beginning";
  static constexpr char kNotCreated[] =
      "its queue pair's creation is not recorded";

  const trace::Recording& recording_;
  std::unordered_map<uint64_t, PacketIteration> packets_;
  std::map<uint32_t, QueuePair> queue_pairs_;
  std::map<std::string, size_t> calls_;
  std::string calls_text_;      // rules of calls that failed
  std::string transfers_text_;  // rules of transfers
  // Rules whose completion has not followed yet, by queue pair.
  std::map<uint32_t, std::string> completions_;
  uint32_t created_ = 0;
  FiredRules rules_;
};

}  // namespace

FiredRules RulesThatFired(const trace::Recording& recording) {
  return Reader(recording).Read();
}

int RunFaultsOf(const std::string& path, std::FILE* out, std::FILE* err) {
  const std::string name = trace::Printable(path);
  trace::Recording recording;
  const bool read = trace::ReadRecording(path, &recording);
  if (!recording.error.empty()) {
    std::fprintf(err, "rxe-user faults: %s: %s\n", name.c_str(),
                 trace::Printable(recording.error).c_str());
  }
  if (!read) return 1;
  const FiredRules fired = RulesThatFired(recording);
  if (fired.rules + fired.left_out == 0) {
    std::fprintf(err,
                 "rxe-user faults: %s has no fault; make a recording with "
                 "rxe-user run --faults RULES --trace FILE\n",
                 name.c_str());
    return 1;
  }
  if (fired.rules > transport::faults::kMaxRules) {
    std::fprintf(err,
                 "rxe-user faults: %s has %zu faults; --faults takes %zu rules "
                 "at most\n",
                 name.c_str(), fired.rules, transport::faults::kMaxRules);
  }
  const std::string text = absl::StrFormat("# %d of the faults of %s\n%s",
                                           fired.rules, name, fired.text);
  return WriteText(text, out) && recording.error.empty() ? 0 : 1;
}

}  // namespace rxe_user_cli
