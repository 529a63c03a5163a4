#include "tools/trace/check.h"

#include <algorithm>
#include <bit>
#include <map>

#include "tools/trace/check_rules.h"
#include "tools/trace/flows.h"
#include "wire/mad.h"

namespace trace {
namespace {

class IcrcRule final : public Rule {
 public:
  using Rule::Rule;
  void OnDamaged(const Packet& p, bool sent) override {
    Report(p, "icrc", "A17.3",
           sent ? "sent with a wrong ICRC"
                : "wrong ICRC: damaged, or its addresses or ports "
                  "were changed on the way");
  }
};

class SizeRule final : public Rule {
 public:
  using Rule::Rule;

  void OnPacket(const Packet& p) override {
    const wire::OpcodeInfo& info = p.info();
    if (!info.carries_payload || p.is_cnp()) return;
    constexpr std::string_view kRule = "payload-size";
    constexpr std::string_view kSection = "9.7.4.1.6";
    if (p.payload > 4096) {
      Report(p, kRule, kSection,
             std::to_string(p.payload) + " bytes: no path MTU is that large");
    } else if (info.full_mtu_payload &&
               (p.payload < 256 || !std::has_single_bit(p.payload))) {
      Report(p, kRule, kSection,
             "a FIRST or MIDDLE packet with " + std::to_string(p.payload) +
                 " bytes, which is no path MTU");
    } else if (info.full_mtu_payload) {
      uint32_t& mtu = mtus_[KeyOf(p)];
      if (mtu != 0 && mtu != p.payload) {
        Report(p, kRule, kSection,
               "a FIRST or MIDDLE packet with " + std::to_string(p.payload) +
                   " bytes; others had " + std::to_string(mtu));
      }
      mtu = p.payload;
    } else if (info.ends_message && !info.starts_message && p.payload == 0) {
      Report(p, kRule, kSection, "a LAST packet without payload");
    }
  }

  // A queue pair that was reset may be connected with another path MTU.
  void OnEvent(const Event& event) override { ForgetReset(event, &mtus_); }

 private:
  std::map<FlowKey, uint32_t> mtus_;
};

}  // namespace

void Apply(const Rules& rules, const Recording& recording, Flows* flows) {
  const auto each = [&](const auto& call) {
    for (const auto& rule : rules) call(*rule);
  };
  size_t event = 0;
  int64_t last = 0;
  for (const Packet& p : recording.packets) {
    // A queue pair that was reset starts anew.
    for (; event < recording.events.size() &&
           recording.events[event].header().time <= p.time;
         ++event) {
      flows->OnEvent(recording.events[event]);
      each([&](Rule& rule) { rule.OnEvent(recording.events[event]); });
    }
    last = std::max(last, p.time);
    const bool sent = flows->WasSentHere(p);
    if (p.icrc == IcrcVerdict::kBad) {
      each([&](Rule& rule) { rule.OnDamaged(p, sent); });
      flows->OnDamaged(p);
      continue;
    }
    each([&](Rule& rule) { rule.OnPacket(p); });
    if (p.qpn <= wire::kGsiQpn || !IsConnected(p)) continue;
    if (recording.LacksPacketsLike(p)) continue;
    const bool is_response = p.info().is_response && IsReliable(p);
    if (is_response && sent) {
      each([&](Rule& rule) { rule.OnAnySentResponse(p); });
    }
    for (const bool here : {true, false}) {
      if (!(here ? sent : Flows::WasReceivedHere(p))) continue;
      if (p.info().is_request) {
        const FlowPacket in = flows->OnRequest(p, here);
        each([&](Rule& rule) { rule.OnRequest(in); });
      } else if (is_response) {
        const auto in = flows->OnResponse(p, here);
        if (in) each([&](Rule& rule) { rule.OnResponse(*in); });
      }
    }
  }
  each([&](Rule& rule) { rule.OnEnd(last); });
}

std::vector<Finding> CheckRecording(const Recording& recording,
                                    const CheckOptions& options) {
  std::vector<Finding> findings;
  Flows flows(recording, options.senders);
  Rules rules;
  rules.push_back(std::make_unique<IcrcRule>(&findings));
  rules.push_back(std::make_unique<SizeRule>(&findings));
  AddRequestRules(&findings, &rules);
  AddRetryRules(options, &findings, &rules);
  AddReadRules(recording, &findings, &rules);
  AddAnswerRules(&findings, &rules);
  AddCongestionRules(recording, flows, options, &findings, &rules);
  AddDatagramRules(recording, &findings, &rules);
  Apply(rules, recording, &flows);
  std::stable_sort(
      findings.begin(), findings.end(),
      [](const Finding& a, const Finding& b) { return a.frame < b.frame; });
  // A packet that was captured at both ends is reported once.
  const auto again = std::unique(
      findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
        return a.frame == b.frame && a.rule == b.rule && a.psn == b.psn &&
               a.what == b.what;
      });
  findings.erase(again, findings.end());
  return findings;
}

}  // namespace trace
