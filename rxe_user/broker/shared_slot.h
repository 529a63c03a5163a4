// A slot that a broker granted.
#ifndef RXE_USER_BROKER_SHARED_SLOT_H_
#define RXE_USER_BROKER_SHARED_SLOT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/further_slots.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/token_bucket.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

class SharedSlot final : public Slot, private ForkGuard {
 public:
  // Fails without descriptors or memory.
  static absl::StatusOr<std::unique_ptr<Slot>> Make(Session session);
  ~SharedSlot() override;

  uint16_t number() const override { return number_; }
  absl::StatusOr<uint16_t> Extend() override;
  bool Owns(uint16_t number) const override {
    return number == number_ || further_.Has(number);
  }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override;
  void CloseAddress(const LocalAddress& local) override;
  int fd() const override { return dead_ ? -1 : readable_.get(); }
  Clock::time_point retry_at() const override { return retry_at_; }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override;
  void OnChange(std::function<void()> changed) override;
  void TellConnections(
      std::function<std::vector<OpenConnection>()> connections) override;
  void TellConnected(const OpenConnection& connection) override;
  absl::Status Reserve(uint32_t token, const Service& service) override;
  void Unreserve(uint32_t token) override;
  void Forward(const Stray& stray) override;

 private:
  struct HeldSocket {
    LocalAddress local;
    uint16_t index;
    UniqueFd socket;
    UniqueFd anchor;
  };

  SharedSlot(uint16_t number, UniqueFd readable);
  // requests_ held for the following.
  absl::Status Recover(int64_t patience_ms);
  // Whether to wait, without a broker, for one that root starts.
  bool LetsRoot() const;
  // Whether the connection was made so recently that a pause must precede the
  // next one.
  bool IsFresh() const;
  bool RestoreAll(const Session& session, int64_t deadline_ms);
  // Sends all connections, as the answer to ListConnected or to a new broker.
  bool SendConnections(int socket, bool is_answer, int64_t deadline_ms);
  // On success, the slot uses the session.
  absl::Status Use(Session&& session);
  // descriptors_ held. Stops waiting for the connection and returns it; the
  // caller closes it.
  UniqueFd TakeConnection();
  void RetryAfter(std::chrono::milliseconds pause);
  // Asks the broker for a socket.
  absl::Status Request(const LocalAddress& local);
  // Sends a request, and sends it again to the next broker if this one dies,
  // until `answered` accepts `message` as the reply. Keeps strays that arrive
  // before that. Waits up to `patience_ms` for a broker, and as long again for
  // the reply.
  template <typename T>
  absl::Status Ask(const T& request, Message& message, int64_t patience_ms,
                   const std::function<bool()>& answered);
  // Returns the reply to a Reserve or Unreserve.
  template <typename T>
  absl::StatusOr<ReserveReply> AskForService(T& request, int64_t patience_ms);
  void KeepEarly(Message& message);
  bool TakeEarly(Message& message);
  // Makes the serving thread call OnReadable for the kept messages.
  void AnnounceEarly();
  const HeldSocket* Find(const LocalAddress& local) const;

  // A forked child closes its copies: the end of the connection tells the
  // broker that its client is gone, and the kernel frees a port with its last
  // descriptor.
  void BeforeFork() override { descriptors_.lock(); }
  void AfterForkInParent() override { descriptors_.unlock(); }
  void AfterForkInChild() override;
  void CloseAll();

  const uint16_t number_;
  FurtherSlots further_;            // added to under requests_
  std::atomic<bool> dead_ = false;  // in a forked child
  // An epoll set that contains the connection. Threads can wait on it while the
  // connection is replaced.
  UniqueFd readable_;
  // When OnReadable must be called: to look for the next broker, or at once for
  // messages in early_. max(): neither.
  std::atomic<Clock::time_point> retry_at_{Clock::time_point::max()};
  // Serializes requests. Its holder may wait for the broker.
  std::mutex requests_;
  TokenBucket strays_;  // under requests_
  // Messages that arrived before a reply, for the next OnReadable.
  std::deque<Message> early_;      // under requests_
  uint32_t sequence_ = 0;          // under requests_, of the last Reserve
  std::function<void()> changed_;  // under requests_
  std::function<std::vector<OpenConnection>()>
      connections_;  // under requests_; may be null
  // Under requests_, while there is no broker:
  int64_t lost_since_ms_ = 0;
  int64_t used_since_ms_ = 0;  // the last connection, ended or not
  int64_t recover_ms_ = 0;     // patience of OnReadable
  bool complained_ = false;
  uid_t broker_uid_ = 0;  // that of the last broker
  pid_t broker_pid_ = 0;  // that of the last broker
  // Guards the following members, and is held during fork(). Its holder never
  // waits.
  std::mutex descriptors_;
  // To change these, hold requests_ and descriptors_.
  UniqueFd connection_;
  UniqueFd ledger_;
  UniqueFd starting_;  // a broker that is coming up (Connect)
  std::vector<HeldSocket> held_;
  std::map<uint32_t, Service> services_;  // under requests_, by token
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SHARED_SLOT_H_
