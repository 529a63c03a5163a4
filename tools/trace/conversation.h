// Groups the packets and events of a time line: connections, messages (work
// requests), repeats, and which packet answers which.
#ifndef TOOLS_TRACE_CONVERSATION_H_
#define TOOLS_TRACE_CONVERSATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/trace/timeline.h"

namespace trace {

// Two connected queue pairs. The QPN of an end is 0 while it is unknown.
struct Connection {
  size_t a = 0;  // ends
  size_t b = 0;
  uint32_t qpn_a = 0;
  uint32_t qpn_b = 0;
};
// "A 0x000011 - B 0x000012"
std::string ConnectionName(const Timeline& timeline,
                           const Connection& connection);

// A send work request or, without events of its end, a message that packets
// show.
struct Message {
  uint32_t number = 0;  // in its direction, from 1
  size_t end = 0;       // the requester
  size_t connection = kNone;
  std::string name;  // "RDMA_WRITE"
  uint32_t first_psn = 0;
  uint32_t last_psn = 0;
  uint64_t bytes = 0;
  int64_t begin = kNoTime;   // when posted, or its first packet
  int64_t done = kNoTime;    // when completed or acknowledged; kNoTime: never
  int64_t polled = kNoTime;  // by the program
  std::string error;         // empty: none
  // From events.
  bool has_wr_id = false;
  uint64_t wr_id = 0;
  bool shown = true;  // as in Packet
};

struct Conversation {
  std::vector<Connection> connections;
  std::vector<Message> messages;  // by begin
};

// State from earlier parts of a time line (parts.h).
struct CarriedState {
  // The requests of a flow, except those that the next part contains as well.
  struct Requests {
    bool has_request = false;
    uint32_t highest_request = 0;  // PSN
    int64_t highest = 0;           // the same, counted from the first one
    uint32_t numbered = 0;         // messages
  };
  // By the indices of the ends, from and to, and the destination's QPN.
  using FlowKey = std::tuple<size_t, size_t, uint32_t>;
  std::map<FlowKey, Requests> requests;
  std::map<std::pair<size_t, size_t>, uint32_t> mtus;  // by ends
  // Numbers of posted send work requests, by file and queue pair, except those
  // that the next part contains as well.
  std::map<std::pair<size_t, uint32_t>, uint32_t> posted;
};

// Also sets members of arrows; struct Arrow says which. `carried`: the state
// before a part, to which this adds its own.
Conversation Analyze(Timeline* timeline, CarriedState* carried);
Conversation Analyze(Timeline* timeline);

// A packet in words, without its fate: "WRITE MIDDLE 2005 1024 B",
// "NAK: PSN sequence error, wants 2005".
std::string PacketText(const Packet& packet);

// An event in words: "state RTS", "ACK timeout fired".
std::string EventText(const Event& event);

}  // namespace trace

#endif  // TOOLS_TRACE_CONVERSATION_H_
