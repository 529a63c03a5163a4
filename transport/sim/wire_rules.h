// Checks each connection's packets for what an endpoint may never send. A
// transport that breaks these rules may still work with itself, but not with
// other implementations.
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
    bool reliable = true;  // RC; otherwise UC, which never retransmits
  };
  void Watch(const Requester& requester);
  // State of the send queue. In SQD at most one message is begun (it may have
  // been begun without a packet yet), and once drained no request is sent.
  enum class Queue : uint8_t { kRunning, kDraining, kDrained };
  void SetQueue(int host, uint32_t qpn, Queue queue);

  // `host` sends `packet` to `to`. Returns the violation, or an empty string.
  std::string OnSent(int host, int to, const wire::PacketView& packet);
  // `packet` arrived at `host` undamaged.
  void OnDelivered(int host, const wire::PacketView& packet);

 private:
  struct State {
    Requester of;
    uint32_t next_psn = 0;  // of the next new packet
    Queue queue = Queue::kRunning;
    int begun = 0;  // messages begun while draining
    // UC: the kind of the message in progress.
    enum class Open : uint8_t { kNone, kSend, kWrite };
    Open open = Open::kNone;
    std::set<uint32_t> asked;  // PSNs of requests for a report without one
    // Last PSNs of READs and atomics whose last response has not arrived.
    std::deque<uint32_t> unanswered;
  };

  std::string OnRequest(State& state, const wire::PacketView& packet);
  std::string OnUnreliable(State& state, const wire::PacketView& packet);
  std::string OnUnreliableResponse(State& state,
                                   const wire::PacketView& packet);
  std::string OnResponse(State& state, const wire::PacketView& packet);

  // By the host and queue pair that receive the requests.
  std::map<std::pair<int, uint32_t>, State> by_responder_;
  // The same, by the host and queue pair that receive the responses.
  std::map<std::pair<int, uint32_t>, State*> by_requester_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_WIRE_RULES_H_
