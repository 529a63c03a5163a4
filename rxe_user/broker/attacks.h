// Attacks on a broker that serves all users, for HostileTest::Attack. Each
// returns what went wrong (empty: nothing). Children of the caller continue the
// attack until the caller ends.
#ifndef RXE_USER_BROKER_ATTACKS_H_
#define RXE_USER_BROKER_ATTACKS_H_

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rxe_user/broker/raw_client.h"

#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

namespace rxe_user::broker {

// Runs `again` in a loop, in a child that ends with the caller.
inline std::string KeepDoing(const std::function<void()>& again) {
  const pid_t child = fork();
  if (child < 0) return "fork";
  if (child != 0) return "";
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) again();
}

// 22 processes share one service ID, reserve it 1,024 times each, and keep
// rewriting their reservations.
inline std::string RewriteServices(const LocalAddress& local) {
  static std::vector<RawClient> clients(22);
  static Reserve reserve;
  reserve.service.local = local;
  reserve.service.service_id = 46;
  reserve.service.reuse = 1;
  const std::span<const uint8_t> bytes(
      reinterpret_cast<const uint8_t*>(&reserve), sizeof(reserve));
  for (RawClient& client : clients) {
    if (client.Greet() == 0) return "no slot";
    for (reserve.token = 0; reserve.token < 1024; ++reserve.token) {
      if (!client.SendRaw(bytes, {})) return "not sent";
    }
    if (!client.UnreserveService(60000)) return "not reserved";
  }
  return KeepDoing([bytes] {
    for (RawClient& client : clients) {
      for (reserve.token = 0; reserve.token < 64; ++reserve.token) {
        client.SendRaw(bytes, {});
      }
    }
  });
}

// Keeps copies of 30 sockets of `local`, removes the steering program again and
// again, and makes the broker search for positions that cannot be found.
inline std::string DetachSteering(const LocalAddress& local) {
  static std::vector<UniqueFd> copies;
  static LocalAddress address;
  address = local;
  {
    std::vector<RawClient> clients(30);
    for (RawClient& client : clients) {
      if (client.Greet() == 0) return "no slot";
      copies.push_back(client.OpenAddress(address));
      if (!copies.back().valid()) return "no socket";
    }
  }
  const std::string wrong = KeepDoing([] {
    const int unused = 0;
    setsockopt(copies[0].get(), SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &unused,
               sizeof(unused));
    sched_yield();
  });
  if (!wrong.empty()) return wrong;
  return KeepDoing([] {
    RawClient client;
    if (client.Greet() != 0) client.OpenAddress(address);
  });
}

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_ATTACKS_H_
