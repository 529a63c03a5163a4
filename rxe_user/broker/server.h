// The port broker: owns the sockets of UDP port 4791 of a network namespace and
// lends them to processes by slot (docs/design/broker.md). One thread.
// Boost.Asio waits and keeps the deadlines; the broker reads and sends messages
// itself, since Asio supports neither SOCK_SEQPACKET nor descriptors. It never
// blocks, except some milliseconds for probing after a recovery.
//
// A broker serves its own user, or all users if it runs as root. Its own user
// and root are trusted. SECURITY.md says how others are kept apart: a socket is
// locked and never lent to a second user, slot 0's socket is not lent, and
// slots, connections and sockets have quotas.
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
    // How long to stay after the last client has gone; negative: forever.
    std::chrono::milliseconds linger{2000};
    // Also listen where processes in user namespaces look for a broker
    // (container_socket.h), if the folder exists; a broker that stays forever
    // creates it. Prints a line on stderr if that fails.
    bool containers = false;
  };

  // Binds the name. kAlreadyExists: another broker has it. Other errors say why
  // the port cannot be shared here.
  static absl::StatusOr<std::unique_ptr<Server>> Create(Options options);
  ~Server();

  // Serves until the last client has been gone for the linger time.
  void Run();

 private:
  using ClientPtr = std::shared_ptr<Client>;
  // Whether to keep a client's connection.
  enum class Next { kKeep, kClose };

  Server(Options options, UniqueFd listener);

  // --- Life (server.cc).
  void ListenToContainers();
  void AwaitClients(boost::asio::posix::stream_descriptor& listener);
  // False if there are no resources to accept the next client.
  bool Accept(int listener);
  void AwaitResources(boost::asio::posix::stream_descriptor& listener);
  void Refuse(int fd, Refusal refusal, absl::string_view text);
  void LeaveAfter(std::chrono::milliseconds linger);
  void AwaitMessages(const ClientPtr& client);
  // Reads messages, now or at the next turn of the client's user (user_time.h).
  void Serve(const ClientPtr& client);
  Next ReadMessages(const ClientPtr& client);
  bool MayHandBack(const Client& client) const;
  bool RefuseUnexpectedDescriptors(const Client& client, Message& message);
  Next OnMessage(const ClientPtr& client, Message& message);
  Next OnHello(Client& client, Message& message);
  Next GrantFreeSlot(Client& client);
  Next Grant(Client& client, uint16_t slot);
  Next OnExtend(Client& client, Message& message);
  // Records that the client has the slot, which uses the sockets of the
  // client's first slot.
  void Hold(Client& client, uint16_t slot);
  void GiveUp(uint16_t slot);
  // Gives it up with everything that its process had.
  void Free(uint16_t slot);
  size_t FreeSlots() const;
  // Returns the free slot after the last one granted, within a range a little
  // larger than the number of slots in use: slots are not reused soon, and the
  // steering program stays small. There must be a free slot.
  uint16_t NextFreeSlot();
  // OK if the client may have a further slot; otherwise the reason why not.
  absl::Status MayHaveSlot(const Client& client) const;
  void Drop(const ClientPtr& client);
  bool InUse(uint16_t slot) const;

  // --- Sockets and datagrams (server_sockets.cc).
  Next OnOpen(const ClientPtr& client, Message& message);
  Next OnClose(const Client& client, Message& message);
  void RetryOpen(const ClientPtr& client);
  bool TryOpen(Client& client);
  void OnStray(Client& client, const Message::StrayView& stray);
  void Record(const Group& group);
  Group* Find(const LocalAddress& local);
  bool MayOpenOneMore(const Client& client) const;
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
  // Null if the slot has no process.
  Client* HolderOf(uint16_t slot) const { return holders_[slot]; }
  void HandOn(const Management::Datagram& datagram,
              const Management::Verdict& verdict);
  void SendMads(const ClientPtr& client);
  // Records the RTUs that the process of `slot`, which has ended, left in its
  // socket.
  void NoteUnread(uint16_t slot, const Group& group);
  void DisconnectAll(uint16_t slot);
  void AskConnected(const ClientPtr& client);
  void Answer(const LocalAddress& local, const wire::IpAddress& peer,
              const transport::cm::Mad& mad);
  bool HoldEarly(const Management::Datagram& datagram,
                 const Management::Verdict& verdict);
  // Call this when `service` was set: if it listens, it gets early requests.
  void OfferEarly(const Service& service);
  void AwaitEarly();

  // For `rxe-user stat` (server_report.cc).
  void OpenReport();
  void AwaitReport();
  void AnswerReports();

  // --- Recovery after a dead broker (server_recovery.cc).
  void StartRecovery();
  Next Reclaim(Client& client, uint16_t slot, Message& message);
  // Whether the client held the slot under the dead broker, by a ledger's entry
  // or by our records, and may have it back.
  bool MayTakeBack(const Client& client, uint16_t slot,
                   const std::optional<LedgerEntry>& entry);
  // Reads the ledger if it is newer than former_.
  void NoteLedger(int fd, int64_t made_at_ms, bool trusted);
  void MergeLedger(const LedgerData& former);
  Next OnRestore(Client& client, Message& message);
  Next OnConnected(const ClientPtr& client, Message& message);
  // The connection with the broker's local address. Absent if it cannot be the
  // client's.
  std::optional<OpenConnection> Validated(const Client& client,
                                          OpenConnection connection) const;
  void AddAbsent(uint16_t slot, uid_t uid, bool holds);
  void AwaitAbsent(uint16_t slot);
  void OnAbsentTooLong(uint16_t slot);
  void EndRecoveryIfDone();
  void SettleAt(Clock::time_point when);
  void AwaitSettling();
  void OnSettleTime();
  void SettleGroups();
  bool AnyGaps() const;
  // Continues the searches of all groups that are locating(), in turn and in
  // steps. Uses at most a third of the time.
  void AwaitLocating();
  void LocateNext();
  void OnLocated(const LocalAddress& local);

  const Options options_;
  const uid_t uid_;
  // First member, so that everything that waits on it is destroyed before it.
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor listener_;
  // open only with Options::containers
  boost::asio::posix::stream_descriptor container_listener_;
  boost::asio::steady_timer leave_;
  UniqueFd spare_;  // reserve: closed to accept and refuse a connection when
                    // out of descriptors
  Ledger ledger_;
  std::set<ClientPtr> clients_;
  Accounts accounts_;
  UserTime user_time_;  // by account
  // Users who have passed descriptors that are neither a socket nor a memory
  // file. No more are accepted from them.
  std::set<uid_t> blocked_uids_;
  std::array<Client*, kSlots> holders_{};  // by slot
  uint16_t last_slot_;                     // the last one that was granted
  std::map<LocalAddress, Group> groups_;
  // Slot 0's sockets: copies of the groups' descriptors.
  std::map<LocalAddress, boost::asio::posix::stream_descriptor> management_;
  Management qp1_;
  OpenConnections connections_;
  EarlyRequests early_;
  // Null where the system refuses it.
  std::unique_ptr<StatServer> stat_server_;
  boost::asio::posix::stream_descriptor stat_socket_{io_};
  boost::asio::steady_timer stat_retry_{io_};
  boost::asio::steady_timer early_timer_{io_};

  // Trusted clients that are restoring.
  size_t trusted_restoring_ = 0;
  // Whether new clients wait for old ones to come back.
  bool recovering_ = false;
  boost::asio::steady_timer recovery_deadline_;
  // The latest ledger that was handed over; may be null.
  std::shared_ptr<const LedgerData> former_;
  // When a trusted program of another protocol version last sent a request.
  std::optional<Clock::time_point> other_version_at_;
  bool former_trusted_ = false;  // handed over by a trusted client
  // Processes that held a slot under the dead broker and have not come back, or
  // not with everything.
  struct Absent {
    uid_t uid;   // the user who may reclaim it
    bool holds;  // the slot may have sockets and connections here
    boost::asio::steady_timer deadline;
  };
  std::map<uint16_t, Absent> absent_;  // by slot
  std::optional<Clock::time_point> settle_at_;
  std::deque<Clock::time_point> settle_again_;
  std::chrono::milliseconds settle_gaps_;  // until positions are probed again
  boost::asio::steady_timer settle_;
  boost::asio::steady_timer locate_timer_{io_};
  bool locate_waits_ = false;  // for locate_timer_
  Clock::time_point next_step_ = Clock::time_point::min();
  LocalAddress located_last_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SERVER_H_
