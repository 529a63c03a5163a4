// Systems that refuse the steering program, or accept and ignore it.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <set>
#include <string>

#include "rxe_user/base/high_fd.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user::broker {
namespace {

constexpr int kIgnored = 0;

// `before` of a Peer: makes the system refuse steering before the process takes
// a slot.
std::function<void()> Refusing(int error) {
  return [error] {
    if (!RefuseSteering(error)) _exit(9);
  };
}

class NoSteeringTest : public BrokerTest,
                       public testing::WithParamInterface<int> {};

TEST_P(NoSteeringTest, TheFirstProcessAtAnAddressOwnsThePort) {
  Peer first({}, Refusing(GetParam()));
  ASSERT_EQ(first.Start(), "");
  EXPECT_EQ(BrokerPid(), 0);
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(first.slot()));

  // Each process gets an error that says what to do, even if only the first one
  // is refused steering.
  for (const std::function<void()>& before :
       {Refusing(GetParam()), std::function<void()>()}) {
    Peer second({}, before);
    const std::string error = second.Start();
    for (const std::string& part :
         {std::string("UDP port 4791 of 127.0.0.1 is taken"),
          "process " + std::to_string(first.pid()),
          std::string("use another address or network namespace")}) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
    if (before) {
      EXPECT_NE(error.find("cannot be shared"), std::string::npos) << error;
    }
  }
  EXPECT_TRUE(asker.AskOnce(first.slot()));

  Peer elsewhere({{Ip("127.0.0.2"), 0}}, Refusing(GetParam()));
  EXPECT_EQ(elsewhere.Start(), "");
  EXPECT_TRUE(Asker(Ip("127.0.0.2")).AskOnce(elsewhere.slot()));

  first.Kill();
  Peer next({}, Refusing(GetParam()));
  EXPECT_EQ(next.Start(), "");
  EXPECT_TRUE(asker.AskOnce(next.slot()));
}

INSTANTIATE_TEST_SUITE_P(, NoSteeringTest,
                         testing::Values(EPERM, ENOPROTOOPT, kIgnored));

// The stderr output of a process that runs `refuse`, takes a slot and opens an
// address.
std::string SaidBy(const std::function<void()>& refuse) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    refuse();
    const auto slot = Slot::Acquire();
    if (!slot.ok()) _exit(1);
    const bool opened = (*slot)->OpenAddress({Ip("127.0.0.1"), 0}).ok();
    // A second device of the process does not print the line again.
    const auto second = Slot::Acquire();
    _exit(opened && second.ok() &&
                  (*second)->OpenAddress({Ip("127.0.0.1"), 0}).ok()
              ? 0
              : 2);
  }
  close(ends[1]);
  std::string said;
  char text[1024];
  for (ssize_t n; (n = read(ends[0], text, sizeof(text))) > 0;) {
    said.append(text, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 ? said : "status " + std::to_string(status) + ": " + said;
}

constexpr char kAlone[] =
    "; so this process owns UDP port 4791 exclusively, and no other can use it "
    "meanwhile\n";

// The open descriptors below kFirstHighFd.
std::set<int> LowDescriptors() {
  std::set<int> open;
  for (int fd = 0; fd < kFirstHighFd; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) open.insert(fd);
  }
  return open;
}

using NoSteeringLineTest = BrokerTest;

TEST_F(NoSteeringLineTest, OneLineSaysWhy) {
  EXPECT_EQ(SaidBy(Refusing(EPERM)),
            std::string("rxe_user: UDP port 4791 cannot be shared among "
                        "processes: the system refuses to steer its datagrams "
                        "(SO_ATTACH_REUSEPORT_CBPF: Operation not permitted)") +
                kAlone);
  EXPECT_EQ(SaidBy(Refusing(kIgnored)),
            std::string("rxe_user: UDP port 4791 cannot be shared among "
                        "processes: the system ignores the program that steers "
                        "its datagrams (SO_ATTACH_REUSEPORT_CBPF)") +
                kAlone);
  EXPECT_EQ(SaidBy([] {}), "");
}

// This includes the descriptors of an address that the process owns alone.
TEST_F(NoSteeringLineTest, DescriptorsHaveHighNumbers) {
  const pid_t child = fork();
  if (child == 0) {
    Refusing(EPERM)();
    const std::set<int> before = LowDescriptors();
    const auto slot = Slot::Acquire();
    if (!slot.ok() || !(*slot)->OpenAddress({Ip("127.0.0.1"), 0}).ok()) {
      _exit(1);
    }
    _exit(LowDescriptors() == before ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// As under qemu-user.
TEST_F(NoSteeringLineTest, TheBrokerStartsWhereCloneNeedsAnExitSignal) {
  EXPECT_EQ(SaidBy([] {
              if (!RefuseCloneWithoutSignal(EINVAL)) _exit(9);
            }),
            "");
  EXPECT_NE(BrokerPid(), 0);
}

// The error names the missing file, not the broker.
TEST_F(NoSteeringLineTest, MissingDevNullIsNamed) {
  if (!Root()) GTEST_SKIP() << "needs root";
  const std::string said = SaidBy([] {
    if (!RefuseCall(SYS_openat, ENOENT)) _exit(9);
  });
  EXPECT_NE(said.find("cannot open /dev/null: No such file or directory"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace rxe_user::broker
