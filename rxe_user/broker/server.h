// The port broker: owns the sockets of UDP port 4791 of a network namespace and
// lends them to processes by slot (docs/design/broker.md). One thread, driven
// by Boost.Asio, which waits and keeps the deadlines; messages are read and
// sent here, since Asio knows neither SOCK_SEQPACKET nor descriptors. It never
// blocks but for the milliseconds of probing after a recovery.
//
// A broker serves its own user; one that runs as root serves all. Its own user
// and root are trusted. SECURITY.md says how others are kept apart: a
// socket is never lent to a second user and is locked, slot 0's is not lent,
// slots, connections and sockets are rationed.
#ifndef RXE_USER_BROKER_SERVER_H_
#define RXE_USER_BROKER_SERVER_H_

#include <sys/types.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/accounts.h"
#include "rxe_user/broker/client.h"
#include "rxe_user/broker/early_requests.h"
#include "rxe_user/broker/group.h"
#include "rxe_user/broker/ledger.h"
#include "rxe_user/broker/management.h"
#include "rxe_user/broker/message.h"
#include "rxe_user/broker/open_connections.h"
#include "rxe_user/broker/user_time.h"
#include "rxe_user/observe/stat_socket.h"

namespace rxe_user::broker {

class Server {
 public:
  struct Options {
    // How long to stay after the last client; negative: for ever.
    std::chrono::milliseconds linger{2000};
    // Listen where processes in user namespaces find who listens, too
    // (container_socket.h), if the folder is there; who stays for ever makes
    // it. A line on stderr where that is not possible.
    bool containers = false;
  };

  // Binds the name. kAlreadyExists when another broker has it. Other errors say
  // why the port cannot be shared here.
  static absl::StatusOr<std::unique_ptr<Server>> Create(Options options);
  ~Server();

  // Serves until the last client has been gone for the linger time.
  void Run();

 private:
  using ClientPtr = std::shared_ptr<Client>;
  // What becomes of a client's connection.
  enum class Next { kKeep, kClose };

  Server(Options options, UniqueFd listener);

  // --- Life (server.cc).
  void ListenToContainers();
  void AwaitClients(boost::asio::posix::stream_descriptor& listener);
  void Accept(int listener);
  void Refuse(int fd, Refusal refusal, std::string_view text);
  void LeaveAfter(std::chrono::milliseconds linger);
  void AwaitMessages(const ClientPtr& client);
  // Its messages, now or when it is its user's turn.
  void Serve(const ClientPtr& client);
  Next ReadMessages(const ClientPtr& client);
  bool MayHandBack(const Client& client) const;
  bool RefuseStrange(const Client& client, Message& message);
  Next OnMessage(const ClientPtr& client, Message& message);
  Next OnHello(Client& client, Message& message);
  Next GrantFreeSlot(Client& client);
  Next Grant(Client& client, uint8_t slot);
  void Drop(const ClientPtr& client);
  bool InUse(uint8_t slot) const;
  bool HasItsShare(uid_t account, size_t free_slots) const;

  // --- Sockets and datagrams (server_sockets.cc).
  Next OnOpen(const ClientPtr& client, Message& message);
  Next OnClose(const Client& client, Message& message);
  void RetryOpen(const ClientPtr& client);
  bool TryOpen(Client& client);
  void OnStray(Client& client, const Message::StrayView& stray);
  void Record(const Group& group);
  Group* Find(const LocalAddress& local);
  bool MayHaveOneMore(const Client& client) const;
  void FreeUnusedGroups();

