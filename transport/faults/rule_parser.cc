#include "transport/faults/rule_parser.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>

#include "transport/faults/calls.h"
#include "transport/faults/corrupt.h"
#include "transport/faults/rule_values.h"
#include "wire/aeth.h"
#include "wire/cm.h"
#include "wire/headers.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace transport::faults {
namespace {

using wire::OpcodeInfo;
using wire::Operation;

constexpr uint32_t kMaxBehind = 1024;

struct ActionText {
  Action action;
  std::string_view name;
  const char* past;
};
constexpr ActionText kActions[] = {
    {Action::kDrop, "drop", "was dropped"},
    {Action::kDuplicate, "duplicate", "was duplicated"},
    {Action::kDelay, "delay", "was delayed"},
    {Action::kCorrupt, "corrupt", "was corrupted"},
    {Action::kMark, "ce", "was marked (congestion experienced)"},
    {Action::kReorder, "reorder", "was put behind later packets"},
    {Action::kStall, "stall", "stalled the device"},
    {Action::kNoAck, "no-ack", "was not acknowledged"},
    {Action::kRnr, "rnr", "was answered with an RNR NAK"},
    {Action::kNak, "nak", "was answered with a NAK"},
    {Action::kFail, "fail", "failed"},
    {Action::kComplete, "complete", "completed with an error"},
    {Action::kOverrun, "overrun", "was lost: the queue overran"},
    {Action::kLateCompletion, "late-completion", "was late"},
    {Action::kEvent, "event", "raised an event"},
    {Action::kLink, "link", "met a link that is down"},
    {Action::kUnmap, "unmap", "found its memory gone"},
};
constexpr std::string_view kActionNames =
    "drop, duplicate, delay T, reorder N, corrupt FIELD, ce, stall T, no-ack, "
    "rnr [T], nak CODE, fail CALL ERRNO, complete STATUS, overrun, "
    "late-completion, event NAME, link down|up, unmap";
constexpr std::string_view kOptionNames =
    "rx, tx, op=, qp=, peer=, psn=, iter=, bytes>, msg=, wr_id=, call=, nth=, "
    "every=, p=, times=, after=, for=, maybe";
constexpr std::string_view kTimeForms = "a time such as 50us, 2ms or 1.5s";

constexpr char kBlanks[] = " \t\r";

bool AnswersRequests(Action action) {
  return action == Action::kNoAck || action == Action::kRnr ||
         action == Action::kNak;
}

// --- The parser.

struct Word {
  std::string_view text;
  int column = 0;
};

class RuleParser {
 public:
  RuleParser(int line, std::vector<Word> words, int end_column)
      : line_(line), words_(std::move(words)), end_column_(end_column) {}

  std::optional<RuleError> Parse(Rule* rule) {
    const ActionText* const action = FindRow(kActions, words_[0].text);
    if (action == nullptr) {
      return Error(words_[0], Quoted(words_[0].text) +
                                  " is no action; the actions are " +
                                  std::string(kActionNames));
    }
    rule->action = action->action;
    next_ = 1;
    if (auto error = ParseArgument(rule)) return error;
    while (next_ < words_.size()) {
      if (auto error = ParseOption(words_[next_++], rule)) return error;
    }
    if (rule->action == Action::kFail) return LimitToCalls(rule);
    if (Has({"call="})) return LimitToOneCall(rule);
    if (AnswersRequests(rule->action)) return LimitToRequests(rule);
    if (rule->mads != 0) return LimitToMads(*rule);
    if (rule->action == Action::kEvent) return LimitEvent(rule);
    if (rule->action == Action::kLink) return LimitLink(rule);
    if (rule->action == Action::kUnmap) {
      return CheckNoPacketOption(
          {"op=", "peer=", "psn=", "iter=", "msg=", "wr_id="},
          "transfers; after it come rx (the device "
          "writes to memory), tx (it reads), qp=, bytes>, ");
    }
    if (TargetOf(rule->action) == std::string_view("completion")) {
      return CheckNoPacketOption({"op=", "peer=", "psn=", "iter=", "msg="},
                                 "completions; after it come rx (of receives), "
                                 "tx (of sends), qp=, bytes>, wr_id=, ");
    }
    return std::nullopt;
  }

