// Which holder of the port is reported while sockets appear and disappear.
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/broker/udp.h"
#include "rxe_user/testing/descriptors.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

class PortHolderTest : public BrokerTest {
 protected:
  const LocalAddress local_ = {Ip("127.0.0.1"), 0};
  UniqueFd Bound() {
    return BindUdp(local_, wire::kRoceUdpPort, Sharing::kExclusive);
  }
  std::string Holder() {
    return ForeignHolder(*ListPortSockets(), local_.address, nullptr);
  }
};

TEST_F(PortHolderTest, AProcessIsNamed) {
  const UniqueFd socket = Bound();
  ASSERT_TRUE(socket.valid());
  EXPECT_NE(Holder().find("process " + std::to_string(getpid())),
            std::string::npos)
      << Holder();
}

// As when the broker closes the sockets of a killed client.
TEST_F(PortHolderTest, ASocketClosedSinceTheListingHasNoHolder) {
  UniqueFd socket = Bound();
  ASSERT_TRUE(socket.valid());
  const std::vector<PortSocket> listed = *ListPortSockets();
  ASSERT_EQ(listed.size(), 1u);
  socket.Reset();
  EXPECT_EQ(ForeignHolder(listed, local_.address, nullptr), "");
}

// Every process that lists its devices checks all sockets of the broker, with a
// single search.
TEST_F(PortHolderTest, ManySocketsOfTheBrokerAreOneSearch) {
  constexpr int kMany = 400;
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < kMany; ++i) {
    sockets.push_back(BindUdp(local_, wire::kRoceUdpPort, Sharing::kReusePort));
    ASSERT_TRUE(sockets.back().valid());
  }
  const std::vector<PortSocket> all = *ListPortSockets();
  ASSERT_EQ(all.size(), size_t{kMany});
  const ucred we = {getpid(), getuid(), getgid()};
  // CPU time for `listed` in nanoseconds.
  const auto cost = [&](const std::vector<PortSocket>& listed) {
    const auto now = [] {
      timespec used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
    };
    const int64_t begin = now();
    EXPECT_EQ(ForeignHolder(listed, local_.address, &we), "");
    return now() - begin;
  };
  EXPECT_LT(cost(all), 20 * cost({all.front()}));
}

// As when clients hand their sockets to the next broker.
TEST_F(PortHolderTest, InTransitBetweenProcesses) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  {
    const UniqueFd socket = Bound();
    ASSERT_TRUE(socket.valid());
    const uint8_t byte = 0;
    ASSERT_TRUE(SendWithDescriptors(from.get(), {&byte, 1}, {socket.get()}));
  }
  // The socket stays in transit: it has a holder, which cannot be identified.
  EXPECT_NE(Holder().find("a process of user "), std::string::npos) << Holder();
  to.Reset();
  EXPECT_EQ(Holder(), "");
}

// As in a sandbox.
TEST_F(PortHolderTest, AnyoneIsFoundWithoutProc) {
  if (!Root()) GTEST_SKIP() << "needs root";
  ASSERT_EQ(unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(mount("none", "/proc", "tmpfs", 0, nullptr), 0);
  EXPECT_FALSE(ListPortSockets().has_value());
  EXPECT_FALSE(AnyoneOnPort());
  for (const char* text : {"127.0.0.1", "::1"}) {
    const UniqueFd socket =
        BindUdp({Ip(text), 0}, wire::kRoceUdpPort, Sharing::kReusePort);
    ASSERT_TRUE(socket.valid());
    EXPECT_TRUE(AnyoneOnPort()) << text;
  }
  EXPECT_FALSE(AnyoneOnPort());
  ASSERT_EQ(umount2("/proc", MNT_DETACH), 0);
}

// Its queue of connections is full.
TEST_F(PortHolderTest, OfABrokerThatCannotBeAsked) {
  if (!Root()) GTEST_SKIP() << "needs root";
  const auto unix_socket = [] {
    return UniqueFd(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  };
  const UniqueFd listener = unix_socket();
  const SocketAddress name = BrokerAddress();
  ASSERT_EQ(bind(listener.get(), name.get(), name.size), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  std::vector<UniqueFd> queued;
  do {
    queued.push_back(unix_socket());
  } while (connect(queued.back().get(), name.get(), name.size) == 0);
  ASSERT_EQ(errno, EAGAIN);

  ASSERT_EQ(seteuid(kSomebody), 0);
  const UniqueFd socket = Bound();
  ucred who{};
  const absl::Status found = FindBroker(&who);
  const std::string to_its_user =
      ForeignHolder(*ListPortSockets(), local_.address, &who);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ(seteuid(kAnother), 0);
  const std::string to_another =
      ForeignHolder(*ListPortSockets(), local_.address, &who);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(socket.valid());
  EXPECT_TRUE(found.ok()) << found;
  EXPECT_EQ(to_its_user, "");
  EXPECT_NE(to_another, "");
}

}  // namespace
}  // namespace rxe_user::broker
