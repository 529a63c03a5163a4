// What happens to the interface under a connection: it goes down and up, its
// address goes and comes back, its MTU changes. Programs hear of it by
// asynchronous events; queue pairs recover if it is over before their retries
// are exceeded, and else end with the right completion.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <thread>

#include "rxe_user/testing/net_namespace.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr char kAddress[] = "10.77.7.7";
constexpr uint32_t kBytes = 100'000;

ConnectOptions Patient() {
  ConnectOptions options;
  options.timeout = 19;  // 2.1 s: eight of these are longer than any test
  options.mtu = IBV_MTU_4096;
  return options;
}
// Not for what has to succeed: a busy machine takes longer than all retries.
ConnectOptions Impatient() {
  ConnectOptions options = Patient();
  options.timeout = 10;  // 4.2 ms
  return options;
}

class LinkFaultTest : public PairTest {
 protected:
  LinkFaultTest() { make_pair_ = false; }
  // Who has no queue pair hears of no events.
  void SetUp() override {
    PairTest::SetUp();
    MakeSide(&a_);
    MakeSide(&b_);
  }
  void TearDown() override {
    PairTest::TearDown();
    // For the next one.
    rxe_user::SetLoopback(true);
    rxe_user::SetLoopbackMtu(65536);
    rxe_user::SetLoopbackAddress(kAddress, false);
  }

  // Lets both ends use kAddress from now on. False where it may not be added.
  bool UseAddress() {
    if (!rxe_user::SetLoopbackAddress(kAddress, true)) return false;
    AwaitEvent(IBV_EVENT_GID_CHANGE);
    const std::optional<uint8_t> index = IndexOfAddress();
    EXPECT_TRUE(index.has_value());
    gid_index_ = index.value_or(0);
    EXPECT_EQ(ibv_query_gid(context_, 1, gid_index_, &gid_), 0);
    return true;
  }
  std::optional<uint8_t> IndexOfAddress() {
    ibv_port_attr port;
    EXPECT_EQ(ibv_query_port(context_, 1, &port), 0);
    ibv_gid wanted = {};
    wanted.raw[10] = wanted.raw[11] = 0xff;
    EXPECT_EQ(inet_pton(AF_INET, kAddress, wanted.raw + 12), 1);
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid gid;
      EXPECT_EQ(ibv_query_gid(context_, 1, i, &gid), 0);
      if (std::memcmp(gid.raw, wanted.raw, sizeof(gid.raw)) == 0) {
        return static_cast<uint8_t>(i);
      }
    }
    return std::nullopt;
  }
  // Takes asynchronous events until one of `type` comes; all are of the port.
  void AwaitEvent(ibv_event_type type) {
    for (;;) {
      pollfd p = {context_->async_fd, POLLIN, 0};
      ASSERT_EQ(poll(&p, 1, kTimeoutMs), 1) << ibv_event_type_str(type);
      ibv_async_event event;
      ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
      ibv_ack_async_event(&event);
      ASSERT_TRUE(event.event_type == IBV_EVENT_PORT_ERR ||
                  event.event_type == IBV_EVENT_PORT_ACTIVE ||
                  event.event_type == IBV_EVENT_GID_CHANGE)
          << ibv_event_type_str(event.event_type);
      ASSERT_EQ(event.element.port_num, 1);
      if (event.event_type == type) return;
    }
  }
  ibv_port_state PortState() {
    ibv_port_attr port;
    EXPECT_EQ(ibv_query_port(context_, 1, &port), 0);
    return port.state;
  }
  void AwaitMtu(ibv_mtu wanted) {
    ibv_port_attr port = {};
    const int64_t limit = NowMs() + kTimeoutMs;
    while (port.active_mtu != wanted && NowMs() < limit) {
      ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
      std::this_thread::yield();
    }
    EXPECT_EQ(port.active_mtu, wanted);
  }
  // Posts a WRITE to the other end, of a pattern of its own.
  void PostWrite(uint64_t wr_id) {
    FillPattern(a_.memory.data(), kBytes, static_cast<uint32_t>(wr_id));
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, wr_id, 0, kBytes, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
  }
  void ExpectWritten(uint64_t wr_id) {
    ExpectSuccess(a_.cq, wr_id);
    EXPECT_TRUE(
        HasPattern(b_.memory.data(), kBytes, static_cast<uint32_t>(wr_id)));
  }
  void Write(uint64_t wr_id) {
    PostWrite(wr_id);
    ExpectWritten(wr_id);
  }
  // The first round has not brought a completion: it is sent for in vain.
  void ExpectNoneYet() { EXPECT_FALSE(Within(a_.cq, 50).has_value()); }
  void ExpectRetriesExceeded(uint64_t wr_id) {
    ExpectStatus(a_.cq, wr_id, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
  }
  void ConnectAnew(const ConnectOptions& options) {
    DestroySide(&a_);
    DestroySide(&b_);
    MakeSide(&a_);
    MakeSide(&b_);
    ASSERT_FALSE(HasFatalFailure());
    Connect(&a_, &b_, options);
  }
  // What ended is no obstacle to what comes after it.
  void WriteAnew() {
    ConnectAnew(Patient());
    Write(99);
  }
};

