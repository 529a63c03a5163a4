// The broker's memory of who holds what, in a sealed memory file of which every
// client keeps a descriptor. A client cannot write to it. When the broker has
// died, its successor reads it: it tells which slots are in use by processes
// that have not come back yet, and where their sockets stood.
#ifndef RXE_USER_BROKER_LEDGER_H_
#define RXE_USER_BROKER_LEDGER_H_

#include <array>
#include <cstdint>
#include <optional>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/protocol.h"
#include "rxe_user/broker/steering.h"

namespace rxe_user::broker {

struct LedgerGroup {
  LocalAddress address;
  uint32_t probe_word = 0;  // what its locked sockets' filters know probes by
  IndexMap index{};
};

struct LedgerData {
  // A machine has few addresses; groups beyond these are not recorded, which
  // costs clients there a slower recovery.
  static constexpr size_t kGroups = 64;
  uint32_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  int64_t made_at_ms = 0;              // since the machine started
  std::array<uint8_t, kSlots> used{};  // 1: in use
  std::array<uint32_t, kSlots> uid{};  // by whom
  uint32_t group_count = 0;
  std::array<LedgerGroup, kGroups> groups{};
};

// The broker's own, writable.
class Ledger {
 public:
  // Falls back to private memory (fd() is -1) where memory files are refused.
  Ledger();
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  LedgerData& data() { return *data_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  LedgerData* data_;
};

// A copy of a ledger that a client hands over; absent unless it is well formed
// and was made by our own user.
std::optional<LedgerData> ReadLedger(int fd);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_LEDGER_H_
