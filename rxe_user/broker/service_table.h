// Which service IDs the processes of a host have reserved, and who listens.
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

namespace rxe_user {

// A service ID that a process reserves. It stands in messages as it lies in
// memory.
struct Service {
  uint64_t service_id = 0;
  uint64_t mask = ~uint64_t{0};  // the bits that count
  // Where requests come to: an address; 0.0.0.0 (mapped): all of IPv4; ::, all
  // of both families, or all of IPv6.
  LocalAddress local;
  uint8_t ipv6_only = 0;  // 1: as said
  // 1: others that say so too may reserve the same, until one listens.
  uint8_t reuse = 0;
  uint8_t listening = 0;  // 1: requests are handed on
  uint8_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<Service>);

// No call takes longer for what others have reserved, but by logarithms, and
// Match by the number of masks.
class ServiceTable {
 public:
  // Since when a service that is added is its holder's: from now on, or from
  // before this table was there.
  enum class Since : uint8_t { kNow, kBefore };
  // Adds `holder`'s service `token`, or changes it. False, and all is as it
  // was, if one that it overlaps stands against it: same service ID and mask,
  // an address in common. May throw bad_alloc; all is as it was then, too.
  bool Set(uint8_t holder, uint32_t token, const Service& service,
           Since since = Since::kNow);
  void Remove(uint8_t holder, uint32_t token);
  void RemoveAll(uint8_t holder);
  bool Has(uint8_t holder, uint32_t token) const {
    return services_.contains({holder, token});
  }
  size_t CountOf(uint8_t holder) const { return of_holder_[holder].services; }
  // How many masks it would have if `token` had `mask`.
  size_t MasksWith(uint8_t holder, uint32_t token, uint64_t mask) const;

  // Who listens for a request: the one with the most bits in its mask, and
  // among these that of the address rather than of its family or of all.
  std::optional<uint8_t> Match(uint64_t service_id,
                               const LocalAddress& local) const;

 private:
  using Name = std::pair<uint8_t, uint32_t>;  // holder, token
  struct NarrowFirst {
    bool operator()(uint64_t a, uint64_t b) const {
      const int bits_a = std::popcount(a);
      const int bits_b = std::popcount(b);
      return bits_a != bits_b ? bits_a > bits_b : a < b;
    }
  };

  // Whose requests a service gets: of an address, or by a wildcard of both.
  enum Family : uint8_t { kV4, kV6, kBoth };
  static Family FamilyOf(const Service& s);

  // How many there are, which is all that decides whether one more may join
  // them.
  struct Users {
    size_t all = 0;
    size_t exclusive = 0;  // without `reuse`
    size_t listening = 0;

    void Add(const Service& s);
    void Add(const Users& other);
    void Subtract(const Service& s);
  };
  // Those of one address, or one kind of wildcard: one at most listens.
  struct Place : Users {
    uint8_t listener = 0;
  };
  // Those of one service ID and mask.
  struct Ids {
    std::map<LocalAddress, Place> addresses;
    std::array<Place, 3> wildcards;     // by Family
    std::array<Users, 2> of_addresses;  // sums over `addresses`, by Family

    // Null: there is none for its address.
    Place* PlaceOf(const Service& s);
    Users Overlapping(const Service& s) const;
    // PlaceOf is not null.
    void Enter(uint8_t holder, const Service& s);
    void Leave(const Service& s);
    bool empty() const;
  };
  struct Holder {
    size_t services = 0;
    std::map<uint64_t, size_t> masks;  // and how many have each
  };

  // Whether they have an address in common.
  static bool Overlap(const Service& a, const Service& b);
  // `old`: what the service is by now; null: it comes.
  bool MayStand(const Service& service, const Service* old, Since since);
  Ids* Find(const Service& s);
  // Removes the places of `s` that nobody has.
  void Prune(const Service& s);
  void PruneMask(uint8_t holder, uint64_t mask);

  std::map<Name, Service> services_;
  // By mask, then by the bits of the service ID that count.
  std::map<uint64_t, std::map<uint64_t, Ids>, NarrowFirst> by_mask_;
  std::array<Holder, 256> of_holder_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BROKER_SERVICE_TABLE_H_