 private:
  static std::string Quoted(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c >= ' ' && c < 0x7f ? c : '?';
    return quoted + "'";
  }
  RuleError Error(const Word& word, std::string what) const {
    return {line_, word.column, std::move(what)};
  }
  // The next word; at the end, an empty one.
  Word Next() {
    return next_ < words_.size() ? words_[next_++] : Word{{}, end_column_};
  }

  // What follows the action.
  std::optional<RuleError> ParseArgument(Rule* rule) {
    switch (rule->action) {
      case Action::kDelay:
        return ParseDelay(rule);
      case Action::kReorder: {
        const Word word = Next();
        uint64_t number;
        if (!ParseNumber(word.text, &number) || number == 0 ||
            number > kMaxBehind) {
          return Error(word,
                       "reorder needs the number of packets that overtake, "
                       "from 1 to " +
                           std::to_string(kMaxBehind) + ": reorder 3");
        }
        rule->behind = static_cast<uint32_t>(number);
        return std::nullopt;
      }
      case Action::kCorrupt:
        return ParseCorrupt(rule);
      case Action::kStall: {
        const Word word = Next();
        if (!ParseTime(word.text, &rule->delay) || rule->delay == 0) {
          return Error(word, "stall needs " + std::string(kTimeForms) +
                                 " (an hour at most): stall 20ms");
        }
        return std::nullopt;
      }
      case Action::kRnr: {
        if (next_ == words_.size() || words_[next_].text.front() < '0' ||
            words_[next_].text.front() > '9') {
          return std::nullopt;
        }
        const Word word = Next();
        Time time;
        const bool is_time = ParseTime(word.text, &time) && time != 0;
        const uint8_t code = is_time ? RnrTimerCode(time) : 32;
        if (code == 32) {
          return Error(word,
                       "rnr needs the time after which the peer is to send "
                       "again, up to 655.36ms, such as rnr 20ms; or no time, "
                       "which is min_rnr_timer of the queue pair");
        }
        rule->syndrome = wire::MakeRnrSyndrome(code);
        return std::nullopt;
      }
      case Action::kNak: {
        const Word word = Next();
        const NakText* const nak = FindRow(kNaks, word.text);
        if (nak == nullptr) {
          return Error(word, "nak needs one of: " + NamesOf(kNaks));
        }
        rule->syndrome = wire::MakeNakSyndrome(nak->code);
        return std::nullopt;
      }
      case Action::kFail:
        return ParseCall(rule);
      case Action::kComplete: {
        const Word word = Next();
        const StatusText* const known = FindRow(kStatuses, word.text);
        if (known == nullptr) {
          return Error(
              word, "complete needs a status, one of: " + NamesOf(kStatuses));
        }
        rule->status = static_cast<uint8_t>(known->status);
        return std::nullopt;
      }
      case Action::kEvent: {
        const Word word = Next();
        const EventText* const known = FindRow(kEvents, word.text);
        if (known == nullptr) {
          return Error(word, "event needs a name, one of: " + NamesOf(kEvents));
        }
        rule->event = known->type;
        rule->event_of = known->of;
        return std::nullopt;
      }
      case Action::kLink: {
        const Word word = Next();
        if (word.text != "down" && word.text != "up") {
          return Error(word,
                       "link needs down or up: link down after=1s "
                       "for=200ms");
        }
        rule->link_up = word.text == "up";
        return std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  std::optional<RuleError> ParseCall(Rule* rule) {
    const Word call = Next();
    if (std::ranges::find(kCalls, call.text) == std::end(kCalls)) {
      return Error(call,
                   "fail needs a call, and then errno: fail ibv_reg_mr "
                   "ENOMEM; the calls are " +
                       NamesOf(kCalls, std::identity()));
    }
    rule->call = call.text;
    const Word word = Next();
    const ErrnoText* const known = FindRow(kErrnos, word.text);
    if (known == nullptr) {
      return Error(word, "fail " + rule->call +
                             " needs errno, one of: " + NamesOf(kErrnos));
    }
    rule->error = known->number;
    return std::nullopt;
  }

  // For a rule that matches calls and no packets.
  std::optional<RuleError> LimitToCalls(Rule* rule) const {
    rule->received = rule->transmitted = false;
    if (auto error = CheckWrIdOfCall(*rule)) return error;
    return CheckNoPacketOption({"rx", "tx", "op=", "qp=", "peer=", "psn=",
                                "iter=", "bytes>", "msg=", "call="},
                               "calls; after errno come wr_id= (of posts), ");
  }
  // Only posts have a wr_id.
  std::optional<RuleError> CheckWrIdOfCall(const Rule& rule) const {
    if (rule.call.starts_with("ibv_post_")) return std::nullopt;
    for (const Word& word : words_) {
      if (!word.text.starts_with("wr_id=")) continue;
      return Error(word, "wr_id= is that of a work request, and " + rule.call +
                             " takes none: ibv_post_send, ibv_post_recv and "
                             "ibv_post_srq_recv do");
    }
    return std::nullopt;
  }
  // For an action other than kFail that happens at a call.
  std::optional<RuleError> LimitToOneCall(Rule* rule) {
    const bool is_possible = rule->action == Action::kDelay ||
                             rule->action == Action::kStall ||
                             (rule->action == Action::kEvent &&
                              rule->event_of == EventOf::kDevice) ||
                             (rule->action == Action::kLink && !rule->link_up);
    for (const Word& word : words_) {
      if (!is_possible && word.text.starts_with("call=")) {
        return Error(word,
                     "at a call there are delay T, stall T, link down, and "
                     "event NAME of the device or its port; fail CALL ERRNO "
                     "names its call itself");
      }
    }
    rule->received = rule->transmitted = false;
    if (rule->action == Action::kEvent || rule->action == Action::kLink) {
      NamesPackets(rule);
    }
    if (auto error = CheckWrIdOfCall(*rule)) return error;
    return CheckNoPacketOption(
        {"rx", "tx", "op=", "qp=", "peer=", "psn=", "iter=", "bytes>", "msg="},
        "calls with call=; after that come wr_id= (of "
        "posts), ");
  }
  // Whether the rule has one of these options, each once at most.
  bool Has(std::initializer_list<std::string_view> names) const {
    return std::ranges::any_of(names, [this](std::string_view name) {
      return std::ranges::find(seen_, name) != seen_.end();
    });
  }
  // Whether the rule fires at a packet: it names packets, or says at which of
  // them. It fires once unless it says how often.
  bool NamesPackets(Rule* rule) const {
    const bool says_when = Has({"nth=", "every=", "p=", "times="});
    if (!says_when) rule->times = 1;
    return says_when ||
           Has({"rx or tx", "op=", "qp=", "peer=", "psn=", "iter=", "bytes>",
                "msg=", "wr_id="});
  }
  std::optional<RuleError> LimitEvent(Rule* rule) const {
    const bool names_packets = NamesPackets(rule);
    if (rule->event_of == EventOf::kDevice) rule->is_timed = !names_packets;
    return std::nullopt;
  }
  std::optional<RuleError> LimitLink(Rule* rule) const {
    rule->is_timed = !NamesPackets(rule);
    if (!rule->link_up) return std::nullopt;
    // While the link is down there are no packets.
    for (const Word& word : std::span(words_).subspan(2)) {
      if (word.text != "maybe" && !word.text.starts_with("after=")) {
        return Error(word, Quoted(word.text) +
                               ": link up comes at a time, and stays; after it "
                               "come after=, maybe");
      }
    }
    return std::nullopt;
  }
  std::optional<RuleError> CheckNoPacketOption(
      std::initializer_list<std::string_view> of_packets,
      const std::string& what) const {
    for (const Word& word : words_) {
      for (const std::string_view name : of_packets) {
        const bool has_value = name.size() > 2;
        if (has_value ? word.text.starts_with(name) : word.text == name) {
          return Error(word, Quoted(word.text) + " is for packets, and " +
                                 std::string(words_[0].text) + " is for " +
                                 what +
                                 "nth=, every=, p=, times=, after=, for=, "
                                 "maybe");
        }
      }
    }
    return std::nullopt;
  }

  // For a rule that matches CM messages.
  std::optional<RuleError> LimitToMads(const Rule& rule) const {
    if (rule.action != Action::kDrop && rule.action != Action::kDuplicate &&
        rule.action != Action::kDelay) {
      return Error(words_[0],
                   "messages of the CM can be lost, late or doubled: drop, "
                   "delay T, duplicate");
    }
    return CheckNoPacketOption(
        {"qp=", "psn=", "iter=", "bytes>", "msg=", "wr_id=", "call="},
        "messages of the CM; after it come rx, tx, op=, peer=, ");
  }
  // For actions that answer a request: the rule matches arriving requests only.
  std::optional<RuleError> LimitToRequests(Rule* rule) const {
    for (const Word& word : words_) {
      if (word.text == "tx") {
        return Error(word, std::string(words_[0].text) +
                               " answers requests that arrive: rx, or neither "
                               "word");
      }
      if (word.text.starts_with("wr_id=")) {
        return Error(word, std::string(words_[0].text) +
                               " answers requests of the peer, whose wr_id is "
                               "not known; msg= counts them");
      }
    }
    rule->transmitted = false;
    rule->opcodes &= AnsweredRequests();
    if (rule->opcodes.any()) return std::nullopt;
    for (const Word& word : words_) {
      if (word.text.starts_with("op=")) {
        return Error(word, std::string(words_[0].text) +
                               " answers requests of RC, XRC and DC, and none "
                               "is among these");
      }
    }
    return std::nullopt;
  }

  std::optional<RuleError> ParseDelay(Rule* rule) {
    const Word word = Next();
    const size_t tilde = word.text.find('~');
    if (!ParseTime(word.text.substr(0, tilde), &rule->delay) ||
        (tilde != std::string_view::npos &&
         !ParseTime(word.text.substr(tilde + 1), &rule->jitter))) {
      return Error(word, "delay needs " + std::string(kTimeForms) +
                             " (an hour at most), or a time and up to how "
                             "much more: delay 2ms~500us");
    }
    return std::nullopt;
  }

  std::optional<RuleError> ParseCorrupt(Rule* rule) {
    const Word word = Next();
    Corruption& corruption = rule->corruption;
    uint64_t byte;
    if (word.text.starts_with("byte=") &&
        ParseNumber(word.text.substr(5), &byte) && byte < 65536) {
      corruption.byte = static_cast<size_t>(byte);
    } else if (const auto field = FindField(word.text)) {
      corruption.field = *field;
    } else {
      return Error(word,
                   "corrupt needs byte=N, counted from the first byte "
                   "of BTH, or one of: " +
                       FieldNames());
    }
    if (next_ < words_.size() && words_[next_].text == "resealed") {
      if (FieldName(corruption) == "icrc") {
        return Error(words_[next_],
                     "an ICRC that is corrupted cannot be right: corrupt icrc, "
                     "without 'resealed'");
      }
      corruption.resealed = true;
      ++next_;
    }
    return std::nullopt;
  }

  std::optional<RuleError> ParseOption(const Word& word, Rule* rule) {
    if (word.text == "rx" || word.text == "tx") {
      if (!Once("rx or tx")) {
        return Error(word,
                     "a rule is for rx, for tx, or without either word "
                     "for both");
      }
      rule->received = word.text == "rx";
      rule->transmitted = word.text == "tx";
      return std::nullopt;
    }
    if (word.text == "maybe") {
      rule->maybe = true;
      return std::nullopt;
    }
    const size_t sign = word.text.find_first_of("=>");
    const std::string_view name =
        word.text.substr(0, sign == std::string_view::npos ? sign : sign + 1);
    if (sign == std::string_view::npos || !IsOption(name)) {
      return Error(word, Quoted(word.text) +
                             " is no part of a rule; after the action come " +
                             std::string(kOptionNames));
    }
    if (!Once(name)) {
      return Error(word, std::string(name) +
                             " is given twice; one rule has "
                             "it once");
    }
    std::string right;
    if (ParseValue(name, word.text.substr(sign + 1), rule, &right)) {
      return std::nullopt;
    }
    return Error({{}, word.column + static_cast<int>(name.size())},
                 Quoted(word.text.substr(sign + 1)) + ": " + std::string(name) +
                     " needs " + right);
  }

  static bool IsOption(std::string_view name) {
    static constexpr std::string_view kNames[] = {
        "op=",   "qp=",  "peer=",  "psn=", "iter=",  "bytes>", "msg=", "wr_id=",
        "call=", "nth=", "every=", "p=",   "times=", "after=", "for="};
    return std::ranges::find(kNames, name) != std::end(kNames);
  }

  bool Once(std::string_view name) {
    if (std::ranges::find(seen_, name) != seen_.end()) return false;
    seen_.push_back(name);
    return true;
  }

  // On false, `*right` describes a correct value.
  static bool ParseValue(std::string_view name, std::string_view text,
                         Rule* rule, std::string* right) {
    uint64_t number;
    if (name == "op=") {
      *right =
          "data, ack, request, response or opcodes as rxe-user decode prints "
          "them, separated by |: op=RC_RDMA_WRITE_FIRST|RC_RDMA_WRITE_ONLY; "
          "or messages of the CM: op=CM_REQ|CM_REP";
      return ParseOpcodes(text, rule);
    }
    if (name == "qp=") {
      *right =
          "a number (qp=0x12 or qp=18), or @K for the K-th queue pair "
          "that the process creates: qp=@1";
      const bool is_ordinal = text.starts_with("@");
      if (is_ordinal) text.remove_prefix(1);
      if (!ParseNumber(text, &number) || number > wire::kQpnMask ||
          (is_ordinal && number == 0)) {
        return false;
      }
      (is_ordinal ? rule->ordinal : rule->qpn) = static_cast<uint32_t>(number);
      return true;
    }
    if (name == "peer=") {
      *right = "an address: peer=192.0.2.1 or peer=2001:db8::1";
      rule->peer = wire::IpAddress::Parse(std::string(text));
      return rule->peer.has_value();
    }
    if (name == "psn=") {
      *right =
          "a PSN up to 16777215, or +N counted from the first one, which "
          "is +0";
      rule->psn_is_relative = text.starts_with("+");
      if (rule->psn_is_relative) text.remove_prefix(1);
      if (!ParseNumber(text, &number) || number > wire::kPsnMask) return false;
      rule->psn = static_cast<uint32_t>(number);
      return true;
    }
    if (name == "iter=") {
      *right = "a number from 1 on; iter=1 is the first transmission";
      if (!ParseNumber(text, &number) || number == 0 || number > UINT32_MAX) {
        return false;
      }
      rule->iteration = static_cast<uint32_t>(number);
      return true;
    }
    if (name == "bytes>") {
      *right = "a number of bytes of payload: bytes>1000";
      if (!ParseNumber(text, &number)) return false;
      rule->longer_than = number;
      return true;
    }
    if (name == "msg=") {
      *right = "a number from 1 on: msg=3 is the third message";
      if (!ParseNumber(text, &number) || number == 0) return false;
      rule->message = number;
      return true;
    }
    if (name == "wr_id=") {
      *right = "a number: wr_id=7 or wr_id=0x12";
      if (!ParseNumber(text, &number)) return false;
      rule->wr_id = number;
      return true;
    }
    if (name == "call=") {
      *right = "one of: " + NamesOf(kCalls, std::identity());
      rule->call = text;
      return std::ranges::find(kCalls, text) != std::end(kCalls);
    }
    if (name == "nth=") {
      *right = "numbers and ranges from 1 on: nth=3, nth=3|7-9, nth=5-";
      return ParseRanges(text, rule);
    }
    if (name == "every=") {
      *right = "a number from 1 on: every=10 is the 10th, 20th, ...";
      return ParseNumber(text, &rule->every) && rule->every != 0;
    }
    if (name == "p=") {
      *right = "a chance above 0 and up to 1, or in percent: p=0.01 or p=1%";
      const bool percent = text.ends_with("%");
      if (percent) text.remove_suffix(1);
      if (!ParseDecimal(text, &rule->chance)) return false;
      if (percent) rule->chance /= 100;
      return rule->chance > 0 && rule->chance <= 1;
    }
    if (name == "times=") {
      *right = "a number from 1 on: times=1 fires once";
      return ParseNumber(text, &rule->times) && rule->times != 0;
    }
    *right = std::string(kTimeForms);
    if (name == "after=") return ParseTime(text, &rule->after);
    return ParseTime(text, &rule->during) && rule->during != 0;
  }

  static bool ParseOpcodes(std::string_view text, Rule* rule) {
    rule->opcodes.reset();
    for (const std::string_view name : Split(text, "|")) {
      if (!AddMad(name, &rule->mads) && !AddOpcodes(name, &rule->opcodes)) {
        return false;
      }
    }
    // Packets and CM messages cannot be mixed: they have different options.
    return rule->mads == 0 || rule->opcodes.none();
  }

  static bool ParseRanges(std::string_view text, Rule* rule) {
    for (const std::string_view each : Split(text, "|")) {
      if (!ParseRange(each, &rule->nth.emplace_back())) return false;
    }
    return true;
  }

  const int line_;
  const std::vector<Word> words_;
  const int end_column_;
  size_t next_ = 0;
  std::vector<std::string_view> seen_;
};

const ActionText* TextOf(Action action) {
  const auto* const text =
      std::ranges::find(kActions, action, &ActionText::action);
  return text != std::end(kActions) ? text : nullptr;
}

}  // namespace

const char* NameOf(Action action) {
  const ActionText* const text = TextOf(action);
  return text != nullptr ? text->name.data() : "";
}

const char* TargetOf(Action action) {
  switch (action) {
    case Action::kFail:
      return "call";
    case Action::kComplete:
    case Action::kOverrun:
    case Action::kLateCompletion:
      return "completion";
    case Action::kUnmap:
      return "transfer";
    default:
      return "packet";
  }
}

const char* TargetOf(const Rule& rule) {
  if (!rule.call.empty()) return "call";
  if (rule.mads != 0) return "message";
  return rule.is_timed ? "time" : TargetOf(rule.action);
}

const char* PastOf(Action action) {
  const ActionText* const text = TextOf(action);
  return text != nullptr ? text->past : "";
}

std::string RuleError::ToString() const {
  return "line " + std::to_string(line) + ", column " + std::to_string(column) +
         ": " + what;
}

std::optional<RuleError> ParseRules(std::string_view text,
                                    std::vector<Rule>* out) {
  if (text.size() > kMaxRuleText) {
    return RuleError{1, 1,
                     "the rules are longer than " +
                         std::to_string(kMaxRuleText) + " bytes; use fewer"};
  }
  std::vector<Rule> rules;
  int number = 0;
  for (std::string_view line : Split(text, "\n")) {
    ++number;
    line = line.substr(0, line.find('#'));
    const auto column = [line](const char* at) {
      return static_cast<int>(at - line.data()) + 1;
    };
    for (const std::string_view whole : Split(line, ";")) {
      std::vector<Word> words;
      for (const std::string_view word : Split(whole, kBlanks)) {
        if (!word.empty()) words.push_back({word, column(word.data())});
      }
      if (words.empty()) continue;
      const char* const first = words.front().text.data();
      const std::string_view last = words.back().text;
      if (rules.size() == kMaxRules) {
        return RuleError{number, words[0].column,
                         "there are more than " + std::to_string(kMaxRules) +
                             " rules; use fewer"};
      }
      Rule rule;
      RuleParser parser(number, std::move(words),
                        column(whole.data() + whole.size()));
      if (auto error = parser.Parse(&rule)) return error;
      rule.text.assign(first, last.data() + last.size());
      rules.push_back(std::move(rule));
    }
  }
  if (rules.empty()) {
    return RuleError{1, 1,
                     "there is no rule; one is, for instance, drop tx op=data "
                     "nth=3"};
  }
  for (Rule& rule : rules) {
    rule.number = static_cast<uint32_t>(out->size() + 1);
    out->push_back(std::move(rule));
  }
  return std::nullopt;
}

bool LooksLikeRules(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n;"), text.size()));
  if (text.empty() || text[0] == '#') return true;
  const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n;#"));
  return FindRow(kActions, word) != nullptr;
}

}  // namespace transport::faults
