// Queue pairs with dead peers (killed, stopped or destroyed) beside one with a
// live peer at the same address. That one must continue. Its speed depends on
// the simulated network (transport/sim/dead_peer_test.cc).
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr int kPairs = 8;
constexpr int kMessages = 8;  // to each dead peer
constexpr uint32_t kBytes = 4096;
constexpr size_t kPeerMemory = 64 * 1024;
// In the environment of the process with the other ends: its socket to the
// test.
constexpr char kPeerSocket[] = "RXE_USER_TEST_PEER_SOCKET";

// What both ends send each other.
struct Introduction {
  std::array<uint32_t, kPairs> qpn;
  std::array<uint64_t, kPairs> address;
  std::array<uint32_t, kPairs> rkey;
};

ConnectOptions WithTimeout(uint8_t timeout) {
  ConnectOptions options;
  options.timeout = timeout;
  return options;
}

// Sides that communicate with another process.
class ManySides : public PairTest {
 protected:
  void MakeSides() {
    for (int i = 0; i < kPairs; ++i) {
      MakeSide(&sides_[i], {}, 256, nullptr, kPeerMemory);
      ASSERT_NE(sides_[i].mr, nullptr);
      ours_.qpn[i] = sides_[i].qp->qp_num;
      ours_.address[i] = sides_[i].address();
      ours_.rkey[i] = sides_[i].mr->rkey;
    }
  }
  void DestroySides() {
    for (Side& side : sides_) DestroySide(&side);
  }
  void Tell(int socket) {
    ASSERT_EQ(send(socket, &ours_, sizeof(ours_), 0),
              static_cast<ssize_t>(sizeof(ours_)));
  }
  void Hear(int socket) {
    ASSERT_EQ(recv(socket, &theirs_, sizeof(theirs_), 0),
              static_cast<ssize_t>(sizeof(theirs_)));
  }
  void ConnectSides(uint8_t timeout) {
    for (int i = 0; i < kPairs; ++i) {
      ASSERT_EQ(ToRts(sides_[i].qp, theirs_.qpn[i], WithTimeout(timeout)), 0);
      for (int n = 0; n <= kMessages; ++n) {
        ASSERT_EQ(Receive(sides_[i], 0, 0, kBytes), 0);
      }
    }
  }

  std::array<Side, kPairs> sides_;
  Introduction ours_ = {};
  Introduction theirs_ = {};
};

// --- The other process: this program with one more test.

class PeerProcess : public ManySides {
 public:
  PeerProcess() { make_pair_ = false; }

 private:
  void TestBody() override {
    const char* text = std::getenv(kPeerSocket);
    ASSERT_NE(text, nullptr);
    const int socket = std::atoi(text);
    MakeSides();
    Hear(socket);
    ConnectSides(14);
    Tell(socket);
    // Destroys its queue pairs on request and confirms. Runs until the test
    // closes its socket.
    char byte;
    while (recv(socket, &byte, 1, 0) == 1) {
      for (Side& side : sides_) DestroyQp(&side);
      ASSERT_EQ(send(socket, &byte, 1, 0), 1);
    }
    DestroySides();
  }
};

[[maybe_unused]] const testing::TestInfo* const kPeerProcess =
    std::getenv(kPeerSocket) == nullptr
        ? nullptr
        : testing::RegisterTest(
              "PeerProcess", "Serves", nullptr, nullptr, __FILE__, __LINE__,
              []() -> PeerProcess* { return new PeerProcess; });

// --- The test.

enum class Death { kKilled, kStopped, kDestroyed };

