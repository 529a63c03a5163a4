// A wire between two network namespaces: a tap interface in each, and this
// process carries frames from one to the other. Segmented sends stay whole
// (IFF_VNET_HDR), as between a virtual machine and its host.
//
//   tap_wire [--name NAME] NETNS NETNS
//
// Prints a line once both interfaces exist, and ends when stdin ends.
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/bench/reference.h"

#ifndef TUN_F_USO4  // <linux/if_tun.h> since 6.2
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

namespace {

using reference::Die;

// The maximum number of frames carried one way before the other way has its
// turn.
constexpr int kTurn = 64;

int OpenTap(const std::string& netns, const std::string& name) {
  const std::string path = "/run/netns/" + netns;
  const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) Die(path.c_str());
  close(space);
  const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tap < 0) Die("/dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(tap, TUNSETIFF, &request) != 0) Die("TUNSETIFF");
  constexpr unsigned kOffload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
  if (ioctl(tap, TUNSETOFFLOAD, kOffload | TUN_F_USO4 | TUN_F_USO6) != 0 &&
      ioctl(tap, TUNSETOFFLOAD, kOffload) != 0) {
    Die("TUNSETOFFLOAD");
  }
  return tap;
}

// A frame that `to` refuses is lost, as on a wire.
void Carry(int from, int to, std::vector<uint8_t>* frame) {
  for (int i = 0; i < kTurn; ++i) {
    const ssize_t bytes = read(from, frame->data(), frame->size());
    if (bytes <= 0) return;
    (void)!write(to, frame->data(), static_cast<size_t>(bytes));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "tap0";
  std::vector<std::string> spaces;
  CLI::App app("A wire between two network namespaces");
  app.add_option("--name", name, "of both interfaces");
  app.add_option("netns", spaces)->expected(2)->required();
  CLI11_PARSE(app, argc, argv);

  const std::array<int, 2> taps = {OpenTap(spaces[0], name),
                                   OpenTap(spaces[1], name)};
  std::puts("ready");
  std::fflush(stdout);
  std::vector<uint8_t> frame(128 << 10);
  for (;;) {
    std::array<pollfd, 3> ready = {pollfd{taps[0], POLLIN, 0},
                                   pollfd{taps[1], POLLIN, 0},
                                   pollfd{STDIN_FILENO, POLLIN, 0}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) Die("poll");
    if (ready[2].revents != 0) return 0;
    if (ready[0].revents != 0) Carry(taps[0], taps[1], &frame);
    if (ready[1].revents != 0) Carry(taps[1], taps[0], &frame);
  }
}
