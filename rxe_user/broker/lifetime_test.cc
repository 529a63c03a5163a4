// How brokers start and end, and which users they serve.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"

namespace rxe_user::broker {
namespace {

using LifetimeTest = BrokerTest;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

std::vector<std::string> Descriptors(const std::string& process) {
  std::vector<std::string> out;
  DIR* d = opendir(("/proc/" + process + "/fd").c_str());
  const int own = dirfd(d);
  while (const dirent* e = readdir(d)) {
    if (e->d_name[0] == '.' || std::to_string(own) == e->d_name) continue;
    char target[256];
    const ssize_t n =
        readlink(("/proc/" + process + "/fd/" + e->d_name).c_str(), target,
                 sizeof(target));
    if (n > 0) {
      out.push_back(std::string(e->d_name) + " " +
                    std::string(target, static_cast<size_t>(n)));
    }
  }
  closedir(d);
  return out;
}

TEST_F(LifetimeTest, NothingIsLeftAfterTheLastClient) {
  pid_t broker = 0;
  {
    Peer peer;
    ASSERT_EQ(peer.Start(), "");
    broker = BrokerPid();
    ASSERT_GT(broker, 0);
    EXPECT_TRUE(NameExists());
    EXPECT_GT(PortSockets(), 0);
  }
  EXPECT_TRUE(Eventually([&] { return ProcessGone(broker); }));
  EXPECT_FALSE(NameExists());
  EXPECT_EQ(PortSockets(), 0);
}

std::atomic<int> child_signals{0};

TEST_F(LifetimeTest, ApplicationSeesNoChildNoSignalAndNoDescriptor) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++child_signals; };
  sigaction(SIGCHLD, &action, &before);
  const auto descriptors = Descriptors("self");
  pid_t broker = 0;
  {
    auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok());
    broker = BrokerPid();
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
    EXPECT_EQ(errno, ECHILD);
    for (const std::string& fd : Descriptors("self")) {
      if (std::count(descriptors.begin(), descriptors.end(), fd) != 0) continue;
      EXPECT_TRUE(fcntl(std::atoi(fd.c_str()), F_GETFD) & FD_CLOEXEC) << fd;
    }
    kill(broker, SIGKILL);
    ASSERT_TRUE(Eventually([&] {
      (*slot)->OnReadable([](const Stray&) {});
      const pid_t now = BrokerPid();
      return now != 0 && now != broker;
    }));
    broker = BrokerPid();
  }
  EXPECT_TRUE(Eventually([&] { return ProcessGone(broker); }));
  EXPECT_EQ(child_signals, 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
  EXPECT_EQ(Descriptors("self"), descriptors);
  sigaction(SIGCHLD, &before, nullptr);
}

TEST_F(LifetimeTest, BrokerInheritsNothing) {
  setenv("UNRELATED_SECRET", "x", 1);
  UniqueFd leak(open("/etc/passwd", O_RDONLY));  // not close-on-exec
  sigset_t blocked, old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &old);
  signal(SIGHUP, SIG_IGN);
  auto slot = Slot::Acquire();
  sigprocmask(SIG_SETMASK, &old, nullptr);
  signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(slot.ok());
  const std::string broker = std::to_string(BrokerPid());
  for (const std::string& fd : Descriptors(broker)) {
    const std::string number = fd.substr(0, fd.find(' '));
    const std::string target = fd.substr(fd.find(' ') + 1);
    if (number.size() == 1 && number[0] <= '2') {
      EXPECT_EQ(target, "/dev/null");
    } else {
      EXPECT_TRUE(target.starts_with("socket:") ||
                  target.starts_with("/memfd:rxe-user-ledger") ||
                  target == "anon_inode:[eventpoll]" ||
                  target == "anon_inode:[eventfd]" ||
                  target == "anon_inode:[timerfd]")
          << fd;
    }
  }
  char cwd[256];
  EXPECT_EQ(readlink(("/proc/" + broker + "/cwd").c_str(), cwd, sizeof(cwd)),
            1);
  EXPECT_NE(getsid(BrokerPid()), getsid(0));
  const std::string status = ReadAll("/proc/" + broker + "/status");
  EXPECT_NE(status.find("SigBlk:\t0000000000000000"), std::string::npos);
  EXPECT_EQ(ReadAll("/proc/" + broker + "/environ").find("UNRELATED"),
            std::string::npos);
  EXPECT_EQ(ReadAll("/proc/" + broker + "/comm"), "rxe-user-port-b\n");
  unsetenv("UNRELATED_SECRET");
}

