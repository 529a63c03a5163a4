// Reports when a network interface goes up or down, disappears, or gets another
// MTU or other addresses.
#ifndef RXE_USER_DEVICES_LINK_MONITOR_H_
#define RXE_USER_DEVICES_LINK_MONITOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/devices/device.h"

struct nl_object;
struct nl_sock;
struct rtnl_link;

namespace rxe_user {

// Watches one interface through rtnetlink. Thread: one at a time. In a child of
// fork() its descriptor is closed; only the destructor may be called.
class LinkMonitor final : private ForkGuard {
 public:
  static absl::StatusOr<std::unique_ptr<LinkMonitor>> Open(uint32_t ifindex);
  ~LinkMonitor();

  // Readable when Read() should be called.
  int fd() const;
  // Returns the changes since the last call, in order. Never blocks, except for
  // the kernel's reply after messages were lost.
  std::vector<LinkChange> Read();

 private:
  // The last known state, with which messages are compared.
  struct State {
    bool up = false;   // set up, with carrier
    uint32_t mtu = 0;  // bytes
  };

  LinkMonitor(nl_sock* socket, uint32_t ifindex, State state);
  void BeforeFork() override {}
  void AfterForkInParent() override {}
  void AfterForkInChild() override;
  void OnObject(nl_object* object);
  static State StateOf(rtnl_link* link);
  static std::optional<State> ReadState(uint32_t ifindex);
  void Resync();
  void SetState(State state);

  nl_sock* socket_;  // null in a child of fork
  const uint32_t ifindex_;
  State state_;
  std::vector<LinkChange> changes_;  // since the last Read
};

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_LINK_MONITOR_H_
