// The broker's record of the owners of slots and the positions of their
// sockets, in a sealed memory file. Every client keeps a read-only descriptor
// of it. When the broker has died, the next one reads it to learn which slots
// belong to processes that have not come back yet, and where their sockets are.
#ifndef RXE_USER_BROKER_LEDGER_H_
#define RXE_USER_BROKER_LEDGER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/protocol.h"
#include "rxe_user/broker/steering.h"

namespace rxe_user::broker {

// By slot: see LedgerData.
using MainSlots = std::array<uint16_t, kSlots>;

struct LedgerGroup {
  LocalAddress address;
  uint32_t probe_word = 0;  // of the probe filters of its locked sockets
  IndexMap index{};
};

// The entry of one slot in a ledger.
struct LedgerEntry {
  int64_t made_at_ms = 0;  // LedgerData::made_at_ms
  uint16_t main = 0;
  uint32_t uid = 0;
};

struct LedgerData {
  // A machine has few addresses. Groups beyond this number are not recorded;
  // their clients recover more slowly.
  static constexpr size_t kGroups = 64;
  uint32_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  int64_t made_at_ms = 0;  // since boot
  // The slot whose sockets a slot uses: itself, or the first one of its process
  // (Extend). 0: not in use.
  MainSlots main{};
  std::array<uint32_t, kSlots> uid{};  // the user of a slot in use
  uint32_t group_count = 0;
  std::array<LedgerGroup, kGroups> groups{};

  LedgerEntry Of(uint16_t slot) const {
    return {made_at_ms, main[slot], uid[slot]};
  }
  // Null if the address is not recorded.
  const LedgerGroup* Find(const LocalAddress& address) const {
    const auto all = std::span(groups).first(group_count);
    const auto found = std::ranges::find(all, address, &LedgerGroup::address);
    return found != all.end() ? &*found : nullptr;
  }
};

// The broker's own, writable ledger.
class Ledger {
 public:
  // Without memory files, uses private memory (fd() is -1).
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

// Read a ledger that a client hands over: the entry of one slot, or a copy of
// all (540 KB). Absent unless the ledger is well-formed and was created by our
// user.
std::optional<LedgerEntry> ReadLedgerEntry(int fd, uint16_t slot);
std::shared_ptr<const LedgerData> ReadLedger(int fd);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_LEDGER_H_
