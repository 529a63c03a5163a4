// The descriptors of the connection manager service. For each local address: a
// socket that sends MADs, and the slot's socket. In addition an eventfd (the
// bell), and a netlink socket for changes of addresses and interfaces (the
// watch).
#ifndef RXE_USER_CM_CM_SOCKETS_H_
#define RXE_USER_CM_CM_SOCKETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/cm/link_watch.h"
#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "transport/endpoint/packet_observer.h"
#include "wire/address.h"

namespace rxe_user {

// Thread: any. In a child of fork() all descriptors are closed, and calls do
// nothing.
class CmSockets final : private ForkGuard {
 public:
  // `observer` sees the MADs that are sent; null: none. It must outlive this
  // object.
  explicit CmSockets(transport::PacketObserver* observer = nullptr);
  ~CmSockets();

  // An eventfd that wakes the control thread.
  absl::Status OpenBell();
  int bell() const { return bell_.get(); }
  void Ring();
  void Silence();

  // Readable when an address or interface of this host has appeared or
  // disappeared. -1 where the system refuses it.
  void OpenWatch();
  int watch() const {
    const std::lock_guard lock(mutex_);
    return watch_.get();
  }
  // Reads all changes. After an overflow it compares the current state with the
  // known one: it may return fewer changes, but the final state is right. If it
  // throws std::bad_alloc, the next call returns all of them. Called by one
  // thread at a time.
  std::vector<LinkWatch::Change> ReadWatch();
  // The state could not be read: call ReadWatch again.
  bool is_behind() const { return missed_; }

  // Takes `received`, the slot's socket of `local`, and opens a socket for
  // sending. If two interfaces have the same link-local address, the first is
  // used to send. Returns a number that identifies the address and is never
  // reused.
  absl::StatusOr<uint64_t> Add(const LocalAddress& local, UniqueFd received);
  // Closes the address's sockets; no thread may be waiting on them.
  void Remove(const LocalAddress& local);
  size_t size() const;
  // All open addresses, the oldest first.
  struct Opened {
    LocalAddress local;
    uint64_t number = 0;
  };
  std::vector<Opened> All() const;
  // A link-local address without an interface matches any interface.
  bool Has(const LocalAddress& local) const;
  // The entry of the address, the first if there are two. Needs no memory.
  std::optional<Opened> At(const wire::IpAddress& address) const;
  // The slot's socket; -1 if the entry was removed.
  int Received(const Opened& opened) const;

  // Sends to queue pair 1 of `mad.remote`. False if sending failed; the peer,
  // or a timeout, causes a retransmission.
  bool Send(const transport::cm::OutgoingMad& mad);

  // The sending socket; -1 if the entry was removed. It is readable when the
  // system reports an error of a MAD that was sent.
  int Sender(const Opened& opened) const;
  // Reads the MADs that were rejected by ICMP (port unreachable), provided that
  // the ICMP message contained all of the MAD.
  using OnUndelivered = std::function<void(const transport::cm::OutgoingMad&)>;
  void ReadUndelivered(const Opened& opened,
                       const OnUndelivered& on_undelivered) const;

  // Reads several datagrams from `fd`, the slot's socket of `local`.
  using OnDatagram = std::function<void(const transport::cm::MadFlow&,
                                        std::span<const uint8_t>)>;
  static void Read(const LocalAddress& local, int fd,
                   const OnDatagram& on_datagram);

 private:
  struct Address {
    Opened opened;
    UniqueFd received;
    UniqueFd sender;
    uint16_t port = 0;
  };

  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override;

  // mutex_ held. The entry that sends from `address`; null if there is none.
  const Address* FindSender(const wire::IpAddress& address) const;
  // Null if it was removed.
  const Address* Find(const Opened& opened) const;

  transport::PacketObserver* const observer_;
  mutable std::mutex mutex_;
  UniqueFd bell_;        // set once
  UniqueFd watch_;       // under mutex_, set once
  LinkWatch links_;      // used by ReadWatch's thread
  bool missed_ = false;  // the same; links_ is not up to date
  std::vector<LinkWatch::Change> changes_;     // the same; not returned yet
  std::vector<uint8_t> watch_bytes_;           // the same; receive buffer
  std::map<LocalAddress, Address> addresses_;  // under mutex_
  uint64_t last_number_ = 0;                   // under mutex_
  uint32_t psn_;                               // under mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_SOCKETS_H_
