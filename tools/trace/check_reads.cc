// READ: responses, and repeated requests.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tools/trace/check_rules.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace trace {
namespace {

using wire::Operation;

constexpr std::string_view kRule = "read-response";
constexpr std::string_view kSection = "9.7.5.1.8";

// A READ, or a request for a part of one.
struct Range {
  int64_t first = 0;  // PSNs of its responses, counted as in Flow
  int64_t psns = 1;
  uint32_t length = 0;  // bytes

  int64_t end() const { return first + psns; }
};

struct Asked : Range {
  bool is_read = false;
  bool has_read_response = false;  // READ, FLUSH and ATOMIC WRITE
  bool is_part = false;  // perhaps: the first request may not be in the file
  uint64_t va = 0;
  uint32_t rkey = 0;
  std::vector<Range> parts;  // parts that were requested again
};

// A response that is being sent.
struct Progress : Range {
  int64_t next = 0;
  bool superseded = false;  // requested again: it may end anywhere
};

class ReadRule final : public Rule {
 public:
  ReadRule(const Recording& recording, std::vector<Finding>* findings)
      : Rule(findings), recording_(recording) {}

  void OnRequest(const FlowPacket& in) override {
    if (!in.flow.reliable || in.psns == 0) return;
    State& state = states_[&in.flow];
    const Packet& p = in.packet;
    Asked asked;
    asked.first = in.index;
    asked.psns = in.psns;
    const Operation operation = wire::OperationOf(p.opcode);
    asked.is_read = operation == Operation::kReadRequest;
    asked.has_read_response = asked.is_read || operation == Operation::kFlush ||
                              operation == Operation::kAtomicWrite;
    if (asked.is_read) {
      asked.length = p.length;
      wire::PacketView view;
      if (!recording_.View(p, &whole_, &view)) return;
      asked.va = view.reth().va;
      asked.rkey = view.reth().rkey;
      for (Progress& each : state.sending) {
        each.superseded |= asked.first < each.end() && each.first < asked.end();
      }
    }
    const auto covering = Find(state, in.index);
    if (covering == state.asked.end()) {
      asked.is_part = in.index < 0 || in.flow.lacks_some;
      state.asked.emplace(in.index, std::move(asked));
      if (state.asked.size() > kMax) state.asked.erase(state.asked.begin());
      return;
    }
    Asked& original = covering->second;
    if (in.flow.at_requester) CheckRepeat(in, original, asked);
    if (asked.is_read && original.is_read && in.ahead < 0 &&
        original.parts.size() < kMaxParts) {
      original.parts.push_back(asked);
    }
  }

  void OnResponse(const FlowPacket& in) override {
    const auto known = states_.find(&in.flow);
    if (known == states_.end()) return;
    State& state = known->second;
    if (IsReadResponse(in.packet)) {
      CheckOne(in, state);
      if (!in.flow.at_requester) CheckProgress(in, &state);
    } else if (!in.flow.at_requester &&
               AnswerOf(in.packet) == wire::AethKind::kAck) {
      CheckLeftOut(in, &state);
    } else if (!in.flow.at_requester) {
      state.sending.clear();
    }
  }

 private:
  // A multiple of what one queue pair may have outstanding.
  static constexpr size_t kMax = 1 << 16;
  static constexpr size_t kMaxParts = 64;
  // How many requests before one to check for overlap: requests overlap only if
  // some packets were lost.
  static constexpr int kLookBack = 16;

  struct State {
    std::map<int64_t, Asked> asked;  // by first PSN; as requested first
    std::vector<Progress> sending;   // at the responder
  };
  using AskedMap = std::map<int64_t, Asked>;

  static bool IsReadResponse(const Packet& p) {
    const Operation operation = wire::OperationOf(p.opcode);
    return operation >= Operation::kReadResponseFirst &&
           operation <= Operation::kReadResponseOnly;
  }

  static AskedMap::iterator Find(State& state, int64_t index) {
    auto at = state.asked.upper_bound(index);
    if (at == state.asked.begin()) return state.asked.end();
    --at;
    return index < at->second.end() ? at : state.asked.end();
  }

  void CheckRepeat(const FlowPacket& in, const Asked& original,
                   const Asked& again) {
    if (in.ahead >= 0 || original.is_read != again.is_read) return;
    if (!original.is_read) return;
    const uint64_t offset =
        static_cast<uint64_t>(again.first - original.first) * in.flow.path_mtu;
    const uint64_t rest =
        offset < original.length ? original.length - offset : 0;
    std::string wrong;
    if (again.va != original.va + offset) {
      wrong = "address is that of the READ at PSN " +
              std::to_string(in.flow.PsnOf(original.first)) +
              (again.va < original.va
                   ? " minus " + std::to_string(original.va - again.va)
                   : " plus " + std::to_string(again.va - original.va)) +
              "; its PSN is that of plus " + std::to_string(offset);
    } else if (again.rkey != original.rkey) {
      wrong = "R_Key is another one";
    } else if (again.length > rest ||
               (again.length < rest && !EndsPacket(again.length, in.flow))) {
      // A part may end before the whole READ does, but only at a packet
      // boundary.
      wrong = "length is " + std::to_string(again.length) + " of " +
              std::to_string(rest) + " bytes that are left";
    }
    if (!wrong.empty()) {
      Report(in.packet, "read-repeat", kSection,
             "a READ that is asked for again: its " + wrong);
    }
  }