TEST_F(LifetimeTest, RacingStartersShareOneBroker) {
  for (int round = 0; round < 5; ++round) {
    std::vector<Peer> peers;
    for (int i = 0; i < 8; ++i) peers.emplace_back();
    std::set<uint16_t> slots;
    for (Peer& p : peers) {
      ASSERT_EQ(p.Start(), "");
      EXPECT_TRUE(slots.insert(p.slot()).second);
    }
    EXPECT_EQ(PortSockets(), 9);
    Asker asker;
    for (const Peer& p : peers) EXPECT_TRUE(asker.AskOnce(p.slot()));
    peers.clear();
    ASSERT_TRUE(Eventually([] { return !NameExists(); }));
  }
}

TEST_F(LifetimeTest, ThreadsOfAProcessGetDistinctSlots) {
  std::vector<std::unique_ptr<Slot>> slots(8);
  std::vector<std::thread> threads;
  for (auto& slot : slots) {
    threads.emplace_back([&slot] {
      auto acquired = Slot::Acquire();
      if (acquired.ok()) slot = *std::move(acquired);
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<uint16_t> numbers;
  for (const auto& slot : slots) {
    ASSERT_NE(slot, nullptr);
    EXPECT_TRUE(numbers.insert(slot->number()).second);
  }
}

TEST_F(LifetimeTest, ConnectingWhileTheBrokerEndsSucceeds) {
  setenv("RXE_USER_BROKER_LINGER_MS", "0", 1);
  std::set<pid_t> brokers;
  for (int i = 0; i < 150; ++i) {
    auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok()) << slot.status();
    const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
    ASSERT_TRUE(fd.ok()) << fd.status();
    close(*fd);
  }
}

TEST_F(LifetimeTest, WithoutABrokerOneProcessOwnsThePort) {
  const std::string broker = getenv("RXE_USER_BROKER");
  setenv("RXE_USER_BROKER", "/nonexistent/rxe-user-port-broker", 1);
  {
    testing::internal::CaptureStderr();
    auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok());
    EXPECT_NE((*slot)->number(), 0);
    EXPECT_EQ((*slot)->fd(), -1);
    const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("/nonexistent/rxe-user-port-broker"), std::string::npos)
        << said;
    ASSERT_TRUE(fd.ok()) << fd.status();
    // A second device of the process shares the slot.
    auto second = Slot::Acquire();
    ASSERT_TRUE(second.ok());
    EXPECT_EQ((*second)->number(), (*slot)->number());
    const auto again = (*second)->OpenAddress({Ip("127.0.0.1")});
    ASSERT_TRUE(again.ok());
    const auto close_copies = [&] {
      close(*fd);
      close(*again);
    };
    Peer other({}, close_copies);
    const std::string error = other.Start();
    EXPECT_NE(error.find("process " + std::to_string(getpid())),
              std::string::npos)
        << error;
    // A process with a broker cannot take this process's datagrams either.
    setenv("RXE_USER_BROKER", broker.c_str(), 1);
    Peer third({}, close_copies);
    EXPECT_NE(third.Start().find("process " + std::to_string(getpid())),
              std::string::npos);
    close_copies();
  }
  setenv("RXE_USER_BROKER", broker.c_str(), 1);
}

uid_t UidOf(pid_t pid) {
  struct stat s {};
  return stat(("/proc/" + std::to_string(pid)).c_str(), &s) == 0 ? s.st_uid
                                                                 : ~uid_t{0};
}

