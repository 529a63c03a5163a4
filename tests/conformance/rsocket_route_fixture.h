// An rsocket server whose route can be removed.
#ifndef TESTS_CONFORMANCE_RSOCKET_ROUTE_FIXTURE_H_
#define TESTS_CONFORMANCE_RSOCKET_ROUTE_FIXTURE_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "rxe_user/testing/by_udp.h"
#include "rxe_user/testing/net_namespace.h"
#include "tests/conformance/rsocket_fixture.h"

namespace conformance {

// A server with an address whose route can be removed.
inline constexpr char kAddress[] = "192.0.2.77";

class RouteTest : public RsocketTest {
 protected:
  // Packets through shared memory use no route. The peer process inherits the
  // setting.
  const rxe_user::ByUdp by_udp_;
  void TearDown() override {
    rxe_user::SetRouteTo(kAddress, rxe_user::Route::kLocal);
    RsocketTest::TearDown();
    rxe_user::SetLoopbackAddress(kAddress, false);
  }
  // Returns false if that is not allowed.
  bool ListenThere() {
    if (!rxe_user::SetLoopbackAddress(kAddress, true)) return false;
    listener_ = rsocket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = Address(0);
    // The device gets the address a moment later.
    while (rbind(listener_, reinterpret_cast<const sockaddr*>(&to),
                 sizeof(to)) != 0) {
      EXPECT_TRUE(errno == ENODEV || errno == EADDRNOTAVAIL)
          << std::strerror(errno);
      if (HasFailure()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(rlisten(listener_, 10), 0);
    port_ = PortOf(listener_);
    return true;
  }
  // Connects from the usual address of loopback.
  void ConnectThere() {
    if (client_ < 0) MakeClient();
    const LoopbackAddress from(AF_INET);
    ASSERT_EQ(rbind(client_, from.get(), from.length), 0);
    const sockaddr_in to = Address(port_);
    std::thread connects([&] {
      EXPECT_EQ(
          rconnect(client_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
          0)
          << std::strerror(errno);
    });
    server_ = raccept(listener_, nullptr, nullptr);
    connects.join();
    ASSERT_GE(server_, 0);
  }
  static sockaddr_in Address(uint16_t port) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, kAddress, &to.sin_addr);
    return to;
  }
};

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_RSOCKET_ROUTE_FIXTURE_H_
