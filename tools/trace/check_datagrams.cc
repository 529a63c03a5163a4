// UD, and DC sessions.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/check_rules.h"
#include "wire/dc.h"
#include "wire/mad.h"
#include "wire/packet.h"

namespace trace {
namespace {

class DatagramRule final : public Rule {
 public:
  DatagramRule(const Recording& recording, std::vector<Finding>* findings)
      : Rule(findings), recording_(recording) {}

  // A packet without DETH is malformed, so it does not get here.
  void OnPacket(const Packet& p) override {
    if (wire::TransportOf(p.opcode) != wire::Transport::kUd) return;
    constexpr std::string_view kRule = "datagram";
    wire::PacketView view;
    if (!recording_.View(p, &whole_, &view)) return;
    const wire::Deth deth = view.deth();
    const bool to_gsi = p.qpn == wire::kGsiQpn;
    if (to_gsi && deth.qkey != wire::kGsiQkey) {
      Report(p, kRule, "9.6.1.4.1",
             "to queue pair 1 with a Q_Key that is not 0x80010000");
    }
    if (deth.src_qpn == 0 || p.qpn == 0) {
      Report(p, kRule, "A16.4", "RoCE has no queue pair 0");
    }
  }

 private:
  const Recording& recording_;
  std::vector<uint8_t> whole_;
};

// DC has no public specification: see wire/dc.h.
class DcRule final : public Rule {
 public:
  DcRule(const Recording& recording, std::vector<Finding>* findings)
      : Rule(findings), recording_(recording) {}

  void OnRequest(const FlowPacket& in) override {
    const Packet& p = in.packet;
    if (!in.flow.at_requester ||
        wire::TransportOf(p.opcode) != wire::Transport::kDc) {
      return;
    }
    wire::PacketView view;
    if (!recording_.View(p, &whole_, &view)) return;
    const wire::DcEth dceth = view.dceth();
    Session& session = sessions_[&in.flow];
    std::string wrong;
    if (!dceth.from_initiator) {
      wrong = "a request that is not from an initiator";
    } else if (p.opcode == wire::kOpcodeDcConnect || !session.open) {
      session.open = true;
      session.dceth = dceth;
      session.connection = wire::kNoDcQpn;
    } else if (dceth.initiator_session != session.dceth.initiator_session ||
               dceth.dct != session.dceth.dct) {
      wrong = "another session or target without a CONNECT before it";
    } else if (session.dceth.responder_session != wire::kNoDcSession &&
               dceth.responder_session != session.dceth.responder_session) {
      wrong = "another session of the target than before";
    } else if (session.connection != wire::kNoDcQpn &&
               p.qpn != session.connection) {
      wrong = "another connection of the target than before";
    }
    if (!wrong.empty()) Report(p, "dc-session", "", std::move(wrong));
    session.dceth = dceth;
    session.connection = p.qpn;
  }

 private:
  struct Session {
    bool open = false;
    wire::DcEth dceth;        // that of the last request
    uint32_t connection = 0;  // the destination of that request
  };

  const Recording& recording_;
  std::vector<uint8_t> whole_;
  std::map<const Flow*, Session> sessions_;
};

}  // namespace

void AddDatagramRules(const Recording& recording,
                      std::vector<Finding>* findings, Rules* rules) {
  rules->push_back(std::make_unique<DatagramRule>(recording, findings));
  rules->push_back(std::make_unique<DcRule>(recording, findings));
}

}  // namespace trace