class DeadPeerTest
    : public ManySides,
      public testing::WithParamInterface<std::tuple<Death, int>> {
 protected:
  void SetUp() override {
    ManySides::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    MakeSides();
    StartPeer();
    ASSERT_FALSE(HasFatalFailure());
    Tell(socket_);
    Hear(socket_);
    ConnectSides(static_cast<uint8_t>(std::get<1>(GetParam())));
    ASSERT_FALSE(HasFatalFailure());
  }
  void TearDown() override {
    DestroySides();
    if (socket_ >= 0) close(socket_);
    if (peer_ > 0) {
      kill(peer_, SIGKILL);
      EXPECT_EQ(waitpid(peer_, nullptr, 0), peer_);
    }
    ManySides::TearDown();
  }

  void StartPeer() {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    // Without the variables of the test runner: it must not report results.
    std::vector<std::string> texts = {std::string(kPeerSocket) + "=" +
                                      std::to_string(ends[1])};
    for (char** each = environ; *each != nullptr; ++each) {
      const std::string text = *each;
      if (text.starts_with("TEST_") || text.starts_with("GTEST_") ||
          text.starts_with("XML_")) {
        continue;
      }
      texts.push_back(text);
    }
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    std::string arguments[] = {"peer", "--gtest_filter=PeerProcess.Serves",
                               "--gtest_brief=1"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      fcntl(ends[1], F_SETFD, 0);
      execve("/proc/self/exe", argv.data(), environment.data());
      _exit(1);
    }
    close(ends[1]);
    socket_ = ends[0];
    peer_ = child;
  }

  void LetDie() {
    int status = 0;
    char byte = 0;
    switch (std::get<0>(GetParam())) {
      case Death::kKilled:
        ASSERT_EQ(kill(peer_, SIGKILL), 0);
        ASSERT_EQ(waitpid(peer_, &status, 0), peer_);
        peer_ = -1;
        break;
      case Death::kStopped:
        ASSERT_EQ(kill(peer_, SIGSTOP), 0);
        ASSERT_EQ(waitpid(peer_, &status, WUNTRACED), peer_);
        ASSERT_TRUE(WIFSTOPPED(status));
        break;
      case Death::kDestroyed:
        ASSERT_EQ(send(socket_, &byte, 1, 0), 1);
        ASSERT_EQ(recv(socket_, &byte, 1, 0), 1);
        break;
    }
  }

  // Posts READs, WRITEs and SENDs by turns, depending on the pair.
  void Post(int pair, uint64_t wr_id) {
    static constexpr ibv_wr_opcode kOpcodes[] = {
        IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND};
    ASSERT_EQ(
        Send(sides_[pair], kOpcodes[pair % 3], wr_id, 0, kBytes,
             IBV_SEND_SIGNALED, theirs_.address[pair], theirs_.rkey[pair]),
        0);
  }

  // The messages of the live pair, one after the other.
  void ExpectTraffic() {
    uint64_t wr_id = 0;
    for (const uint32_t bytes : {64u, 65'536u, 1u << 20}) {
      for (int i = 0; i < 30; ++i) {
        for (const ibv_wr_opcode opcode :
             {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND}) {
          if (opcode == IBV_WR_SEND) {
            ASSERT_EQ(Receive(b_, 0, 0, bytes), 0);
          }
          ASSERT_EQ(Send(a_, opcode, ++wr_id, 0, bytes, IBV_SEND_SIGNALED,
                         b_.address(), b_.mr->rkey),
                    0);
          ASSERT_EQ(ExpectSuccess(a_.cq, wr_id).status, IBV_WC_SUCCESS)
              << bytes << " bytes, opcode " << opcode;
          if (opcode == IBV_WR_SEND) ExpectSuccess(b_.cq, 0);
        }
      }
    }
  }

  int socket_ = -1;
  pid_t peer_ = -1;
};

std::string NameOf(const testing::TestParamInfo<std::tuple<Death, int>>& info) {
  static constexpr const char* kNames[] = {"Killed", "Stopped", "Destroyed"};
  return std::string(kNames[static_cast<int>(std::get<0>(info.param))]) +
         "Timeout" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, DeadPeerTest,
                         testing::Combine(testing::Values(Death::kKilled,
                                                          Death::kStopped,
                                                          Death::kDestroyed),
                                          testing::Values(0, 14, 18)),
                         NameOf);

TEST_P(DeadPeerTest, DoesNotAffectOtherPairs) {
  for (int i = 0; i < kPairs; ++i) {
    Post(i, 1);
    ExpectSuccess(sides_[i].cq, 1);
  }
  ExpectTraffic();
  LetDie();
  ASSERT_FALSE(HasFatalFailure());
  for (int i = 0; i < kPairs; ++i) {
    for (int n = 0; n < kMessages; ++n) Post(i, 2 + n);
  }
  const int64_t begin = NowMs();
  ExpectTraffic();
  // A message that waited for a dead peer's time-outs would take this long.
  EXPECT_LT(NowMs() - begin, kTimeoutMs);
  if (std::get<0>(GetParam()) != Death::kStopped ||
      std::get<1>(GetParam()) == 14) {  // may have given up
    return;
  }
  // The peer continues: posted requests complete, and no other pair notices.
  ASSERT_EQ(kill(peer_, SIGCONT), 0);
  ExpectTraffic();
  for (int i = 0; i < kPairs; ++i) {
    for (int n = 0; n < kMessages; ++n) ExpectSuccess(sides_[i].cq, 2 + n);
  }
}

}  // namespace
}  // namespace conformance