TEST_F(LinkFaultTest, DownAndUp) {
  Connect(&a_, &b_, Patient());
  Write(1);
  EXPECT_EQ(PortState(), IBV_PORT_ACTIVE);
  if (!rxe_user::SetLoopback(false)) GTEST_SKIP() << "not allowed to";
  AwaitEvent(IBV_EVENT_PORT_ERR);
  EXPECT_EQ(PortState(), IBV_PORT_DOWN);
  PostWrite(2);
  ExpectNoneYet();
  ASSERT_TRUE(rxe_user::SetLoopback(true));
  AwaitEvent(IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(PortState(), IBV_PORT_ACTIVE);
  ExpectWritten(2);
  Write(3);
}

TEST_F(LinkFaultTest, DownForTooLong) {
  Connect(&a_, &b_, Impatient());
  if (!rxe_user::SetLoopback(false)) GTEST_SKIP() << "not allowed to";
  PostWrite(2);
  ExpectRetriesExceeded(2);
  ASSERT_TRUE(rxe_user::SetLoopback(true));
  AwaitEvent(IBV_EVENT_PORT_ACTIVE);
  WriteAnew();
}

TEST_F(LinkFaultTest, AddressGoneAndBack) {
  if (!UseAddress()) GTEST_SKIP() << "not allowed to";
  Connect(&a_, &b_, Patient());
  Write(1);
  ASSERT_TRUE(rxe_user::SetLoopbackAddress(kAddress, false));
  AwaitEvent(IBV_EVENT_GID_CHANGE);
  EXPECT_FALSE(IndexOfAddress().has_value());
  PostWrite(2);
  ExpectNoneYet();
  ASSERT_TRUE(rxe_user::SetLoopbackAddress(kAddress, true));
  AwaitEvent(IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(IndexOfAddress(), gid_index_);
  ExpectWritten(2);
  // So do connections that begin now.
  WriteAnew();
}

TEST_F(LinkFaultTest, AddressGoneForTooLong) {
  if (!UseAddress()) GTEST_SKIP() << "not allowed to";
  Connect(&a_, &b_, Impatient());
  ASSERT_TRUE(rxe_user::SetLoopbackAddress(kAddress, false));
  AwaitEvent(IBV_EVENT_GID_CHANGE);
  PostWrite(2);
  ExpectRetriesExceeded(2);
  // Nor does a connection begin that names it.
  Side c;
  MakeSide(&c);
  EXPECT_EQ(ToRts(c.qp, c.qp->qp_num, Patient()), EINVAL);
  DestroySide(&c);
  ASSERT_TRUE(rxe_user::SetLoopbackAddress(kAddress, true));
  AwaitEvent(IBV_EVENT_GID_CHANGE);
  WriteAnew();
}

TEST_F(LinkFaultTest, MtuLessForAWhile) {
  Connect(&a_, &b_, Patient());
  Write(1);
  if (!rxe_user::SetLoopbackMtu(3000)) GTEST_SKIP() << "not allowed to";
  PostWrite(2);
  ExpectNoneYet();
  ASSERT_TRUE(rxe_user::SetLoopbackMtu(65536));
  ExpectWritten(2);
  Write(3);
}

TEST_F(LinkFaultTest, MtuLessForTooLong) {
  Connect(&a_, &b_, Impatient());
  if (!rxe_user::SetLoopbackMtu(3000)) GTEST_SKIP() << "not allowed to";
  PostWrite(2);
  ExpectRetriesExceeded(2);
  // A path MTU that fits is no matter.
  ConnectOptions fits = Patient();
  fits.mtu = IBV_MTU_2048;
  ConnectAnew(fits);
  Write(3);
  ASSERT_TRUE(rxe_user::SetLoopbackMtu(2200));
  Write(4);
}

// Who looked while it was less must not be left with that: a path MTU that the
// port no longer seems to have is refused.
TEST_F(LinkFaultTest, ThePortsMtuFollows) {
  AwaitMtu(IBV_MTU_4096);
  if (!rxe_user::SetLoopbackMtu(1500)) GTEST_SKIP() << "not allowed to";
  AwaitMtu(IBV_MTU_1024);
  ASSERT_TRUE(rxe_user::SetLoopbackMtu(65536));
  AwaitMtu(IBV_MTU_4096);
  ConnectOptions greatest = Patient();
  greatest.mtu = IBV_MTU_4096;
  Connect(&a_, &b_, greatest);
  Write(1);
}

// A program that binds the port of all addresses takes nothing from who has a
// device open: the sockets are there.
TEST_F(LinkFaultTest, AddressesStayThoughTheirPortIsShared) {
  int ready[2];
  int finish[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(finish), 0);
  Connect(&a_, &b_, Patient());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    const int on = 1;
    sockaddr_in6 all = {};
    all.sin6_family = AF_INET6;
    all.sin6_port = htons(4791);
    const bool bound =
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0 &&
        bind(fd, reinterpret_cast<const sockaddr*>(&all), sizeof(all)) == 0;
    char c = bound ? 1 : 0;
    (void)!write(ready[1], &c, 1);
    (void)!read(finish[0], &c, 1);
    _exit(0);
  }
  char bound = 0;
  EXPECT_EQ(read(ready[0], &bound, 1), 1);
  EXPECT_EQ(bound, 1);
  const bool changed = rxe_user::SetLoopbackMtu(1500);
  if (changed) {
    AwaitMtu(IBV_MTU_1024);
    ibv_gid gid = {};
    EXPECT_EQ(ibv_query_gid(context_, 1, gid_index_, &gid), 0);
    EXPECT_EQ(std::memcmp(gid.raw, gid_.raw, sizeof(gid.raw)), 0);
    EXPECT_EQ(PortState(), IBV_PORT_ACTIVE);
  }
  EXPECT_EQ(write(finish[1], "", 1), 1);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  for (const int fd : {ready[0], ready[1], finish[0], finish[1]}) close(fd);
  if (!changed) GTEST_SKIP() << "not allowed to";
}

}  // namespace
}  // namespace conformance
