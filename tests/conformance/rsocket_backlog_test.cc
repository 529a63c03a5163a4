// rsocket(7): as with TCP, connections exist before the listener's program
// accepts them. Mostly with both ends in one thread.
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_fixture.h"
#include "verbs_api/rsockets/protocol.h"

namespace conformance {
namespace {

// Without UDP sockets: an address has up to eight for sending, which are opened
// when queue pairs first use them, and stay.
int CountDescriptors() {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    getsockopt(std::stoi(entry.path().filename()), SOL_SOCKET, SO_PROTOCOL,
               &protocol, &size);
    count += protocol != IPPROTO_UDP;
  }
  return count;
}

// The threads of this process with this name.
int CountThreads(const std::string& name) {
  int count = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(task.path() / "comm");
    std::string comm;
    count += std::getline(in, comm) && comm == name;
  }
  return count;
}

class BacklogTest : public RsocketTest {
 protected:
  void TearDown() override {
    for (const int fd : others_) EXPECT_EQ(rclose(fd), 0);
    RsocketTest::TearDown();
  }
  void ListenWith(int backlog) {
    Listen();
    ASSERT_EQ(rlisten(listener_, backlog), 0);
  }
  // Another socket, closed at the end.
  int Another() {
    const int fd = rsocket(family_, SOCK_STREAM, 0);
    EXPECT_GE(fd, 0) << std::strerror(errno);
    others_.push_back(fd);
    return fd;
  }
  // Waits or not, as the socket's flags say.
  int ConnectTo(int fd, uint16_t port) {
    const LoopbackAddress address(family_, port);
    return rconnect(fd, address.get(), address.length);
  }
  void ConnectClient() {
    MakeClient();
    ASSERT_EQ(ConnectTo(client_, port_), 0) << std::strerror(errno);
  }
  // Starts to connect to `port_` without waiting.
  int BeginAnother() {
    const int fd = Another();
    SetNonblocking(fd, true);
    EXPECT_EQ(ConnectTo(fd, port_), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    return fd;
  }
  void Accept() {
    server_ = raccept(listener_, nullptr, nullptr);
    ASSERT_GE(server_, 0) << std::strerror(errno);
  }
  static int ErrorOf(int fd) {
    int error = -1;
    socklen_t length = sizeof(error);
    EXPECT_EQ(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    return error;
  }

  std::vector<int> others_;
};

class BacklogFamilyTest : public BacklogTest,
                          public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Families, BacklogFamilyTest,
                         testing::Values(AF_INET, AF_INET6));

TEST_P(BacklogFamilyTest, ConnectingEndsBeforeAccepting) {
  Listen(GetParam());
  EXPECT_EQ(Events(listener_, POLLIN), 0);
  ConnectClient();
  SendAll(client_, "early");
  EXPECT_EQ(Events(listener_, POLLIN, kSoon), POLLIN);
  sockaddr_in6 peer = {};
  socklen_t length = sizeof(peer);
  server_ = raccept(listener_, reinterpret_cast<sockaddr*>(&peer), &length);
  ASSERT_GE(server_, 0) << std::strerror(errno);
  EXPECT_EQ(peer.sin6_family, GetParam());
  EXPECT_EQ(ntohs(peer.sin6_port), PortOf(client_));
  EXPECT_EQ(Receive(server_, 5), "early");
  SendAll(server_, "late");
  EXPECT_EQ(Receive(client_, 4), "late");
}

TEST_F(BacklogTest, DataBeforeAcceptIsKept) {
  Listen();
  ConnectClient();
  const uint16_t port = PortOf(client_);
  const std::string bytes = Pattern(50000);
  SendAll(client_, bytes);
  ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  sockaddr_in peer = {};
  socklen_t length = sizeof(peer);
  server_ = raccept(listener_, reinterpret_cast<sockaddr*>(&peer), &length);
  ASSERT_GE(server_, 0) << std::strerror(errno);
  EXPECT_EQ(ntohs(peer.sin_port), port);
  char some[4] = {};
  EXPECT_EQ(rrecv(server_, some, 3, MSG_PEEK), 3);
  EXPECT_EQ(some, bytes.substr(0, 3));
  EXPECT_TRUE(Receive(server_, 60000) == bytes);
  EXPECT_EQ(Receive(server_, 1), "");
}

// More than the buffers hold: it continues when the server reads.
TEST_F(BacklogTest, MuchIsSentBeforeAccepting) {
  Listen();
  ConnectClient();
  SetNonblocking(client_, true);
  const std::string bytes = Pattern(1 << 20);
  size_t sent = 0;
  for (ssize_t n; (n = rsend(client_, bytes.data() + sent, 10000, 0)) > 0;) {
    sent += static_cast<size_t>(n);
    ASSERT_LT(sent + 10000, bytes.size());
  }
  EXPECT_EQ(errno, EAGAIN);
  Accept();
  EXPECT_TRUE(Receive(server_, sent) == bytes.substr(0, sent));
}

// No call waits for the client's connection.
TEST_F(BacklogTest, ConnectingGoesOnByItself) {
  Listen();
  MakeClient();
  SetNonblocking(client_, true);
  ASSERT_EQ(ConnectTo(client_, port_), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  Accept();
  SendAll(server_, "hello");
  EXPECT_EQ(Events(client_, POLLOUT, kSoon), POLLOUT);
  EXPECT_EQ(ErrorOf(client_), 0);
  SetNonblocking(client_, false);
  EXPECT_EQ(Receive(client_, 5), "hello");
}

// connect(2) first returns the result, and then EISCONN.
TEST_F(BacklogTest, ASecondConnectReturnsTheResult) {
  Listen();
  MakeClient();
  SetNonblocking(client_, true);
  ASSERT_EQ(ConnectTo(client_, port_), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  ASSERT_EQ(Events(client_, POLLOUT, kSoon), POLLOUT);
  EXPECT_EQ(ConnectTo(client_, port_), 0) << std::strerror(errno);
  EXPECT_EQ(ConnectTo(client_, port_), -1);
  EXPECT_EQ(errno, EISCONN);
}

// connect(2) after EINPROGRESS or EINTR waits for the result if the socket may
// block.
TEST_F(BacklogTest, ConnectingAgainWaits) {
  ListenWith(0);
  ConnectClient();
  const int second = BeginAnother();
  EXPECT_EQ(ConnectTo(second, port_), -1);
  EXPECT_EQ(errno, EALREADY);
  SetNonblocking(second, false);
  rxe_user::WatchedThread connects(
      [&] { EXPECT_EQ(ConnectTo(second, port_), 0) << std::strerror(errno); });
  EXPECT_TRUE(connects.AwaitSleep());
  Accept();
  connects.join();
}

TEST_F(BacklogTest, ConnectingInVainEndsByItself) {
  Listen();
  const uint16_t port = port_;
  ASSERT_EQ(rclose(std::exchange(listener_, -1)), 0);
  MakeClient();
  SetNonblocking(client_, true);
  ASSERT_EQ(ConnectTo(client_, port), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  EXPECT_NE(Events(client_, POLLOUT, kSoon) & POLLHUP, 0);
  EXPECT_EQ(ErrorOf(client_), ECONNREFUSED);
}

TEST_F(BacklogTest, NothingToAccept) {
  Listen();
  SetNonblocking(listener_, true);
  EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  ConnectClient();
  EXPECT_EQ(Events(listener_, POLLIN, kSoon), POLLIN);
  Accept();
  EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(Events(listener_, POLLIN), 0);
}

TEST_F(BacklogTest, ATimeoutEndsAccepting) {
  Listen();
  const timeval soon = {.tv_sec = 0, .tv_usec = 1000};
  ASSERT_EQ(
      rsetsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)), 0);
  EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// A thread that waits, by either call, is woken for a connection that another
// thread starts.
TEST_F(BacklogTest, WaitingThreadsAreWoken) {
  Listen();
  rxe_user::WatchedThread polls([&] {
    EXPECT_EQ(Events(listener_, POLLIN, kSoon), POLLIN);
    Accept();
  });
  EXPECT_TRUE(polls.AwaitSleep());
  MakeClient();
  EXPECT_EQ(ConnectTo(client_, port_), 0);
  polls.join();
  rxe_user::WatchedThread accepts([&] {
    others_.push_back(raccept(listener_, nullptr, nullptr));
    EXPECT_GE(others_.back(), 0);
  });
  EXPECT_TRUE(accepts.AwaitSleep());
  const int other = rsocket(family_, SOCK_STREAM, 0);
  EXPECT_EQ(ConnectTo(other, port_), 0);
  accepts.join();
  EXPECT_EQ(rclose(other), 0);
}

TEST_F(BacklogTest, SeveralListenersServeSeveralConnections) {
  constexpr int kListeners = 3, kEach = 4;
  std::vector<int> listeners, clients;
  std::vector<uint16_t> ports;
  for (int i = 0; i < kListeners; ++i) {
    Listen();
    listeners.push_back(std::exchange(listener_, -1));
    others_.push_back(listeners.back());
    ports.push_back(port_);
  }
  EXPECT_EQ(CountThreads("rxe-user-conn"), 1);
  for (int i = 0; i < kListeners * kEach; ++i) {
    clients.push_back(Another());
    ASSERT_EQ(ConnectTo(clients.back(), ports[i % kListeners]), 0)
        << std::strerror(errno);
  }
  // Connections of a listener are accepted in the order of connecting.
  for (int i = 0; i < kListeners * kEach; ++i) {
    const int server = raccept(listeners[i % kListeners], nullptr, nullptr);
    ASSERT_GE(server, 0) << std::strerror(errno);
    others_.push_back(server);
    SendAll(clients[i], std::to_string(i));
    const std::string number = std::to_string(i);
    EXPECT_EQ(Receive(server, number.size()), number);
  }
}

TEST_F(BacklogTest, MoreThanItsPlacesWait) {
  constexpr int kPlaces = 3;  // one more than the backlog, as in Linux
  ListenWith(kPlaces - 1);
  std::vector<int> clients;
  for (int i = 0; i < kPlaces + 4; ++i) clients.push_back(BeginAnother());
  const auto count = [&] {
    return std::count_if(clients.begin(), clients.end(),
                         [](int fd) { return Events(fd, POLLOUT) != 0; });
  };
  // A later request elsewhere is served after the earlier ones.
  const int full = std::exchange(listener_, -1);
  others_.push_back(full);
  Listen();
  for (int accepted = 0; accepted <= 4; ++accepted) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoon);
    while (count() < kPlaces + accepted) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
    for (int i = 0; i < 3; ++i) {
      MakeClient();
      ASSERT_EQ(ConnectTo(client_, port_), 0);
      Accept();
      EXPECT_EQ(rclose(std::exchange(client_, -1)), 0);
      EXPECT_EQ(rclose(std::exchange(server_, -1)), 0);
    }
    ASSERT_EQ(count(), kPlaces + accepted);
    others_.push_back(raccept(full, nullptr, nullptr));
    ASSERT_GE(others_.back(), 0) << std::strerror(errno);
  }
}

// A second listen(2) changes the backlog.
TEST_F(BacklogTest, ABacklogGrows) {
  ListenWith(0);
  ConnectClient();
  const int second = BeginAnother();
  EXPECT_EQ(Events(second, POLLOUT, 1), 0);
  ASSERT_EQ(rlisten(listener_, 1), 0);
  EXPECT_EQ(Events(second, POLLOUT, kSoon), POLLOUT);
}

TEST_F(BacklogTest, ClosingResetsTheBacklog) {
  // Shared descriptors, and those of a waiting thread, stay open.
  Connect();
  EXPECT_EQ(Events(server_, POLLIN, 1), 0);
  for (int* const fd : {&client_, &server_, &listener_}) {
    ASSERT_EQ(rclose(std::exchange(*fd, -1)), 0);
  }
  const auto before = CountDescriptors();
  ListenWith(10);
  std::vector<int> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(rsocket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(ConnectTo(clients.back(), port_), 0) << std::strerror(errno);
  }
  SendAll(clients[0], "never read");
  ASSERT_EQ(rclose(std::exchange(listener_, -1)), 0);
  for (const int client : clients) {
    EXPECT_NE(Events(client, POLLIN, kSoon) & POLLHUP, 0);
    char byte;
    EXPECT_EQ(rrecv(client, &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET) << std::strerror(errno);
    EXPECT_EQ(rrecv(client, &byte, 1, 0), 0);
    ASSERT_EQ(rclose(client), 0);
  }
  EXPECT_EQ(CountDescriptors(), before);
}

// In whatever state the connections are.
TEST_F(BacklogTest, ClosingWhileOthersConnect) {
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    ListenWith(2);
    for (int j = 0; j < 5; ++j) BeginAnother();
    if (i % 2 == 0) Events(listener_, POLLIN, kSoon);
    ASSERT_EQ(rclose(std::exchange(listener_, -1)), 0);
    for (const int client : std::exchange(others_, {})) {
      EXPECT_NE(Events(client, POLLIN, kSoon) & POLLHUP, 0);
      EXPECT_NE(ErrorOf(client), 0);
      ASSERT_EQ(rclose(client), 0);
    }
  }
}

TEST_F(BacklogTest, ClosingEndsAccepting) {
  Listen();
  rxe_user::WatchedThread accepts([&, listener = listener_] {
    EXPECT_EQ(raccept(listener, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EBADF);
  });
  EXPECT_TRUE(accepts.AwaitSleep());
  ASSERT_EQ(rclose(std::exchange(listener_, -1)), 0);
  accepts.join();
}

TEST_F(BacklogTest, APortIsFreeAfterClosingWithABacklog) {
  Listen();
  ConnectClient();
  ASSERT_EQ(rclose(std::exchange(listener_, -1)), 0);
  listener_ = rsocket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ASSERT_EQ(rsetsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)),
            0);
  const LoopbackAddress address(AF_INET, port_);
  ASSERT_EQ(rbind(listener_, address.get(), address.length), 0)
      << std::strerror(errno);
  ASSERT_EQ(rlisten(listener_, 1), 0) << std::strerror(errno);
  ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  ConnectClient();
  Accept();
  SendAll(server_, "a");
  EXPECT_EQ(Receive(client_, 1), "a");
}

