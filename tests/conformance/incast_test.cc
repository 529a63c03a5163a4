// Status 12 by incast: many processes send to one that gets no core for a
// moment. The kernel keeps the packets that fit into the receive buffer and
// drops the others, and the senders have short timeouts. From the recordings of
// all processes, rxe-user explain distinguishes both causes from packets that
// were lost on the way. Nothing fails if the processes send one after the
// other.
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/tool.h"

namespace conformance {
namespace {

constexpr size_t kSenders = 48;
// Each sender has three connections, and sends this much on each without
// waiting for an acknowledgement. All together send more than fits into the
// receive buffer, which has at most 8 MiB.
constexpr size_t kPairs = 3;
constexpr uint32_t kBytes = 128 * 1024;

// What a queue pair must know about its peer.
struct Introduction {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t address;
};

// Without CAP_NET_ADMIN, of this process and those that it starts, the receive
// buffer is no larger than net.core.rmem_max.
bool DropNetAdmin() {
  if (prctl(PR_CAPBSET_DROP, CAP_NET_ADMIN) != 0) return false;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1u << CAP_NET_ADMIN);
  data[0].permitted &= ~(1u << CAP_NET_ADMIN);
  return syscall(SYS_capset, &header, data) == 0;
}

// How many datagrams the kernel dropped because a socket's buffer was full,
// over all sockets of this network namespace. proc(5), /proc/net/udp.
uint64_t Dropped() {
  std::ifstream file("/proc/self/net/udp");
  uint64_t sum = 0;
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
    }
    sum += std::strtoull(word.c_str(), nullptr, 10);
  }
  return sum;
}

// The work of the processes: plain functions of a fixture whose TearDown they
// never call.
class Process : public PairTest {
 public:
  explicit Process(int socket) : socket_(socket) { make_pair_ = false; }

  // Has queue pairs for all senders, and does nothing else: the device
  // receives.
  void Receive() {
    PairTest::SetUp();
    std::vector<Side> sides(kSenders * kPairs);
    for (Side& side : sides) {
      MakeSide(&side, {}, 16, nullptr, kBytes);
      Tell(side);
    }
    for (Side& side : sides) {
      ASSERT_EQ(ToRts(side.qp, Hear().qpn), 0);
    }
    Tell(sides[0]);  // ready
    Hear();          // the end
    for (Side& side : sides) DestroySide(&side);
    PairTest::TearDown();
  }

  // Writes whenever it is told to, and reports the first status other than
  // success.
  void Send(const ConnectOptions& options) {
    PairTest::SetUp();
    std::vector<Side> sides(kPairs);
    std::vector<Introduction> peers(kPairs);
    for (Side& side : sides) {
      MakeSide(&side, {}, 16, nullptr, kBytes);
      Tell(side);
    }
    for (size_t i = 0; i < kPairs; ++i) {
      peers[i] = Hear();
      ASSERT_EQ(ToRts(sides[i].qp, peers[i].qpn, options), 0);
    }
    Tell(sides[0]);  // ready
    while (Hear().qpn != 0) {
      for (size_t i = 0; i < kPairs; ++i) {
        ASSERT_EQ(
            PairTest::Send(sides[i], IBV_WR_RDMA_WRITE, 1, 0, kBytes,
                           IBV_SEND_SIGNALED, peers[i].address, peers[i].rkey),
            0);
      }
      ibv_wc_status status = IBV_WC_SUCCESS;
      for (Side& side : sides) {
        const ibv_wc wc = Next(side.cq);
        if (status == IBV_WC_SUCCESS) status = wc.status;
      }
      ASSERT_EQ(write(socket_, &status, sizeof(status)),
                static_cast<ssize_t>(sizeof(status)));
    }
    for (Side& side : sides) DestroySide(&side);
    PairTest::TearDown();
  }

 private:
  void TestBody() override {}
  void Tell(const Side& side) {
    const Introduction own = {side.qp->qp_num, side.mr->rkey, side.address()};
    ASSERT_EQ(write(socket_, &own, sizeof(own)),
              static_cast<ssize_t>(sizeof(own)));
  }
  Introduction Hear() {
    Introduction peer = {};
    EXPECT_EQ(read(socket_, &peer, sizeof(peer)),
              static_cast<ssize_t>(sizeof(peer)));
    return peer;
  }

  const int socket_;
};

class IncastTest : public testing::Test {
 protected:
  struct Child {
    pid_t pid = 0;
    int socket = -1;
  };

