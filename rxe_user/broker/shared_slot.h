// A slot that a broker has given.
#ifndef RXE_USER_BROKER_SHARED_SLOT_H_
#define RXE_USER_BROKER_SHARED_SLOT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/fork_guard.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/token_bucket.h"
#include "rxe_user/broker/udp.h"
#include "rxe_user/broker/unique_fd.h"

namespace rxe_user::broker {

class SharedSlot final : public Slot, private ForkGuard {
 public:
  static std::unique_ptr<Slot> Make(Session session);
  ~SharedSlot() override;

  uint8_t number() const override { return number_; }
  absl::StatusOr<int> OpenAddress(const wire::IpAddress& address,
                                  uint32_t scope_id) override;
  int fd() const override { return fd_; }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override;
  void Forward(const Stray& stray) override;

 private:
  struct Held {
    Address address;
    uint16_t index;
    UniqueFd socket;
    UniqueFd keeper;
  };

  explicit SharedSlot(Session session);
  // These hold requests_.
  bool Recover(int64_t budget_ms);
  bool HandBackAll(const Session& session);
  void Use(Session session);
  void RetryAfter(int64_t ms);
  absl::Status Request(const Address& address);
  const Held* Find(const Address& address) const;
  void DieInChild() override;
  void CloseAll();

  const uint8_t number_;
  std::atomic<int> fd_;             // what fd() says
  std::atomic<bool> dead_ = false;  // in a forked child
  // One request at a time; whoever holds it may wait for the broker.
  std::mutex requests_;
  TokenBucket strays_;  // under requests_
  // Under requests_, while there is no broker:
  int64_t lost_since_ms_ = 0;
  bool complained_ = false;
  uid_t broker_uid_ = 0;  // the last one's
  // Changes of these need requests_ and descriptors_.
  UniqueFd connection_;
  UniqueFd retry_;  // a timer while there is no broker
  UniqueFd ledger_;
  std::vector<Held> held_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SHARED_SLOT_H_
