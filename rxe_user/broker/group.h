// One reuseport group: the sockets that share UDP port 4791 of one address.
#ifndef RXE_USER_BROKER_GROUP_H_
#define RXE_USER_BROKER_GROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
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
// socket into the place of one that is closed. So a group keeps every socket
// open as long as it lives; one whose slot was given back waits for the next
// client, and no datagrams are steered to it meanwhile.
//
// A group is either *created*, and then position = order of creation; or
// *adopted* from the clients of a dead broker, and then positions are found by
// probing (prober.h).
class Group {
 public:
  // Binds slot 0's socket. kAlreadyExists when sockets of this user hold the
  // port (a dead broker's clients, who may hand them back, or one that is just
  // going); kUnavailable when something foreign does; kNotFound when there is
  // no such address.
  static absl::StatusOr<Group> Create(const LocalAddress& address);

  // A group of sockets that are handed back; needs Adopt and Settle.
  // `former`: where they stood, if known.
  static Group ForAdoption(const LocalAddress& address,
                           const LedgerGroup* former);

  // A group in which sockets of ours already stand whose holders did not hand
  // them back: their positions have to be found, as after an adoption. It is
  // locating().
  static absl::StatusOr<Group> Join(const LocalAddress& address);

  // Takes over what a client hands back: `slot`'s socket, and slot 0's, which
  // may be missing. Refuses what is not a socket of this group, another's, and
  // what a created group does not know.
  bool Adopt(uint8_t slot, uid_t uid, UniqueFd socket, uint16_t index,
             UniqueFd anchor);
  // What a dead broker noted of an adopted group, where it is news.
  void Believe(const LedgerGroup& former);
  // Begins to find the positions, after which the program is installed; adds
  // slot 0's socket if none was handed back. To be called again later: sockets
  // that were not handed back move others when they go.
  absl::Status Settle();
  // Whether positions are being looked for. Until that is over nothing is
  // assigned.
  bool locating() const { return locating_.has_value(); }
  // Goes on with that: blocks for 8 ms at most, and the time of a probe.
  void Locate();
  // Whether `uid` has a socket here.
  bool HasSocketOf(uid_t uid) const {
    return Lent([uid](uid_t other) { return other == uid; }) != 0;
  }

  struct Member {
    UniqueFd fd;
    uint64_t cookie = 0;
    std::optional<uint8_t> slot;  // none: free
    uint16_t index = kNoIndex;
    uid_t uid = 0;  // who holds it, or did: that user may have kept a copy
  };
  // The socket of a slot that belongs to `uid`, made or reused as need be, and
  // steered to. Who is not `trusted` gets one that is locked. Valid until the
  // next call of Assign or Adopt. In an adopted group it may be locating()
  // afterwards, and the index of the socket is known when that is over.
  absl::StatusOr<const Member*> Assign(uint8_t slot, uid_t uid, bool trusted);
  // The slot was given back.
  void Release(uint8_t slot);
  // A slot whose owner did not come back: forget where its socket stood.
  void Forget(uint8_t slot);

  const LocalAddress& address() const { return address_; }
  // Slot 0's socket; -1 before an adopted group is settled.
  int management_fd() const { return fd_of(0); }
  // The socket of a slot; -1 if it has none here.
  int fd_of(uint8_t slot) const;
  bool settled() const { return settled_; }
  bool adopted() const { return adopted_; }
  // Whether sockets that we do not hold stand among ours. When one of them
  // goes, ours move.
  bool has_gaps() const;
  // Whether it was found where the sockets stand, the last time.
  bool located() const { return located_; }
  // Whether no slot has a socket here, nor may come back to one.
  bool unused() const;
  // How many sockets were lent to users that `counts` says, those given back
  // included.
  size_t Lent(const std::function<bool(uid_t)>& counts) const;
  const IndexMap& map() const { return map_; }
  uint32_t probe_word() const { return probe_word_; }

 private:
  explicit Group(const LocalAddress& address);
  Member* Find(uint8_t slot);
  Member* FindFree(uid_t uid);
  absl::StatusOr<Member*> Add(uint8_t slot, uid_t uid, bool trusted);
  absl::Status Install();
  void BeginLocating();
  bool LocateSome();
  void EndLocating(bool found);

  LocalAddress address_;
  uint32_t probe_word_;
  std::vector<Member> members_;
  // Where the sockets of slots that were not handed back may stand.
  IndexMap former_;
  IndexMap map_;  // as installed
  bool adopted_ = false;
  bool settled_ = false;
  bool located_ = true;
  // While positions are looked for.
  struct Locating {
    int round = 0;
    std::vector<uint16_t> candidate;       // to be verified
    std::optional<Prober::Search> search;  // of this round, once it failed
  };
  std::optional<Locating> locating_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_GROUP_H_
