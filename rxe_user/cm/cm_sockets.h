// The descriptors of the connection manager service: for each local address a
// socket that sends MADs and the one of the process's slot; a bell; a watch on
// the addresses of this host.
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
#include "wire/address.h"

namespace rxe_user {

// Thread: any. In a child of fork() all descriptors are closed, and nothing
// else happens any more.
class CmSockets final : private ForkGuard {
 public:
  CmSockets();
  ~CmSockets();

  // The bell, which wakes the control thread.
  absl::Status OpenBell();
  int bell() const { return bell_.get(); }
  void Ring();
  void Silence();

  // Readable when an address or interface of this host came or went. -1 where
  // the system refuses to tell.
  void OpenWatch();
  int watch() const {
    const std::lock_guard lock(mutex_);
    return watch_.get();
  }
  // Reads all there is. What an overflow has swallowed is found out: fewer
  // changes, perhaps, but how it ends. Without memory (std::bad_alloc) all of
  // it comes with the next call. Called by one thread at a time.
  std::vector<LinkWatch::News> ReadWatch();
  // The system could not be asked: ReadWatch is to be called again.
  bool is_behind() const { return missed_; }

  // Takes `received`, the slot's socket of `local`, and opens one that sends.
  // Of a link-local address that two interfaces have at a time, the first is
  // used to send. Returns a number by which it is known: none has had it
  // before.
  absl::StatusOr<uint64_t> Add(const LocalAddress& local, UniqueFd received);
  // Closes them: nobody waits for them any more.
  void Remove(const LocalAddress& local);
  size_t size() const;
  // All of them, the oldest first.
  struct Opened {
    LocalAddress local;
    uint64_t number = 0;
  };
  std::vector<Opened> All() const;
  // A link-local address without an interface: that of any.
  bool Has(const LocalAddress& local) const;
  // The one that has the address, the first if there are two; needs no memory.
  std::optional<Opened> At(const wire::IpAddress& address) const;
  // The slot's socket; -1 if that was removed.
  int Received(const Opened& opened) const;

  // Sends to queue pair 1 of `mad.remote`. False if it could not be sent; the
  // peer, or a time-out, asks again.
  bool Send(const transport::cm::OutgoingMad& mad);

  // The socket that sends; -1 if it was removed. It is readable when the system
  // has something to say of what was sent.
  int Sender(const Opened& opened) const;
  // Reads what was sent and nobody took (ICMP: there is no such port), as far
  // as the whole of it came back.
  using OnUndelivered = std::function<void(const transport::cm::OutgoingMad&)>;
  void ReadUndelivered(const Opened& opened,
                       const OnUndelivered& on_undelivered) const;

  // Reads up to some datagrams that came to `fd`, the slot's socket of `local`.
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

  // With mutex_ held. The one that sends from `address`; null if there is none.
  const Address* FindSender(const wire::IpAddress& address) const;
  // Null if it was removed.
  const Address* Find(const Opened& opened) const;

  mutable std::mutex mutex_;
  UniqueFd bell_;                              // set once
  UniqueFd watch_;                             // under mutex_, set once
  LinkWatch links_;                            // of who reads the watch
  bool missed_ = false;                        // the same: links_ is behind
  std::vector<LinkWatch::News> news_;          // the same, that nobody has yet
  std::vector<uint8_t> watch_bytes_;           // the same, for what comes
  std::map<LocalAddress, Address> addresses_;  // under mutex_
  uint64_t last_number_ = 0;                   // under mutex_
  uint32_t psn_;                               // under mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_SOCKETS_H_
