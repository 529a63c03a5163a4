// A setuid program ignores its caller's environment, and so does the broker
// that it starts. The test makes a setuid copy of itself, which runs with the
// rights of an ordinary user.
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rxe_user/base/settings.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/devices/device.h"

namespace rxe_user::broker {
namespace {

constexpr char kSecureArgument[] = "--as-a-secure-program";
constexpr uid_t kOwner = 12345;
constexpr char kSecret[] = "root:secret";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

// Run by the setuid copy: uses everything that reads environment variables, and
// prints the results on stdout.
int RunAsSecureProgram() {
  if (getauxval(AT_SECURE) == 0) return 3;
  const auto devices = ListDevices();
  std::printf("devices %zu\n", devices.ok() ? devices->size() : 0);
  std::printf("spin %lld\n", static_cast<long long>(HelperSpin()));
  const auto slot = Slot::Acquire();
  if (!slot.ok()) return 4;
  std::printf("broker %d\n", BrokerPid());
  std::fflush(stdout);
  char byte;
  (void)!read(0, &byte, 1);  // until the test has inspected the broker
  // A leak check cannot inspect a secure program.
  _exit(0);
}

class SecureProgramTest : public BrokerTest {
 protected:
  void SetUp() override {
    if (!Root()) GTEST_SKIP() << "needs root";
    BrokerTest::SetUp();
    char folder[] = "/tmp/rxe_user_secure_XXXXXX";
    folder_ = mkdtemp(folder);
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
    for (const char* part : {"bin", "libexec"}) {
      std::filesystem::create_directory(folder_ / part);
    }
    program_ = folder_ / "bin/program";
    std::filesystem::copy_file("/proc/self/exe", program_);
    ASSERT_EQ(chown(program_.c_str(), kOwner, kOwner), 0);
    ASSERT_EQ(chmod(program_.c_str(), 04755), 0);
    std::filesystem::copy_file(std::getenv("RXE_USER_BROKER"),
                               folder_ / "libexec/rxe-user-port-broker");
  }
  void TearDown() override {
    if (folder_.empty()) return;
    std::filesystem::remove_all(folder_);
    BrokerTest::TearDown();
  }

  std::filesystem::path folder_;
  std::filesystem::path program_;
};

TEST_F(SecureProgramTest, IgnoresTheEnvironment) {
  const std::string secret = folder_ / "secret";
  std::ofstream(secret) << kSecret << "\n";
  setenv("RXE_USER_DEVICES", secret.c_str(), 1);
  setenv("RXE_USER_SPIN_US", "77", 1);
  setenv("RXE_USER_UNKNOWN", "77", 1);
  const std::string before = getenv("RXE_USER_BROKER");
  setenv("RXE_USER_BROKER", "/bin/false", 1);
  int in[2], out[2];
  ASSERT_EQ(pipe2(in, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(out[1], 2);
    execl(program_.c_str(), program_.c_str(), kSecureArgument, nullptr);
    _exit(9);
  }
  close(in[0]);
  close(out[1]);
  std::string said;
  char byte;
  while (said.find("broker ") == std::string::npos || said.back() != '\n') {
    if (read(out[0], &byte, 1) != 1) break;
    said += byte;
  }
  EXPECT_NE(said.find("devices 1\n"), std::string::npos) << said;
  EXPECT_NE(said.find("spin 0\n"), std::string::npos) << said;
  EXPECT_EQ(said.find(kSecret), std::string::npos) << said;
  EXPECT_EQ(said.find("UNKNOWN"), std::string::npos) << said;
  const size_t at = said.find("broker ");
  ASSERT_NE(at, std::string::npos) << said;
  const std::string broker = std::to_string(std::atoi(said.c_str() + at + 7));
  EXPECT_EQ(ReadAll("/proc/" + broker + "/comm"), "rxe-user-port-b\n");
  EXPECT_EQ(ReadAll("/proc/" + broker + "/environ"), "");
  // The program's caller cannot signal the broker: none of the broker's user
  // IDs is the caller's.
  const std::string owner = std::to_string(kOwner);
  EXPECT_NE(ReadAll("/proc/" + broker + "/status")
                .find("Uid:\t" + owner + "\t" + owner + "\t" + owner),
            std::string::npos);
  close(in[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  close(out[0]);
  setenv("RXE_USER_BROKER", before.c_str(), 1);
  for (const char* set :
       {"RXE_USER_DEVICES", "RXE_USER_SPIN_US", "RXE_USER_UNKNOWN"}) {
    unsetenv(set);
  }
  // The broker stays for the default time, since the test cannot set another
  // one.
  EXPECT_TRUE(
      Eventually([&] { return ProcessGone(std::atoi(broker.c_str())); }));
}

}  // namespace
}  // namespace rxe_user::broker

int main(int argc, char** argv) {
  if (argc == 2 &&
      std::strcmp(argv[1], rxe_user::broker::kSecureArgument) == 0) {
    return rxe_user::broker::RunAsSecureProgram();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