  void SetUp() override {
    ASSERT_TRUE(DropNetAdmin());
    char name[] = "/tmp/rxe_user_incast_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    for (const Child& child : children_) {  // after a failure
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  template <typename Work>
  Child Start(Work&& work) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const std::string file =
        folder_ + "/" + std::to_string(children_.size()) + ".pcapng";
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const Child& other : children_) close(other.socket);
      close(ends[0]);
      setenv("RXE_USER_TRACE", file.c_str(), 1);
      Process process(ends[1]);
      work(process);
      // Ends as a program does, so that the recording is whole.
      exit(testing::Test::HasFailure());
    }
    close(ends[1]);
    files_ += " " + file;
    children_.push_back({pid, ends[0]});
    return children_.back();
  }
  // Starts the receiver, children_[0], and the senders, and connects them.
  // The last one has the defaults.
  void StartAll(const ConnectOptions& options) {
    Start([](Process& process) { process.Receive(); });
    for (size_t i = 1; i <= kSenders; ++i) {
      Start([&](Process& process) {
        process.Send(i < kSenders ? options : ConnectOptions());
      });
    }
    for (size_t i = 0; i < kSenders * kPairs; ++i) {
      Pass(children_[0], children_[1 + i / kPairs]);
    }
    for (size_t i = 0; i < kSenders * kPairs; ++i) {
      Pass(children_[1 + i / kPairs], children_[0]);
    }
    for (const Child& child : children_) AwaitReady(child);
  }
  // Passes a message from one process to another.
  static void Pass(const Child& from, const Child& to) {
    Introduction text = {};
    ASSERT_EQ(read(from.socket, &text, sizeof(text)),
              static_cast<ssize_t>(sizeof(text)));
    ASSERT_EQ(write(to.socket, &text, sizeof(text)),
              static_cast<ssize_t>(sizeof(text)));
  }
  static void AwaitReady(const Child& child) {
    Introduction text = {};
    ASSERT_EQ(read(child.socket, &text, sizeof(text)),
              static_cast<ssize_t>(sizeof(text)));
  }
  static void LetWrite(const Child& sender) {
    const Introduction text = {.qpn = 1, .rkey = 0, .address = 0};
    ASSERT_EQ(write(sender.socket, &text, sizeof(text)),
              static_cast<ssize_t>(sizeof(text)));
  }
  static ibv_wc_status StatusOf(const Child& sender) {
    ibv_wc_status status = IBV_WC_GENERAL_ERR;
    EXPECT_EQ(read(sender.socket, &status, sizeof(status)),
              static_cast<ssize_t>(sizeof(status)));
    return status;
  }
  // Lets all end by themselves.
  void End() {
    for (Child& child : children_) {
      const Introduction end = {};
      EXPECT_EQ(write(child.socket, &end, sizeof(end)),
                static_cast<ssize_t>(sizeof(end)));
      int status = 0;
      EXPECT_EQ(waitpid(child.pid, &status, 0), child.pid);
      EXPECT_EQ(status, 0);
      close(child.socket);
      child.pid = 0;
    }
    children_.clear();
  }
  // What rxe-user explain says of all recordings.
  std::string Explain() const { return RunTool("explain" + files_); }

  std::string folder_;
  std::string files_;  // the recordings, as arguments
  std::vector<Child> children_;
};

TEST_F(IncastTest, AFullReceiveBufferIsTheCauseOfStatus12) {
  ConnectOptions impatient;
  // 1.1 s: long enough for one sender at a time, also on a busy machine.
  impatient.timeout = 18;
  impatient.retry_cnt = 0;
  StartAll(impatient);
  ASSERT_FALSE(HasFatalFailure());
  // Alone, each succeeds, and its path's window grows.
  for (size_t i = 1; i < children_.size(); ++i) {
    LetWrite(children_[i]);
    EXPECT_EQ(StatusOf(children_[i]), IBV_WC_SUCCESS);
  }
  // The receiver gets no core until all but one have given up.
  ASSERT_EQ(kill(children_[0].pid, SIGSTOP), 0);
  int stopped = 0;
  ASSERT_EQ(waitpid(children_[0].pid, &stopped, WUNTRACED), children_[0].pid);
  ASSERT_TRUE(WIFSTOPPED(stopped));
  const size_t last = children_.size() - 1;
  for (size_t i = 1; i < last; ++i) LetWrite(children_[i]);
  for (size_t i = 1; i < last; ++i) {
    EXPECT_EQ(StatusOf(children_[i]), IBV_WC_RETRY_EXC_ERR);
  }
  EXPECT_GT(Dropped(), 0u);
  ASSERT_EQ(kill(children_[0].pid, SIGCONT), 0);
  // With the first packet of the last sender, the receiver learns what was
  // dropped before.
  LetWrite(children_[last]);
  EXPECT_EQ(StatusOf(children_[last]), IBV_WC_SUCCESS);
  End();
  const std::string text = Explain();
  const auto count = [&text](std::string_view what) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != text.npos; ++at) ++n;
    return n;
  };
  EXPECT_GT(count("whose receive buffer was full"), 0u) << text;
  EXPECT_GT(count("process read too late: packets for it waited"), 0u) << text;
  EXPECT_EQ(count("packets are lost on the way"), 0u) << text;
}

// The same without the fault.
TEST_F(IncastTest, ExplainSaysNothingWhereOneSendsAfterTheOther) {
  ConnectOptions options;
  options.timeout = 20;  // 4.3 s: also of a busy machine
  StartAll(options);
  ASSERT_FALSE(HasFatalFailure());
  for (size_t i = 1; i + 1 < children_.size(); ++i) {
    LetWrite(children_[i]);
    EXPECT_EQ(StatusOf(children_[i]), IBV_WC_SUCCESS);
  }
  EXPECT_EQ(Dropped(), 0u);
  End();
  EXPECT_EQ(Explain(), "");
}

}  // namespace
}  // namespace conformance