// A client without rsockets, which speaks the protocol up to the REP.
class RawClient {
 public:
  explicit RawClient(uint16_t port) {
    channel_ = rdma_create_event_channel();
    EXPECT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0);
    const LoopbackAddress to(AF_INET, port);
    EXPECT_EQ(
        rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(to.get()), kSoon),
        0);
    Await(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id_, kSoon), 0);
    Await(RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  ~RawClient() {
    EXPECT_EQ(rdma_destroy_id(id_), 0);
    rdma_destroy_event_channel(channel_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // With or without the private data of an rsocket.
  void Connect(bool as_rsocket) {
    rsockets::ConnectionData data;
    data.credits = 10;
    data.target_list.length = 2;
    data.data.length = 1000;
    const auto bytes = rsockets::Encode(data);
    rdma_conn_param param = {};
    if (as_rsocket) {
      param.private_data = bytes.data();
      param.private_data_len = bytes.size();
    }
    static uint32_t last_number = 1000;
    param.qp_num = ++last_number;  // does not exist
    ASSERT_EQ(rdma_connect(id_, &param), 0) << std::strerror(errno);
  }
  void Await(rdma_cm_event_type type) {
    rdma_cm_event* event;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    EXPECT_EQ(event->event, type) << rdma_event_str(event->event);
    rdma_ack_cm_event(event);
  }
  void Confirm() { EXPECT_EQ(rdma_establish(id_), 0) << std::strerror(errno); }
  void Reject() { EXPECT_EQ(rdma_reject(id_, nullptr, 0), 0); }

 private:
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
};

// Unconfirmed connections hold the only slot until they are closed.
TEST_F(BacklogTest, UnconfirmedConnectionsAreNotAccepted) {
  ListenWith(0);
  for (int i = 0; i < 3; ++i) {
    RawClient client(port_);
    client.Connect(true);
    client.Await(RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(Events(listener_, POLLIN), 0);
    if (i % 2 == 0) client.Reject();
  }
  ConnectClient();
  sockaddr_in peer = {};
  socklen_t length = sizeof(peer);
  server_ = raccept(listener_, reinterpret_cast<sockaddr*>(&peer), &length);
  ASSERT_GE(server_, 0) << std::strerror(errno);
  EXPECT_EQ(ntohs(peer.sin_port), PortOf(client_));
}

// Each unconfirmed connection used to keep its slot for ten seconds, so forty
// of them delayed other clients by minutes.
TEST_F(BacklogTest, UnconfirmedConnectionsDoNotDelayOthers) {
  ListenWith(1);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 80; ++i) {
    silent.push_back(std::make_unique<RawClient>(port_));
    silent.back()->Connect(true);
  }
  const int descriptors = CountDescriptors();
  const int client = BeginAnother();
  EXPECT_EQ(Events(client, POLLOUT, kSoon), POLLOUT);
  EXPECT_EQ(ErrorOf(client), 0);
  Accept();
  SendAll(client, "a");
  EXPECT_EQ(Receive(server_, 1), "a");
  // At most 64 of them are kept, with three descriptors each.
  EXPECT_LE(CountDescriptors(), descriptors + 3 * 64 + 10);
}

// The listener answers requests for as long as they arrive. Meanwhile the
// connections of overdue peers are closed, and confirmed ones accepted.
TEST_F(BacklogTest, AFloodTakesLimitedDescriptors) {
  constexpr int kClients = 500;
  constexpr int kPlaces = 101;
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  if (limit.rlim_cur < 4096) GTEST_SKIP() << "too few descriptors";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ListenWith(kPlaces - 1);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < kClients; ++i) {
    silent.push_back(std::make_unique<RawClient>(port_));
  }
  const int before = CountDescriptors();
  std::atomic<bool> done = false;
  int most = 0;
  std::thread counts([&] {
    while (!done) most = std::max(most, CountDescriptors());
  });
  for (const auto& client : silent) client->Connect(true);
  const int client = BeginAnother();
  EXPECT_EQ(Events(client, POLLOUT, 3 * kSoon), POLLOUT);
  done = true;
  counts.join();
  Accept();
  SendAll(client, "a");
  EXPECT_EQ(Receive(server_, 1), "a");
  // Each place, and each of at most 64 overdue peers, takes three descriptors.
  EXPECT_LE(most, before + 3 * (kPlaces + 64) + 20);
}

// A peer that confirms late is accepted if few peers are late.
TEST_F(BacklogTest, AcceptsALateConfirmation) {
  ListenWith(0);
  RawClient late(port_);
  late.Connect(true);
  late.Await(RDMA_CM_EVENT_CONNECT_RESPONSE);
  ConnectClient();
  Accept();
  late.Confirm();
  const int second = raccept(listener_, nullptr, nullptr);
  EXPECT_GE(second, 0) << std::strerror(errno);
  others_.push_back(second);
}

// After one second, when another client connects.
TEST_F(BacklogTest, UnconfirmedConnectionsAreReplaced) {
  ListenWith(0);
  RawClient silent(port_);
  silent.Connect(true);
  silent.Await(RDMA_CM_EVENT_CONNECT_RESPONSE);
  const int client = BeginAnother();
  EXPECT_EQ(Events(client, POLLOUT, kSoon), POLLOUT);
  EXPECT_EQ(ErrorOf(client), 0);
  Accept();
  SendAll(client, "a");
  EXPECT_EQ(Receive(server_, 1), "a");
}

TEST_F(BacklogTest, OtherClientsAreRefused) {
  ListenWith(0);
  for (int i = 0; i < 3; ++i) {
    RawClient client(port_);
    client.Connect(false);
    client.Await(RDMA_CM_EVENT_REJECTED);
  }
  EXPECT_EQ(Events(listener_, POLLIN), 0);
  ConnectClient();
}

// The parent's objects of the library do not work in the child.
TEST_F(BacklogTest, AChildOfForkHasItsOwn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "threads of such a child are not the sanitizer's business";
#endif
  Listen();
  ConnectClient();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    const LoopbackAddress any(AF_INET);
    if (rbind(listener, any.get(), any.length) != 0) _exit(1);
    if (rlisten(listener, 1) != 0) _exit(2);
    const int client = rsocket(AF_INET, SOCK_STREAM, 0);
    if (ConnectTo(client, PortOf(listener)) != 0) _exit(3);
    if (rsend(client, "x", 1, 0) != 1) _exit(4);
    const int server = raccept(listener, nullptr, nullptr);
    if (server < 0) _exit(5);
    char byte;
    if (rrecv(server, &byte, 1, 0) != 1 || byte != 'x') _exit(6);
    if (rclose(client) != 0 || rclose(server) != 0) _exit(7);
    if (rclose(listener) != 0) _exit(8);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "exit " << WEXITSTATUS(status);
  // The parent's connections continue.
  Accept();
  SendAll(client_, "y");
  EXPECT_EQ(Receive(server_, 1), "y");
  const int another = Another();
  EXPECT_EQ(ConnectTo(another, port_), 0);
}

}  // namespace
}  // namespace conformance
