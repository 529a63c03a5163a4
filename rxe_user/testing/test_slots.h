// The port broker's work inside one process: reuseport groups on port 4791,
// steered by slot, and strays forwarded between slots.
#ifndef RXE_USER_TESTING_TEST_SLOTS_H_
#define RXE_USER_TESTING_TEST_SLOTS_H_

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/broker/slot.h"

namespace rxe_user {

class TestSlots {
 public:
  static constexpr int kSlots = 9;  // numbers 1 to 9

  TestSlots();
  ~TestSlots();
  // Returns a free slot. It must not outlive this object.
  absl::StatusOr<std::unique_ptr<Slot>> Acquire();

  // The number of datagrams passed to Forward by all slots.
  int forwarded() const { return forwarded_; }

 private:
  class OneSlot;
  struct Mailbox {
    int event_fd = -1;
    std::deque<std::pair<Stray, std::vector<uint8_t>>> strays;
  };

  absl::StatusOr<int> Open(int number, const LocalAddress& local);

  // A child of fork destroys slots, whatever other threads were doing.
  ForkSafeMutex mutex_;
  std::array<bool, kSlots + 1> taken_{};
  std::array<Mailbox, kSlots + 1> mailboxes_;
  std::map<LocalAddress, std::vector<int>> groups_;
  std::atomic<int> forwarded_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_TEST_SLOTS_H_
