// One reuseport group: the sockets that share UDP port 4791 of one address.
#ifndef RXE_USER_BROKER_GROUP_H_
#define RXE_USER_BROKER_GROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/ledger.h"
#include "rxe_user/broker/prober.h"
#include "rxe_user/broker/steering.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

// The kernel steers by a socket's position in its group, and moves the last
// socket to the position of one that is closed. So a group never closes a
// socket. A socket whose slot was returned is kept for the next client, and no
// datagrams are steered to it meanwhile.
//
// A *created* group knows its positions: the order of creation. An *adopted*
// group consists of sockets from a dead broker's clients; their positions are
// found by probing (prober.h).
class Group {
 public:
  // Binds slot 0's socket. `main` must outlive the group. kAlreadyExists:
  // sockets of this user hold the port (clients of a dead broker, which may
  // hand them back, or a process that is ending). kUnavailable: a foreign
  // socket holds it. kNotFound: no such address.
  static absl::StatusOr<Group> Create(const LocalAddress& address,
                                      const MainSlots& main);

  // A group of handed-back sockets; call Adopt and StartLocating. `former`:
  // their last positions, or null if unknown.
  static Group ForAdoption(const LocalAddress& address, const MainSlots& main,
                           const LedgerGroup* former);

  // A group in which other processes still hold sockets that a broker lent and
  // nobody handed back. Positions are probed, as after an adoption: it is
  // locating().
  static absl::StatusOr<Group> Join(const LocalAddress& address,
                                    const MainSlots& main);

  // Takes the sockets that a client hands back: `slot`'s, and slot 0's, which
  // may be missing. Refuses a socket that is not in this group, belongs to
  // another slot, or is unknown to a created group. May be repeated.
  bool Adopt(uint16_t slot, uid_t uid, UniqueFd socket, uint16_t index,
             UniqueFd anchor);
  // Merges a dead broker's record of an adopted group.
  void MergeLedger(const LedgerGroup& former);
  // Begins to find the positions, after which the program is installed, and the
  // group is settled(). Adds slot 0's socket if it was not handed back. Call it
  // again later, since other sockets of the group may close and move ours.
  absl::Status StartLocating();
  // Whether the search for positions is in progress. Until it has ended nothing
  // is assigned.
  bool locating() const { return locating_.has_value(); }
  // Continues the search. Blocks for at most 8 ms plus the time of a probe.
  void Locate();
  // Whether a socket is lent to `uid`, or was returned by it.
  bool HasSocketOf(uid_t uid) const {
    return Lent([uid](uid_t other) { return other == uid; }) != 0;
  }

  struct Member {
    UniqueFd fd;
    uint64_t cookie = 0;
    std::optional<uint16_t> slot;  // absent: free
    uint16_t index = kNoIndex;
    uid_t uid = 0;  // the last holder, which may have kept a copy
  };
  // Returns the socket of a slot of user `uid`, new or reused, with datagrams
  // steered to it. For a user who is not `trusted` it is locked. Valid until
  // the next call of Assign or Adopt. An adopted group may be locating()
  // afterwards; the index of the socket is known when that has ended.
  absl::StatusOr<const Member*> Assign(uint16_t slot, uid_t uid, bool trusted);
  void Release(uint16_t slot);
  // Steers again, after `main` has changed.
  absl::Status Update() { return settled_ ? Install() : absl::OkStatus(); }
  // Forgets the position of a slot whose owner did not come back.
  void Forget(uint16_t slot);

  const LocalAddress& address() const { return address_; }
  // Slot 0's socket; -1 before an adopted group is settled.
  int management_fd() const { return fd_of(0); }
  // The socket of a slot; -1 if it has none in this group.
  int fd_of(uint16_t slot) const;
  bool settled() const { return settled_; }
  bool adopted() const { return adopted_; }
  // Whether the group contains sockets that we do not hold. When one of them
  // closes, ours may move.
  bool has_gaps() const;
  // Whether the last search found all positions.
  bool located() const { return located_; }
  // Whether no slot has a socket in this group, or may come back to one.
  bool unused() const;
  // The number of sockets lent to the users for which `counts` is true,
  // including returned ones.
  size_t Lent(const std::function<bool(uid_t)>& counts) const;
  const IndexMap& map() const { return map_; }
  uint32_t probe_word() const { return probe_word_; }

 private:
  Group(const LocalAddress& address, const MainSlots& main);
  Member* Find(uint16_t slot);
  Member* FindFree(uid_t uid);
  absl::StatusOr<Member*> Add(uint16_t slot, uid_t uid, bool trusted);
  absl::Status Install();
  // Whether the slot uses the sockets of another one.
  bool IsFurther(size_t slot) const;
  void BeginLocating();
  bool LocateSome();
  void EndLocating(bool found);

  LocalAddress address_;
  const MainSlots* main_;
  uint32_t probe_word_;
  std::vector<Member> members_;
  // Last known positions of slots whose sockets were not handed back.
  IndexMap former_;
  IndexMap map_;  // as installed
  bool adopted_ = false;
  bool settled_ = false;
  bool located_ = true;
  // Present while the search for positions is in progress.
  struct Locating {
    std::unique_ptr<Prober> prober;  // null before the first step
    int round = 0;
    std::vector<uint16_t> candidate;
    std::optional<Prober::Search> search;  // of this round
  };
  std::optional<Locating> locating_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_GROUP_H_
