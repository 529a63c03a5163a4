// A fault rule: what happens to which packets, and when
// (docs/faults-on-command.md). Plain data.
#ifndef TRANSPORT_FAULTS_RULE_H_
#define TRANSPORT_FAULTS_RULE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/types.h"
#include "transport/faults/events.h"
#include "wire/address.h"

namespace transport::faults {

// The values are those of recordings (FaultAction).
enum class Action : uint8_t {
  kDrop = 0,
  kDuplicate = 1,
  kDelay = 2,
  kCorrupt = 3,
  kMark = 4,  // ECN: congestion experienced
  kReorder = 5,
  kStall = 6,
  kNoAck = 7,
  kRnr = 8,
  kNak = 9,
  kFail = 10,
  // Actions on completions.
  kComplete = 11,
  kOverrun = 12,
  kLateCompletion = 13,
  // An asynchronous event, or a change of the port's state: at a packet, at a
  // call, or at a time.
  kEvent = 14,
  kLink = 15,
  // An action on the device's accesses to memory.
  kUnmap = 16,
};
// What a rule with the action hits: "packet", "call", "completion", "transfer"
// (from or to memory), "message" (of the CM), or "time".
struct Rule;
const char* TargetOf(Action action);
const char* TargetOf(const Rule& rule);
// "drop" and so on: the word of the rule language.
const char* NameOf(Action action);
// "was dropped" and so on.
const char* PastOf(Action action);

// From `first` to `last`, both included.
struct Range {
  uint64_t first = 1;
  uint64_t last = UINT64_MAX;
};

// What kCorrupt changes: one bit.
struct Corruption {
  // Index in the list of fields (corrupt.h); kByte: `byte` instead.
  static constexpr size_t kByte = SIZE_MAX;
  size_t field = kByte;
  size_t byte = 0;        // from the first byte of BTH on
  bool resealed = false;  // with a good ICRC over the changed packet
};

// The attribute ID of the first CM message, REQ, and the number of CM messages.
inline constexpr uint16_t kFirstMad = 0x10;
inline constexpr size_t kMads = 11;

struct Rule {
  uint32_t number = 0;  // its place among the rules, from 1
  std::string text;     // as written, without blanks around it
  Action action = Action::kDrop;
  Time delay = 0;         // kDelay, kStall
  Time jitter = 0;        // kDelay: up to this much more
  uint32_t behind = 0;    // kReorder: packets that overtake it
  Corruption corruption;  // kCorrupt
  // kRnr, kNak: the AETH syndrome of the answer; absent: an RNR NAK with the
  // min_rnr_timer of the queue pair.
  std::optional<uint8_t> syndrome;
  // kFail: a call of the program, and the errno value with which it fails.
  // Other actions (`call=`): the call at which the action happens; empty: none.
  // A rule with a call matches no packet.
  std::string call;
  int error = 0;
  uint8_t status = 0;  // kComplete: WcStatus
  // kEvent: its number (events.h), and the kind of object that it is about.
  int event = 0;
  EventOf event_of = EventOf::kDevice;
  bool link_up = false;  // kLink; false: down
  // kEvent, kLink: matches no packet, but fires once when its time has come.
  bool is_timed = false;

  // --- Which packets, completions or accesses. Completions of sends, and
  // accesses that read memory, count as transmitted.
  bool received = true;
  bool transmitted = true;
  // CM messages: bit i stands for attribute ID kFirstMad + i. 0: the rule is
  // not for CM messages.
  uint16_t mads = 0;
  std::bitset<256> opcodes = std::bitset<256>().set();
  std::optional<uint32_t> qpn;      // of the local queue pair
  std::optional<uint32_t> ordinal;  // the K-th queue pair that was created
  std::optional<wire::IpAddress> peer;
  std::optional<uint32_t> psn;
  bool psn_is_relative = false;  // `psn` counts from the first PSN
  std::optional<uint32_t> iteration;
  std::optional<uint64_t> longer_than;  // bytes of payload
  // The number among the messages of its queue pair and direction.
  std::optional<uint64_t> message;
  std::optional<uint64_t> wr_id;

  // --- When: which of the packets above, counted from 1.
  std::vector<Range> nth;  // empty: all
  uint64_t every = 1;
  double chance = 1;
  uint64_t times = UINT64_MAX;
  Time after = 0;  // since the rules became valid
  // The rule ends this long after `after`. kLink: how long the change lasts.
  Time during = kNever;
  // It is no error if the rule never fires.
  bool maybe = false;
};

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_RULE_H_
