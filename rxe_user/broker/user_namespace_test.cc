// Users that have no ID in the observer's user namespace, as in rootless
// containers that share a network namespace.
#include "rxe_user/testing/user_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/container_socket.h"
#include "rxe_user/broker/raw_client.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"

namespace rxe_user::broker {
namespace {

constexpr uid_t kOverflow = 65534;

// Makes a process enter, as `uid`, a user namespace that maps only this user,
// to `inside`.
std::function<void()> AsContainer(uid_t uid, uid_t inside) {
  return [uid, inside] {
    Become(uid);
    if (!EnterUserNamespace(inside)) _exit(9);
  };
}

// The output of `run` in a child process.
std::string InChild(const std::function<std::string()>& run) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = run();
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char text[1024];
  for (ssize_t n; (n = read(ends[0], text, sizeof(text))) > 0;) {
    said.append(text, static_cast<size_t>(n));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return said;
}

class UserNamespaceTest : public BrokerTest {
 protected:
  void SetUp() override {
    if (!Root()) GTEST_SKIP() << "needs root";
    BrokerTest::SetUp();
    broker_.emplace();
  }
  void TearDown() override {
    if (!Root()) return;
    broker_.reset();
    BrokerTest::TearDown();
  }
  std::optional<PublicBroker> broker_;
};

TEST_F(UserNamespaceTest, ProcessesOfOneContainerShareThePort) {
  Peer first({}, AsContainer(kSomebody, 0));
  ASSERT_EQ(first.Start(), "");
  Peer second({}, AsContainer(kSomebody, 0));
  ASSERT_EQ(second.Start(), "");
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(first.slot()));
  EXPECT_TRUE(asker.AskOnce(second.slot()));
}

// To a client that is user 65534, every unmapped user looks like its own.
TEST_F(UserNamespaceTest, ABrokerOfAnUnmappedUserIsNotTrusted) {
  Peer other({}, [] { Become(kSomebody); });
  ASSERT_EQ(other.Start(), "");
  for (const uid_t inside : {kOverflow, uid_t{0}, uid_t{1000}}) {
    const std::string error = InChild([inside] {
      AsContainer(kAnother, inside)();
      ucred who;
      const absl::Status found = FindBroker(&who);
      return absl::IsPermissionDenied(found) ? std::string(found.message())
                                             : "trusted";
    });
    EXPECT_NE(error.find("has no ID in this user namespace"), std::string::npos)
        << error;
    EXPECT_NE(error.find("process " + std::to_string(BrokerPid())),
              std::string::npos)
        << error;
  }
}

// A container's root serves all users of the container, and no others.
TEST_F(UserNamespaceTest, AContainersBrokerDoesNotServeUnmappedUsers) {
  Peer container({}, AsContainer(kSomebody, 0));
  ASSERT_EQ(container.Start(), "");
  const std::string answer = InChild([] {
    Become(kAnother);
    std::string said = "no answer";
    // Retries, since the broker refuses at once, and a client whose Hello comes
    // too late cannot read the reply.
    (void)Eventually([&] {
      RawClient client;
      if (client.connected() && client.Greet() != 0) {
        said = "served";
      } else if (client.refusal() == Refusal::kUser) {
        said = "refused";
      }
      return said != "no answer";
    });
    return said;
  });
  EXPECT_EQ(answer, "refused");
}

// A broker of the overflow user could not tell its own user from others, so
// there is none.
TEST_F(UserNamespaceTest, TheOverflowUserOwnsThePortAlone) {
  Peer nobody({}, AsContainer(kSomebody, kOverflow));
  ASSERT_EQ(nobody.Start(), "");
  EXPECT_EQ(BrokerPid(), 0);
  EXPECT_TRUE(Asker().AskOnce(nobody.slot()));
  Peer second({}, AsContainer(kSomebody, kOverflow));
  const std::string error = second.Start();
  EXPECT_NE(error.find("user 65534"), std::string::npos) << error;
  EXPECT_NE(error.find("is taken"), std::string::npos) << error;
}

// Root's broker, started by hand, with a /run of the test's own.
class StayingBrokerTest : public UserNamespaceTest {
 protected:
  void SetUp() override {
    UserNamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(mount("none", "/run", "tmpfs", 0, "mode=0755"), 0);
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char* const path = getenv("RXE_USER_BROKER");
      execl(path, path, "--stay", nullptr);
      _exit(9);
    }
    ASSERT_TRUE(Eventually([] {
      const SocketAddress address = ContainerSocket();
      const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET, 0));
      return address.size != 0 &&
             connect(fd.get(), address.get(), address.size) == 0;
    }));
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
      umount("/run");
    }
    UserNamespaceTest::TearDown();
  }
  pid_t child_ = 0;
};

TEST_F(StayingBrokerTest, RootsBrokerServesRootlessContainers) {
  Peer host;
  ASSERT_EQ(host.Start(), "");
  Peer root({}, AsContainer(kSomebody, 0));
  EXPECT_EQ(root.Start(), "");
  Peer user({}, AsContainer(kAnother, 1000));
  EXPECT_EQ(user.Start(), "");
  Peer nobody({}, AsContainer(kAnother, kOverflow));
  EXPECT_EQ(nobody.Start(), "");
  EXPECT_EQ(BrokerPid(), child_);
  Asker asker;
  for (const Peer* peer : {&host, &root, &user, &nobody}) {
    EXPECT_TRUE(asker.AskOnce(peer->slot()));
  }
  const std::string found = InChild([] {
    AsContainer(kSomebody, 0)();
    return std::string(PortAvailable({Ip("127.0.0.1")}).message());
  });
  EXPECT_EQ(found, "");
}

// A folder that other users can write proves nothing.
TEST_F(StayingBrokerTest, AFolderThatOthersCanWriteIsNotTrusted) {
  for (const char* folder : {"/run/rxe_user", "/run"}) {
    ASSERT_EQ(chmod(folder, 0777), 0) << folder;
    Peer container({}, AsContainer(kSomebody, 0));
    const std::string error = container.Start();
    EXPECT_NE(error.find("has no ID in this user namespace"), std::string::npos)
        << error;
    EXPECT_NE(error.find("/run/rxe_user"), std::string::npos) << error;
    ASSERT_EQ(chmod(folder, 0755), 0);
  }
}

TEST_F(StayingBrokerTest, ContainersComeBackToItsSuccessor) {
  Peer container({}, AsContainer(kSomebody, 0));
  ASSERT_EQ(container.Start(), "");
  Peer host;
  ASSERT_EQ(host.Start(), "");
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(container.slot()));
  // The broker that the host's process starts next does not stay.
  kill(child_, SIGKILL);
  ASSERT_TRUE(Eventually([this] {
    const pid_t now = BrokerPid();
    return now != 0 && now != child_;
  }));
  Peer late({}, AsContainer(kAnother, 0));
  EXPECT_EQ(late.Start(), "");
  EXPECT_TRUE(asker.Ask(container.slot()));
  EXPECT_TRUE(asker.Ask(late.slot()));
}

}  // namespace
}  // namespace rxe_user::broker
