// Network interfaces of this network namespace, and what changes about them.
#ifndef RXE_USER_DEVICES_NETDEV_H_
#define RXE_USER_DEVICES_NETDEV_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/devices/device.h"

namespace rxe_user {

struct Interface {
  std::string name;
  uint32_t index = 0;
  uint32_t mtu = 0;      // bytes
  bool up = false;       // administratively (IFF_UP)
  bool running = false;  // and has carrier (IFF_RUNNING)
  bool loopback = false;
  std::array<uint8_t, 6> mac{};     // all zero when it has none
  uint64_t speed_mbps = 0;          // 0 = not known
  std::string driver;               // as ethtool names it; empty when unknown
  std::vector<GidEntry> addresses;  // IPv4, IPv6 global, IPv6 link-local
};

// All of them, by index, up or not.
absl::StatusOr<std::vector<Interface>> ReadInterfaces();

// Watches one interface through rtnetlink. Thread: one at a time.
class LinkMonitor {
 public:
  static absl::StatusOr<std::unique_ptr<LinkMonitor>> Open(uint32_t ifindex);
  ~LinkMonitor();
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

  // Readable when Read() is to be called.
  int fd() const { return fd_; }
  // The changes since the last call, in order. Never blocks.
  std::vector<LinkChange> Read();

 private:
  LinkMonitor(int fd, uint32_t ifindex, bool up)
      : fd_(fd), ifindex_(ifindex), up_(up) {}
  void SetUp(bool up, std::vector<LinkChange>* changes);

  const int fd_;
  const uint32_t ifindex_;
  bool up_;
};

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_NETDEV_H_