  // --- Queue pair 1 (server_management.cc).
  Next OnReserve(Client& client, Message& message);
  Next OnUnreserve(Client& client, Message& message);
  void WatchManagement(const Group& group);
  void AwaitManagement(const LocalAddress& local,
                       boost::asio::posix::stream_descriptor& socket);
  void ReadManagement(const LocalAddress& local, int fd);
  void OnStrayMad(const Client& client, const Message::StrayView& stray);
  Management::Verdict Route(const Management::Datagram& datagram);
  // Null if the slot is nobody's.
  Client* HolderOf(uint8_t slot) const { return holders_[slot]; }
  void HandOn(const Management::Datagram& datagram,
              const Management::Verdict& verdict);
  void SendMads(const ClientPtr& client);
  // The RTUs that the process of `slot`, which has ended, has left in its
  // socket.
  void NoteUnread(uint8_t slot, const Group& group);
  void DisconnectAll(uint8_t slot);
  void AskConnected(const ClientPtr& client);
  void Answer(const LocalAddress& local, const wire::IpAddress& peer,
              const transport::cm::Mad& mad);
  bool HoldEarly(const Management::Datagram& datagram,
                 const Management::Verdict& verdict);
  // Somebody listens on `service`.
  void OfferEarly(const Service& service);
  void AwaitEarly();

  // For `rxe-user stat` (server_report.cc).
  void OpenReport();
  void AwaitReport();

  // --- Recovery after a dead broker (server_recovery.cc).
  void StartRecovery();
  Next Reclaim(Client& client, uint8_t slot, Message& message);
  void NoteLedger(const LedgerData& former, bool trusted);
  void BelieveLedger(const LedgerData& former);
  Next OnRestore(Client& client, Message& message);
  Next OnConnected(const ClientPtr& client, Message& message);
  // As the broker knows it; absent if it can be none of the client's.
  std::optional<OpenConnection> Believed(const Client& client,
                                         OpenConnection connection) const;
  void AwaitAbsent(uint8_t slot);
  void OnAbsentTooLong(uint8_t slot);
  void EndRecoveryIfDone();
  void SettleAt(Clock::time_point when);
  void AwaitSettling();
  void OnSettleTime();
  void SettleGroups();
  bool AnyGaps() const;
  // Looks for the positions in one group after the other, as long as there is
  // one that is locating: no longer than a step at a time, and for a third of
  // the time at most.
  void AwaitLocating();
  void LocateNext();
  void OnLocated(const LocalAddress& local);

  const Options options_;
  const uid_t uid_;
  // First: all that waits is destroyed before it.
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::posix::stream_descriptor container_listener_;  // or not open
  boost::asio::steady_timer leave_;
  UniqueFd spare_;  // given up to refuse a connection when out of descriptors
  Ledger ledger_;
  std::set<ClientPtr> clients_;
  Accounts accounts_;
  UserTime user_time_;  // by account
  // Users who have passed descriptors that are no socket and no file in memory:
  // no more are taken of them.
  std::set<uid_t> strange_;
  std::array<Client*, kSlots> holders_{};  // by slot; null: nobody
  std::map<LocalAddress, Group> groups_;
  // Slot 0's sockets, copies of the groups' descriptors.
  std::map<LocalAddress, boost::asio::posix::stream_descriptor> management_;
  Management qp1_;
  OpenConnections connections_;
  EarlyRequests early_;
  // Null where it is refused; and its descriptor.
  std::unique_ptr<StatServer> stat_server_;
  boost::asio::posix::stream_descriptor stat_socket_{io_};
  boost::asio::steady_timer early_timer_{io_};

  // Whether new clients wait for the old ones to come back.
  bool recovering_ = false;
  boost::asio::steady_timer recovery_deadline_;
  std::optional<LedgerData> former_;  // the latest that was handed over
  bool former_trusted_ = false;       // by a trusted client
  // Processes that held a slot under the dead broker and have not come back.
  struct Absent {
    uid_t uid;  // who may come back to it
    boost::asio::steady_timer deadline;
  };
  std::map<uint8_t, Absent> absent_;  // by slot
  std::optional<Clock::time_point> settle_at_;
  std::deque<Clock::time_point> settle_again_;
  std::chrono::milliseconds
      settle_gaps_;  // until positions are looked at again
  boost::asio::steady_timer settle_;
  boost::asio::steady_timer locate_timer_{io_};
  bool locate_waits_ = false;  // for that
  Clock::time_point next_step_ = Clock::time_point::min();
  LocalAddress located_last_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SERVER_H_
