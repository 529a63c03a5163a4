// What packets and events of a time line belong to: connections, messages (work
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

// Two queue pairs that talk to each other. The QPN of an end is 0 while nothing
// tells it.
struct Connection {
  size_t a = 0;  // ends
  size_t b = 0;
  uint32_t qpn_a = 0;
  uint32_t qpn_b = 0;
};
// "A 0x000011 - B 0x000012"
std::string ConnectionName(const Timeline& timeline,
                           const Connection& connection);

// A send work request, or, without events of its end, a message that packets
// tell of.
struct Message {
  uint32_t number = 0;  // in its direction, from 1
  size_t end = 0;       // the requester
  size_t connection = kNone;
  std::string name;  // "RDMA_WRITE"
  uint32_t first_psn = 0;
  uint32_t last_psn = 0;
  uint64_t bytes = 0;
  int64_t begin = kNoTime;   // posted, or its first packet
  int64_t done = kNoTime;    // completed, or acknowledged; kNoTime: never
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

// What earlier parts of a time line told (parts.h).
struct Before {
  // The requests of a flow, without those that the next part has too.
  struct Requests {
    bool has_request = false;
    uint32_t highest_request = 0;  // PSN
    int64_t highest = 0;           // the same, from the first one on
    uint32_t numbered = 0;         // messages
  };
  // By the indices of the ends, from and to, and the destination's QPN.
  using FlowKey = std::tuple<size_t, size_t, uint32_t>;
  std::map<FlowKey, Requests> requests;
  std::map<std::pair<size_t, size_t>, uint32_t> mtus;  // by ends
  // Posted send work requests, by file and queue pair, those not counted that
  // the next part has too.
  std::map<std::pair<size_t, uint32_t>, uint32_t> posted;
};

// Also sets the members of the arrows that Arrow names. `before`: of a part;
// what this one tells is added.
Conversation Analyze(Timeline* timeline, Before* before);
Conversation Analyze(Timeline* timeline);

// A packet in words, without its fate: "WRITE MIDDLE 2005 1024 B",
// "NAK: PSN sequence error, wants 2005".
std::string PacketText(const Packet& packet);

// An event in words: "state RTS", "ACK timeout fired".
std::string EventText(const Event& event);

}  // namespace trace

#endif  // TOOLS_TRACE_CONVERSATION_H_
