// What a process has done, counted in a file that outlives it, for `rxe-user
// run --expect`. The library maps the file and counts in it, so the counts are
// complete at any moment, even if the process is killed. Only the counters of
// `rxe-user stat` are added later: when a device is closed, and by exit(3).
#ifndef RXE_USER_OBSERVE_TALLY_PAGE_H_
#define RXE_USER_OBSERVE_TALLY_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/base/counters.h"
#include "transport/base/rare_event.h"

namespace rxe_user {

// The first thing of its kind, or the slowest one.
struct TallyItem {
  uint64_t is_set = 0;
  int64_t time = 0;  // ns since 1970
  uint64_t wr_id = 0;
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint8_t has_wr_id = 0;
  uint8_t has_psn = 0;
  uint8_t reserved[6] = {};
};

enum class TallyQueue : uint8_t { kSend = 0, kReceive = 1 };
inline constexpr size_t kTallyQueues = 2;
// IBV_WC_... values; the last entry counts all higher ones.
inline constexpr size_t kTallyStatuses = 32;
inline constexpr size_t kTallyEvents = std::size(transport::kRareEvents);
inline constexpr size_t kMaxTallyCounters = 256;
// transport::faults::Injector::kMaxRulesEver, including rules added to a
// running program.
inline constexpr size_t kTallyRules = 4096;

// The contents of the file. Integers in this machine's byte order; all zero
// until written.
struct TallyPage {
  static constexpr uint64_t kMagic = 0x796c6c6174455852;  // "RXEtally"
  static constexpr uint32_t kVersion = 3;

  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t pid = 0;
  int64_t begin = 0;      // ns since 1970
  char program[64] = {};  // ends with a zero byte

  // Completions that were generated, by TallyQueue and status.
  uint64_t completions[kTallyQueues][kTallyStatuses] = {};
  TallyItem first_completion[kTallyQueues][kTallyStatuses] = {};
  // The longest time from a post to its completion, ns.
  int64_t slowest_ns[kTallyQueues] = {};
  TallyItem slowest[kTallyQueues] = {};
  // Completions of requests whose posting was not seen (mlx5dv).
  uint64_t untimed[kTallyQueues] = {};

  uint64_t events[kTallyEvents] = {};  // by transport::RareEventKind
  TallyItem first_event[kTallyEvents] = {};
  uint64_t repeated = 0;  // request packets that were retransmitted
  TallyItem first_repeated = {};
  // Received packets, by transport::Disposition.
  uint64_t dropped[transport::kDropKinds] = {};
  TallyItem first_dropped[transport::kDropKinds] = {};

  // Packets that a fault rule hit, by the rule's number minus one.
  uint64_t faults[kTallyRules] = {};

  uint64_t lints = 0;  // findings of verbs_api/lint

  // Counters of devices, in the order of CountersOf(DeviceReport).
  uint64_t devices_opened = 0;
  uint64_t devices_counted = 0;  // those of them whose counters have been added
  uint64_t counter_names = 0;    // TallyCounterNames()
  uint64_t counters[kMaxTallyCounters] = {};
};

// A hash of the names of the counters, in their order.
uint64_t TallyCounterNames();

// The contents of the file. If there are none, `*why` gets the reason: it is of
// another version or cannot be read.
std::optional<TallyPage> ReadTally(const std::string& path, std::string* why);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_TALLY_PAGE_H_
