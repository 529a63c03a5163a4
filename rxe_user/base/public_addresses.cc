#include "rxe_user/base/public_addresses.h"

#include <atomic>
#include <mutex>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"

namespace rxe_user {
namespace {

struct Table {
  ForkSafeMutex mutex;
  std::vector<PublicAddress> addresses;  // under mutex
  std::atomic<bool> any = false;
};

wire::IpAddress Find(const wire::IpAddress& address,
                     wire::IpAddress PublicAddress::*from,
                     wire::IpAddress PublicAddress::*to) {
  Table& table = OnlyOne<Table>();
  if (!table.any.load(std::memory_order_acquire)) return address;
  const std::lock_guard lock(table.mutex);
  for (const PublicAddress& entry : table.addresses) {
    if (entry.*from == address) return entry.*to;
  }
  return address;
}

}  // namespace

void AddPublicAddresses(const std::vector<PublicAddress>& addresses) {
  Table& table = OnlyOne<Table>();
  const std::lock_guard lock(table.mutex);
  for (const PublicAddress& added : addresses) {
    std::erase_if(table.addresses, [&](const PublicAddress& entry) {
      return entry.known == added.known || entry.bound == added.bound;
    });
    table.addresses.push_back(added);
  }
  table.any.store(!table.addresses.empty(), std::memory_order_release);
}

wire::IpAddress BoundAddress(const wire::IpAddress& known) {
  return Find(known, &PublicAddress::known, &PublicAddress::bound);
}

wire::IpAddress KnownAddress(const wire::IpAddress& bound) {
  return Find(bound, &PublicAddress::bound, &PublicAddress::known);
}

}  // namespace rxe_user
