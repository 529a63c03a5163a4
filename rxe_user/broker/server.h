// The port broker: owns the sockets of UDP port 4791 of a network namespace and
// lends them to processes by slot (docs/architecture.md, "One port, many
// processes"). One thread, driven by epoll; never blocks but for the
// milliseconds of probing after a recovery.
//
// A broker serves its own user; one that runs as root serves all. Users of one
// broker are kept apart as far as sockets can be: a socket is never lent to a
// second user, and slot 0's is lent to the broker's own user and root only. But
// who holds a socket of a group can replace the group's program, so users who
// do not trust each other need network namespaces of their own.
#ifndef RXE_USER_BROKER_SERVER_H_
#define RXE_USER_BROKER_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/broker/group.h"
#include "rxe_user/broker/ledger.h"
#include "rxe_user/broker/message.h"
#include "rxe_user/broker/token_bucket.h"
#include "rxe_user/broker/udp.h"
#include "rxe_user/broker/unique_fd.h"

namespace rxe_user::broker {

class Server {
 public:
  struct Options {
    // How long to stay after the last client, in ms; negative: for ever.
    int linger_ms = 2000;
  };

  // Binds the name. kAlreadyExists when another broker has it.
  static absl::StatusOr<std::unique_ptr<Server>> Create(Options options);
  ~Server();

  // Serves until the last client has been gone for the linger time.
  void Run();

 private:
  // A request for a socket that waits for a recovery to end, or for sockets
  // that are just being closed.
  struct PendingOpen {
    Place place;
    int64_t give_up_ms;
  };
  struct Client {
    UniqueFd fd;
    uid_t uid = 0;
    bool trusted = false;  // of our user or root: its ledger is believed
    std::optional<uint8_t> slot;
    bool waiting_for_slot = false;
    bool returning = false;  // hands sockets back; not finished yet
    int64_t hello_until_ms = 0;
    std::vector<PendingOpen> opens;
    TokenBucket strays{kStraysPerSecond, kStrayBurst};
  };
  enum class Fate { kStays, kGoes };

  Server(Options options, UniqueFd listener, UniqueFd epoll);
  void Accept();
  void OnClient(int fd);
  void Drop(int fd);
  Fate OnMessage(Client& client, Message& message);
  Fate OnHello(Client& client, Message& message);
  Fate GiveSlot(Client& client);
  Fate TakeBack(Client& client, uint8_t slot, Message& message);
  Fate OnHandBack(Client& client, Message& message);
  Fate OnOpen(Client& client, Message& message);
  bool TryOpen(Client& client, const PendingOpen& open, int64_t now_ms);
  void OnStray(Client& client, const Message::StrayView& stray);
  void OnManagement(int fd);
  void OnTick();
  void Settle(int64_t now_ms);
  void EndRecoveryIfDone(int64_t now_ms);
  bool AnyGaps() const;
  void Watch(Group& group);
  void Record(const Group& group);
  Fate Welcome(Client& client, uint8_t slot);
  Group* Find(const Address& address);
  bool InUse(uint8_t slot) const;
  int TimeoutMs(int64_t now_ms) const;

  const Options options_;
  const uid_t uid_;
  UniqueFd listener_;
  UniqueFd epoll_;
  Ledger ledger_;
  std::map<int, Client> clients_;  // by descriptor
  std::map<Address, Group> groups_;
  std::map<int, Address> management_;  // slot 0's sockets

  // Recovery after a dead broker.
  std::optional<LedgerData> former_;
  struct Absent {
    int64_t until_ms;  // then it is given up
    uid_t uid;         // who may come back to it
  };
  std::map<uint8_t, Absent> absent_;  // by slot
  int64_t recovering_until_ms_ = 0;   // 0: not recovering
  int64_t settle_at_ms_ = 0;          // 0: nothing to settle
  std::deque<int64_t> settle_again_ms_;
  UniqueFd spare_;  // given up to refuse a connection when out of descriptors

  int64_t exit_at_ms_ = 0;
  uint64_t management_dropped_ = 0;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SERVER_H_