  // Whether `length` bytes fill their last response packet. An unknown path MTU
  // means that the READ has only one packet.
  static bool EndsPacket(uint32_t length, const Flow& flow) {
    return length > 0 && flow.path_mtu != 0 && length % flow.path_mtu == 0;
  }
  // The opcode that the response at `index` of the range must have.
  static Operation Due(const Range& range, int64_t index) {
    if (range.psns == 1) return Operation::kReadResponseOnly;
    if (index == range.first) return Operation::kReadResponseFirst;
    return index == range.end() - 1 ? Operation::kReadResponseLast
                                    : Operation::kReadResponseMiddle;
  }
  static uint32_t BytesDue(const Range& range, int64_t index, uint32_t mtu) {
    const auto before = static_cast<uint32_t>(index - range.first) * mtu;
    return index == range.end() - 1 ? range.length - before : mtu;
  }

  static bool Fits(const FlowPacket& in, const Range& range) {
    return in.index >= range.first && in.index < range.end() &&
           wire::OperationOf(in.packet.opcode) == Due(range, in.index) &&
           in.packet.payload == BytesDue(range, in.index, in.flow.path_mtu);
  }

  // Checks one packet against all requests.
  void CheckOne(const FlowPacket& in, State& state) {
    auto at = state.asked.upper_bound(in.index);
    const Asked* found = nullptr;
    for (int i = 0; i < kLookBack && at != state.asked.begin(); ++i) {
      const Asked& asked = (--at)->second;
      if (in.index >= asked.end()) continue;
      if (found == nullptr) found = &asked;
      if (asked.is_part) return;
      if (!asked.has_read_response) continue;
      if (Fits(in, asked) ||
          std::any_of(asked.parts.begin(), asked.parts.end(),
                      [&](const Range& part) { return Fits(in, part); })) {
        return;
      }
    }
    if (found == nullptr) return;
    const std::string is = std::string(in.packet.info().name) + " of " +
                           std::to_string(in.packet.payload) + " bytes";
    if (!found->has_read_response) {
      Report(in.packet, kRule, kSection,
             is + " answers a request that is no READ");
      return;
    }
    const auto due = wire::MakeOpcode(wire::TransportOf(in.packet.opcode),
                                      Due(*found, in.index));
    Report(in.packet, kRule, kSection,
           is + ": packet " + std::to_string(in.index - found->first + 1) +
               " of " + std::to_string(found->psns) + " for a READ of " +
               std::to_string(found->length) + " bytes is " +
               wire::GetOpcodeInfo(due).name + " of " +
               std::to_string(BytesDue(*found, in.index, in.flow.path_mtu)) +
               " bytes");
  }

  // At the sender, responses must be in order.
  void CheckProgress(const FlowPacket& in, State* state) {
    CheckLeftOut(in, state);
    std::vector<Progress>& sending = state->sending;
    if (in.packet.info().starts_message) {
      std::erase_if(
          sending, [&](const Progress& each) { return each.end() > in.index; });
      const auto of = Find(*state, in.index);
      if (of == state->asked.end() || in.packet.info().ends_message) return;
      Progress begun;
      begun.next = in.index + 1;
      if (Fits(in, of->second)) {
        static_cast<Range&>(begun) = of->second;
      } else {
        const auto& parts = of->second.parts;
        const auto part =
            std::find_if(parts.rbegin(), parts.rend(),
                         [&](const Range& each) { return Fits(in, each); });
        if (part == parts.rend()) return;
        static_cast<Range&>(begun) = *part;
      }
      // The response may belong to a part with the same first PSN.
      begun.superseded = !of->second.parts.empty();
      sending.push_back(begun);
      return;
    }
    for (auto each = sending.begin(); each != sending.end(); ++each) {
      if (in.index <= each->first || in.index >= each->end()) continue;
      if (in.index != each->next) {
        Report(in.packet, kRule, kSection,
               "PSN " + std::to_string(in.flow.PsnOf(each->next)) +
                   " of the response is next");
      }
      each->next = in.index + 1;
      if (each->next == each->end()) sending.erase(each);
      return;
    }
  }

  // No later request may be answered before the response to an earlier READ is
  // complete.
  void CheckLeftOut(const FlowPacket& in, State* state) {
    std::erase_if(state->sending, [&](const Progress& each) {
      if (in.index < each.end()) return false;
      if (!each.superseded) {
        Report(in.packet, kRule, kSection,
               "the response to the READ at PSN " +
                   std::to_string(in.flow.PsnOf(each.first)) + " ended after " +
                   std::to_string(each.next - each.first) + " of " +
                   std::to_string(each.psns) + " packets");
      }
      return true;
    });
  }

  const Recording& recording_;
  std::vector<uint8_t> whole_;
  std::map<const Flow*, State> states_;
};

}  // namespace

void AddReadRules(const Recording& recording, std::vector<Finding>* findings,
                  Rules* rules) {
  rules->push_back(std::make_unique<ReadRule>(recording, findings));
}

}  // namespace trace