TEST_F(LifetimeTest, RootsBrokerServesEveryUser) {
  if (!Root()) GTEST_SKIP() << "needs root";
  const PublicBroker broker;
  Peer root;
  ASSERT_EQ(root.Start(), "");
  Peer user({}, [] { Become(kSomebody); });
  ASSERT_EQ(user.Start(), "");
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(root.slot()));
  EXPECT_TRUE(asker.AskOnce(user.slot()));
  // A socket of which another user may have kept a copy is not lent again.
  const int sockets = PortSockets();
  user.Kill();
  Peer another({}, [] { Become(kAnother); });
  ASSERT_EQ(another.Start(), "");
  EXPECT_EQ(PortSockets(), sockets + 1);
  Peer again({}, [] { Become(kSomebody); });
  ASSERT_EQ(again.Start(), "");
  EXPECT_EQ(PortSockets(), sockets + 1);
  // Users leave it to root to start the next broker, which serves them again.
  const pid_t old = KillBroker();
  ASSERT_TRUE(Eventually([&] {
    const pid_t now = BrokerPid();
    return now != 0 && now != old;
  }));
  EXPECT_EQ(UidOf(BrokerPid()), 0u);
  Peer last({}, [] { Become(kSomebody); });
  ASSERT_EQ(last.Start(), "");
  EXPECT_TRUE(asker.Ask(last.slot()));
  for (const Peer* p : {&root, &another, &again}) {
    EXPECT_TRUE(asker.Ask(p->slot()));
  }
}

// They start one themselves if root does not.
TEST_F(LifetimeTest, CallsWaitForRootsNextBroker) {
  if (!Root()) GTEST_SKIP() << "needs root";
  const PublicBroker broker;
  const auto become_somebody = [] {
    return setresuid(kSomebody, kSomebody, 0) == 0;
  };
  const auto become_root = [] { return setresuid(0, 0, 0) == 0; };
  {
    const auto first = Slot::Acquire();  // starts root's broker
    ASSERT_TRUE(first.ok()) << first.status();
  }
  ASSERT_TRUE(become_somebody());
  const auto slot = Slot::Acquire();
  ASSERT_TRUE(become_root());
  ASSERT_TRUE(slot.ok()) << slot.status();
  KillBroker();
  ASSERT_TRUE(Eventually([] { return !NameExists(); }));
  ASSERT_TRUE(become_somebody());
  const auto opened = (*slot)->OpenAddress({Ip("127.0.0.2")});
  ASSERT_TRUE(become_root());
  ASSERT_TRUE(opened.ok()) << opened.status();
  close(*opened);
  EXPECT_EQ(UidOf(BrokerPid()), kSomebody);
}

TEST_F(LifetimeTest, UsersBrokerIsNotTrustedByOthers) {
  if (!Root()) GTEST_SKIP() << "needs root";
  const PublicBroker program;
  Peer user({}, [] { Become(kSomebody); });
  ASSERT_EQ(user.Start(), "");
  const pid_t broker = BrokerPid();
  for (const uid_t uid : {uid_t{0}, kAnother}) {
    Peer other({}, [uid] {
      if (uid != 0) Become(uid);
    });
    const std::string error = other.Start();
    EXPECT_NE(error.find("user " + std::to_string(kSomebody)),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("process " + std::to_string(broker)),
              std::string::npos)
        << error;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(PortAvailable({Ip("127.0.0.1")})));
  // The same user shares the port.
  Peer same({}, [] { Become(kSomebody); });
  EXPECT_EQ(same.Start(), "");
}

// Programs of several users run one after another: the last one's broker still
// runs, but is idle.
TEST_F(LifetimeTest, AUsersIdleBrokerEndsForOthers) {
  if (!Root()) GTEST_SKIP() << "needs root";
  setenv("RXE_USER_BROKER_LINGER_MS", "60000", 1);
  const PublicBroker program;
  for (const uid_t uid : {kSomebody, uid_t{0}, kSomebody, kAnother}) {
    if (uid == 0) {
      EXPECT_TRUE(PortAvailable({Ip("127.0.0.1")}).ok());
    }
    Peer peer({}, [uid] {
      if (uid != 0) Become(uid);
    });
    ASSERT_EQ(peer.Start(), "");
    peer.Kill();
    // Root's broker stays, since it serves all users.
    if (uid == 0) KillBroker();
  }
  KillBroker();
}

}  // namespace
}  // namespace rxe_user::broker
