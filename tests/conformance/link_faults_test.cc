// Changes of the interface under a connection: down and up, address removed and
// added, MTU changed. Programs get asynchronous events. Queue pairs recover if
// the change ends before their retries are exhausted; otherwise they fail with
// the right completion.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
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
// Not for requests that must succeed: a busy machine takes longer than all
// retries.
ConnectOptions Impatient() {
  ConnectOptions options = Patient();
  options.timeout = 10;  // 4.2 ms
  return options;
}

class LinkFaultTest : public PairTest {
 protected:
  LinkFaultTest() { make_pair_ = false; }
  // Without a queue pair there are no events.
  void SetUp() override {
    PairTest::SetUp();
    MakeSide(&a_);
    MakeSide(&b_);
  }
  void TearDown() override {
    PairTest::TearDown();
    // Restores the state for the next test.
    rxe_user::SetLoopback(true);
    rxe_user::SetLoopbackMtu(65536);
    rxe_user::SetLoopbackAddress(kAddress, false);
  }

  // Makes both ends use kAddress. Returns false if it may not be added.
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
  // Takes asynchronous events of the port until one has `type`.
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
  // Posts a WRITE with its own pattern to the other end.
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
  // No completion arrives, because nothing gets through.
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
  // A failed connection does not affect a new one.
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
  // New connections are affected, too.
  WriteAnew();
}

TEST_F(LinkFaultTest, AddressGoneForTooLong) {
  if (!UseAddress()) GTEST_SKIP() << "not allowed to";
  Connect(&a_, &b_, Impatient());
  ASSERT_TRUE(rxe_user::SetLoopbackAddress(kAddress, false));
  AwaitEvent(IBV_EVENT_GID_CHANGE);
  PostWrite(2);
  ExpectRetriesExceeded(2);
  // A connection that names the address cannot begin either.
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
  // A path MTU that still fits is not affected.
  ConnectOptions fits = Patient();
  fits.mtu = IBV_MTU_2048;
  ConnectAnew(fits);
  Write(3);
  ASSERT_TRUE(rxe_user::SetLoopbackMtu(2200));
  Write(4);
}

// A query during the smaller MTU must not be cached: modify_qp refuses a path
// MTU above the port's.
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

// A program that binds the port on all addresses does not affect a device that
// is open, because its sockets exist.
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

// The route to the peer is removed and restored, as by `ip route`. Sends fail
// with a different error for each kind.
class RouteFaultTest : public LinkFaultTest,
                       public testing::WithParamInterface<rxe_user::Route> {
 protected:
  void TearDown() override {
    GiveBack();  // or it could not be removed from the interface
    LinkFaultTest::TearDown();
  }
  // Returns false if that is not allowed.
  bool Take() { return rxe_user::SetRouteTo(kAddress, GetParam()); }
  static bool GiveBack() {
    return rxe_user::SetRouteTo(kAddress, rxe_user::Route::kLocal);
  }
  static int64_t CpuMs() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
  }
  // While the program does not poll.
  static void ExpectNoThreadSpins() {
    const int64_t before = CpuMs();
    poll(nullptr, 0, 300);
    EXPECT_LT(CpuMs() - before, 100);
  }
};

TEST_P(RouteFaultTest, GoneAndBack) {
  if (!UseAddress()) GTEST_SKIP() << "not allowed to";
  Connect(&a_, &b_, Patient());
  Write(1);
  if (!Take()) GTEST_SKIP() << "not allowed to";
  PostWrite(2);
  ExpectNoneYet();
  ExpectNoThreadSpins();
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
  ASSERT_TRUE(GiveBack());
  ExpectWritten(2);
  Write(3);
}

TEST_P(RouteFaultTest, GoneForTooLong) {
  if (!UseAddress()) GTEST_SKIP() << "not allowed to";
  Connect(&a_, &b_, Impatient());
  if (!Take()) GTEST_SKIP() << "not allowed to";
  PostWrite(2);
  ExpectRetriesExceeded(2);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
  ExpectNoThreadSpins();
  ASSERT_TRUE(GiveBack());
  WriteAnew();
}

// A datagram is complete when the system has accepted it; nothing reports its
// loss.
TEST_P(RouteFaultTest, DatagramsAreLost) {
  if (!UseAddress()) GTEST_SKIP() << "not allowed to";
  constexpr uint32_t kQkey = 0x11111111;
  DestroySide(&a_);
  DestroySide(&b_);
  QpOptions options;
  options.type = IBV_QPT_UD;
  for (Side* side : {&a_, &b_}) {
    MakeSide(side, options);
    ToRtsAsUd(side->qp, kQkey);
  }
  ASSERT_FALSE(HasFailure());
  ibv_ah_attr to = {};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = gid_;
  to.grh.sgid_index = gid_index_;
  to.grh.hop_limit = 64;
  ibv_ah* const ah = ibv_create_ah(pd_, &to);
  ASSERT_NE(ah, nullptr);
  const auto send = [&](uint64_t wr_id) {
    ibv_sge sge = a_.Sge(0, 100);
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {ah, b_.qp->qp_num, kQkey};
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
    ExpectSuccess(a_.cq, wr_id);
  };
  ASSERT_EQ(Receive(b_, 4, 1 << 19, 1000), 0);
  send(100);
  ExpectSuccess(b_.cq, 4);
  ASSERT_EQ(Receive(b_, 5, 1 << 19, 1000), 0);
  if (!Take()) GTEST_SKIP() << "not allowed to";
  for (uint64_t i = 0; i < 100; ++i) send(i);
  EXPECT_FALSE(Within(b_.cq, 50).has_value());
  ExpectNoThreadSpins();
  ASSERT_TRUE(GiveBack());
  send(200);
  ExpectSuccess(b_.cq, 5);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

std::string NameOf(const testing::TestParamInfo<rxe_user::Route>& info) {
  constexpr const char* kNames[] = {"Local", "Unreachable", "Prohibited",
                                    "Blackhole"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(, RouteFaultTest,
                         testing::Values(rxe_user::Route::kUnreachable,
                                         rxe_user::Route::kProhibited,
                                         rxe_user::Route::kBlackhole),
                         NameOf);

}  // namespace
}  // namespace conformance
