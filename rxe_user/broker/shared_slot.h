// A slot that a broker has granted.
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
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/token_bucket.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

class SharedSlot final : public Slot, private ForkGuard {
 public:
  // Fails where there are no descriptors or no memory left.
  static absl::StatusOr<std::unique_ptr<Slot>> Make(Session session);
  ~SharedSlot() override;

  uint8_t number() const override { return number_; }
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
  struct Held {
    LocalAddress local;
    uint16_t index;
    UniqueFd socket;
    UniqueFd anchor;
  };

  SharedSlot(uint8_t number, UniqueFd readable);
  // These hold requests_.
  absl::Status Recover(int64_t patience_ms);
  bool RestoreAll(const Session& session, int64_t deadline_ms);
  // In answer to ListConnected, or to a new broker.
  bool SendConnections(int socket, bool is_answer, int64_t deadline_ms);
  // The session is the slot's if this succeeds.
  absl::Status Use(Session&& session);
  // With descriptors_ held: nothing waits for the connection any more, which is
  // the caller's to close.
  UniqueFd TakeConnection();
  void RetryAfter(std::chrono::milliseconds pause);
  // Asks the broker for a socket.
  absl::Status Request(const LocalAddress& local);
  // Sends a request, to the next broker if this one dies, until `answered` says
  // that `message` is the answer; strays before it are kept. Waits for
  // `patience_ms` until there is a broker, and as long again for its answer.
  template <typename T>
  absl::Status Ask(const T& request, Message& message, int64_t patience_ms,
                   const std::function<bool()>& answered);
  // The reply to a Reserve or Unreserve.
  template <typename T>
  absl::StatusOr<ReserveReply> AskForService(T& request, int64_t patience_ms);
  void KeepEarly(Message& message);
  bool TakeEarly(Message& message);
  // Has OnReadable called for what was kept.
  void AnnounceEarly();
  const Held* Find(const LocalAddress& local) const;

  // The child closes its copies: the broker learns from the end of a connection
  // that its client has gone, and the kernel from the last descriptor that a
  // port is free.
  void BeforeFork() override { descriptors_.lock(); }
  void AfterForkInParent() override { descriptors_.unlock(); }
  void AfterForkInChild() override;
  void CloseAll();

  const uint8_t number_;
  std::atomic<bool> dead_ = false;  // in a forked child
  // An epoll set that has the connection in it, while there is one: others may
  // wait for it while the connection changes.
  UniqueFd readable_;
  // When the next broker is to be looked for, while there is none.
  std::atomic<Clock::time_point> retry_at_{Clock::time_point::max()};
  // One request at a time; whoever holds it may wait for the broker.
  std::mutex requests_;
  TokenBucket strays_;  // under requests_
  // What came while an answer was awaited, for the next OnReadable.
  std::deque<Message> early_;      // under requests_
  uint32_t sequence_ = 0;          // under requests_, of the last Reserve
  std::function<void()> changed_;  // under requests_
  std::function<std::vector<OpenConnection>()>
      connections_;  // under requests_; may be null
  // Under requests_, while there is no broker:
  int64_t lost_since_ms_ = 0;
  bool complained_ = false;
  uid_t broker_uid_ = 0;  // the last one's
  pid_t broker_pid_ = 0;  // the same
  // Held by whoever changes what follows, and during fork(). Never held while
  // waiting for anything.
  std::mutex descriptors_;
  // Changes of these need requests_ and descriptors_.
  UniqueFd connection_;
  UniqueFd ledger_;
  UniqueFd starting_;  // the next broker that comes up (Connect)
  std::vector<Held> held_;
  std::map<uint32_t, Service> services_;  // under requests_, by token
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SHARED_SLOT_H_
