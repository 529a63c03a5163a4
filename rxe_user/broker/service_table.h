// The service IDs that the processes of a host have reserved, and their
// listeners.
#ifndef RXE_USER_BROKER_SERVICE_TABLE_H_
#define RXE_USER_BROKER_SERVICE_TABLE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "rxe_user/base/local_address.h"
#include "rxe_user/base/qpn.h"

namespace rxe_user {

// A service ID that a process reserves. Copied into messages as raw bytes.
struct Service {
  uint64_t service_id = 0;
  uint64_t mask = ~uint64_t{0};  // the bits of service_id that are compared
  // The address at which requests arrive. 0.0.0.0 (mapped): all of IPv4. `::`:
  // all of both families, or only of IPv6.
  LocalAddress local;
  uint8_t ipv6_only = 0;  // 1: see above
  // 1: other services with this flag may reserve the same ID, until one
  // listens.
  uint8_t reuse = 0;
  uint8_t listening = 0;  // 1: requests are delivered
  uint8_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<Service>);

// The time of a call grows with the logarithm of the number of services; that
// of Match also with the number of masks.
class ServiceTable {
 public:
  // kNow: a new reservation. kBefore: the holder had it before this table
  // existed.
  enum class Since : uint8_t { kNow, kBefore };
  // Adds `holder`'s service `token`, or changes it. False, without a change, if
  // it conflicts with another: same service ID and mask, and an address in
  // common. May throw bad_alloc, without a change.
  bool Set(uint16_t holder, uint32_t token, const Service& service,
           Since since = Since::kNow);
  void Remove(uint16_t holder, uint32_t token);
  void RemoveAll(uint16_t holder);
  bool Has(uint16_t holder, uint32_t token) const {
    return services_.contains({holder, token});
  }
  size_t CountOf(uint16_t holder) const { return of_holder_[holder].services; }
  // How many masks `holder` would have if `token` had `mask`.
  size_t MasksWith(uint16_t holder, uint32_t token, uint64_t mask) const;

  // The holder that listens for a request. A mask with more bits wins; then an
  // exact address over a family, and a family over both.
  std::optional<uint16_t> Match(uint64_t service_id,
                                const LocalAddress& local) const;

 private:
  using Name = std::pair<uint16_t, uint32_t>;  // holder, token
  struct NarrowFirst {
    bool operator()(uint64_t a, uint64_t b) const {
      const int bits_a = std::popcount(a);
      const int bits_b = std::popcount(b);
      return bits_a != bits_b ? bits_a > bits_b : a < b;
    }
  };

  // The address family of the requests that a service receives. kBoth: an IPv6
  // wildcard that is not restricted to IPv6.
  enum Family : uint8_t { kV4, kV6, kBoth };
  static Family FamilyOf(const Service& s);

  // Counts of services. They suffice to decide whether another service can be
  // added.
  struct Users {
    size_t all = 0;
    size_t exclusive = 0;  // without `reuse`
    size_t listening = 0;

    void Add(const Service& s);
    void Add(const Users& other);
    void Subtract(const Service& s);
  };
  // The services of one address, or of one kind of wildcard. At most one of
  // them listens.
  struct Endpoint : Users {
    uint16_t listener = 0;
  };
  // The services of one service ID and mask.
  struct Ids {
    std::map<LocalAddress, Endpoint> addresses;
    std::array<Endpoint, 3> wildcards;  // by Family
    std::array<Users, 2> of_addresses;  // sums over `addresses`, by Family

    // Null if its address has no entry.
    Endpoint* EndpointOf(const Service& s);
    Users Overlapping(const Service& s) const;
    // EndpointOf must not be null.
    void Enter(uint16_t holder, const Service& s);
    void Leave(const Service& s);
    bool empty() const;
  };
  struct Holder {
    size_t services = 0;
    std::map<uint64_t, size_t> masks;  // the number of services of each
  };

  // Whether they have an address in common.
  static bool Overlap(const Service& a, const Service& b);
  // Whether `service` conflicts with no other. `old`: its present state; null
  // if it is new.
  bool MayAdd(const Service& service, const Service* old, Since since);
  Ids* Find(const Service& s);
  // Removes the entries for `s` that no service uses.
  void Prune(const Service& s);
  void PruneMask(uint16_t holder, uint64_t mask);

  std::map<Name, Service> services_;
  // By mask, then by the service ID's bits in the mask.
  std::map<uint64_t, std::map<uint64_t, Ids>, NarrowFirst> by_mask_;
  std::array<Holder, kSlots> of_holder_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BROKER_SERVICE_TABLE_H_
