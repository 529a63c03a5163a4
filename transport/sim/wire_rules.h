// Watches the packets of connections for what no endpoint may send, however the
// network behaves. A transport can break these rules and still deliver
// everything to its own kind; another implementation would object.
#ifndef TRANSPORT_SIM_WIRE_RULES_H_
#define TRANSPORT_SIM_WIRE_RULES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "wire/packet.h"

namespace sim {

class WireRules {
 public:
  // One direction: requests from queue pair `qpn` of host `host`.
  struct Requester {
    int host = 0;
    uint32_t qpn = 0;
    int peer_host = 0;
    uint32_t peer_qpn = 0;
    uint32_t first_psn = 0;
    uint32_t path_mtu = 1024;
    uint32_t max_rd_atomic = 1;
    bool reliable = true;  // RC; else UC, which says everything once
  };
  void Watch(const Requester& requester);
  // The requester's state: in SQD no message is begun (but one, which may have
  // been begun without a packet on the wire), and once it has drained no
  // request is sent.
  enum class Queue : uint8_t { kRunning, kDraining, kDrained };
  void SetQueue(int host, uint32_t qpn, Queue queue);

  // `host` sends `packet` to `to`. Returns what is wrong with it, or nothing.
  std::string OnSent(int host, int to, const wire::PacketView& packet);
  // `packet` has come to `host`, undamaged.
  void OnDelivered(int host, const wire::PacketView& packet);

 private:
  struct State {
    Requester of;
    uint32_t next_psn = 0;  // never sent before
    Queue queue = Queue::kRunning;
    int begun = 0;  // messages, since it drains
    // UC: the kind of the message that has been begun and not ended.
    enum class Open : uint8_t { kNone, kSend, kWrite };
    Open open = Open::kNone;
    std::set<uint32_t> asked;  // PSNs, and not answered
    // The last PSNs of READs and atomics whose last answer has not arrived.
    std::deque<uint32_t> unanswered;
  };

  std::string OnRequest(State& state, const wire::PacketView& packet);
  std::string OnUnreliable(State& state, const wire::PacketView& packet);
  std::string OnUnreliableResponse(State& state,
                                   const wire::PacketView& packet);
  std::string OnResponse(State& state, const wire::PacketView& packet);

  // By host and queue pair that the packets go to.
  std::map<std::pair<int, uint32_t>, State> by_responder_;
  // The same requesters, by host and queue pair that answers go to.
  std::map<std::pair<int, uint32_t>, State*> by_requester_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_WIRE_RULES_H_
