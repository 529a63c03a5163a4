// Programs under rxe-user run access /sys and /dev.
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

struct Result {
  int exit_status = -1;  // -1: killed by a signal
  int signal = 0;
  std::string text;  // of both stdout and stderr
};

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path FromEnvironment(const char* variable) {
  const char* value = getenv(variable);
  EXPECT_NE(value, nullptr) << variable;
  return value != nullptr ? fs::absolute(value) : "";
}

// The parameter: as an ordinary user, or as the user of the test.
class ViewTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "programs that are not instrumented would load the library";
#endif
    if (GetParam() && geteuid() != 0) GTEST_SKIP() << "needs root";
    char name[] = "/tmp/view_test_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    fs::permissions(root_, fs::perms(0755));
    Install("bin", "CLI");
    Install("lib", "VIEW");
    Install("lib", "VERBS");
    Install("libexec", "BROKER");
    Install("bin", "EVERY_FUNCTION");
    Install("bin", "VERBS_AGREE");
    base_ = root_ / "run";
    ASSERT_EQ(mkdir(base_.c_str(), 0700), 0);
    if (GetParam()) {
      ASSERT_EQ(chown(base_.c_str(), kNobody, kNobody), 0);
    }
  }
  void TearDown() override {
    if (!root_.empty()) fs::remove_all(root_);
  }

  void Install(const char* folder, const char* variable) {
    const fs::path file = FromEnvironment(variable);
    fs::create_directories(root_ / folder);
    fs::copy_file(file, root_ / folder / file.filename());
    fs::permissions(root_ / folder / file.filename(), fs::perms(0755));
  }

  // Starts `rxe-user` with these arguments; its output goes to file `output`.
  pid_t Start(std::vector<std::string> argv, const std::string& output,
              const std::vector<std::string>& environment = {}) {
    argv.insert(argv.begin(), "rxe-user");
    const fs::path cli = root_ / "bin/rxe-user", text = root_ / output;
    const pid_t pid = fork();
    if (pid != 0) return pid;
    dup2(open(text.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 1);
    dup2(1, 2);
    if (GetParam() && (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 ||
                       setuid(kNobody) != 0)) {
      _exit(98);
    }
    setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
    setenv("LD_LIBRARY_PATH", "", 1);
    unsetenv("LD_PRELOAD");
    // Programs that are tests must not report to Bazel.
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    unsetenv("XML_OUTPUT_FILE");
    for (const std::string& e : environment) putenv(strdup(e.c_str()));
    std::vector<char*> pointers;
    for (std::string& s : argv) pointers.push_back(s.data());
    pointers.push_back(nullptr);
    execv(cli.c_str(), pointers.data());
    _exit(99);
  }
  Result Finish(pid_t pid, const std::string& output) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    Result r;
    if (WIFEXITED(status)) r.exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) r.signal = WTERMSIG(status);
    r.text = ReadAll(root_ / output);
    return r;
  }
  Result Execute(std::vector<std::string> argv,
                 const std::vector<std::string>& environment = {}) {
    return Finish(Start(std::move(argv), "out", environment), "out");
  }
  Result Shell(const std::string& script,
               const std::vector<std::string>& environment = {}) {
    return Execute({"run", "sh", "-c", script}, environment);
  }

  std::string Left() {
    std::string names;
    for (const auto& item : fs::directory_iterator(base_)) {
      names += item.path().filename().string() + "\n";
    }
    return names;
  }

  fs::path root_, base_;
};

INSTANTIATE_TEST_SUITE_P(Users, ViewTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Ordinary" : "Self";
                         });

TEST_P(ViewTest, ShellPrograms) {
  Result r = Shell(
      "set -e; cd /; d=/sys/class/infiniband/rxeu0\n"
      "ls /sys/class/infiniband; ls $d/device/net/\n"
      "cat $d/ports/1/state $d/ports/1/gids/0 $d/ports/1/gid_attrs/types/0\n"
      "cat $d/ports/1/gid_attrs/ndevs/0 /sys/class/infiniband_verbs/*/ibdev\n"
      "readlink -f $d/device; ls -l $d/ >/dev/null\n"
      "test -e /dev/infiniband/uverbs0; test -d $d; ! test -e $d/x\n"
      "find /sys/class/infiniband/rxeu0/ports -name link_layer\n"
      "cat $d/device/numa_node; cat $d/device/local_cpulist");
  EXPECT_EQ(r.text,
            "rxeu0\nlo\n"
            "4: ACTIVE\n0000:0000:0000:0000:0000:ffff:7f00:0001\nRoCE v2\n"
            "lo\nrxeu0\n"
            "/sys/devices/virtual/infiniband/rxeu0/device\n"
            "/sys/class/infiniband/rxeu0/ports/1/link_layer\n"
            "-1\n" +
                ReadAll("/sys/devices/system/cpu/online"));
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_EQ(Left(), "");
}

TEST_P(ViewTest, Python) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no python3";
  const Result r = Execute(
      {"run", "python3", "-c",
       "import glob, os, pathlib, subprocess\n"
       "c = '/sys/class/infiniband'\n"
       "print(os.listdir(c), os.path.exists('/dev/infiniband/rdma_cm'))\n"
       "print(glob.glob(c + '/*/ports/*/gids/0'))\n"
       "print(open(c + '/rxeu0/node_type').read(), end='')\n"
       "print(sorted(e.name for e in os.scandir(c + '/rxeu0/ports')))\n"
       "print(pathlib.Path(c + '/rxeu0').resolve())\n"
       "print(subprocess.check_output(['ls', c + '/rxeu0/device/net/']))\n"});
  EXPECT_EQ(r.text,
            "['rxeu0'] True\n['/sys/class/infiniband/rxeu0/ports/1/gids/0']\n"
            "1: CA\n['1']\n/sys/devices/virtual/infiniband/rxeu0\nb'lo\\n'\n");
  EXPECT_EQ(Left(), "");
}

TEST_P(ViewTest, EveryFunction) {
  const Result r =
      Execute({"run", (root_ / "bin/every_function").string(), "rxeu0"});
  EXPECT_EQ(r.text, "");
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_EQ(Left(), "");
}

TEST_P(ViewTest, VerbsAgree) {
  const Result r = Execute({"run", (root_ / "bin/verbs_agree").string()});
  EXPECT_EQ(r.exit_status, 0) << r.text;
  EXPECT_NE(r.text.find("[  PASSED  ] 4 tests"), std::string::npos) << r.text;
}

TEST_P(ViewTest, ManyAtOnce) {
  constexpr int kPrograms = 20;
  std::vector<pid_t> pids;
  for (int i = 0; i < kPrograms; ++i) {
    pids.push_back(
        Start({"run", "sh", "-c",
               "for i in 1 2; do cat /sys/class/infiniband/rxeu0/node_type "
               "/sys/class/infiniband/rxeu0/ports/1/*/port_xmit_data; done"},
              "out" + std::to_string(i)));
  }
  for (int i = 0; i < kPrograms; ++i) {
    const Result r =
        Finish(pids[static_cast<size_t>(i)], "out" + std::to_string(i));
    EXPECT_EQ(r.text, "1: CA\n0\n1: CA\n0\n");
    EXPECT_EQ(r.exit_status, 0);
  }
  EXPECT_EQ(Left(), "");
}

TEST_P(ViewTest, EndsAreTheCommandsOwn) {
  EXPECT_EQ(Shell("test -e /sys/class/infiniband/rxeu0; exit 42").exit_status,
            42);
  const Result r = Shell("test -e /sys/class/infiniband/rxeu0; kill -KILL $$");
  EXPECT_EQ(r.signal, SIGKILL);
  // The killed program could not clean up; the creator of the next tree does.
  EXPECT_NE(Left(), "");
  EXPECT_EQ(
      Shell("test -e /sys/class/infiniband/mine", {"RXE_USER_DEVICES=mine=lo"})
          .exit_status,
      0);
  EXPECT_EQ(Left(), "");
}

TEST_P(ViewTest, WhateverTheUmask) {
  for (const char* umask : {"0177", "0777"}) {
    EXPECT_EQ(Shell("umask " + std::string(umask) +
                    "; cat /sys/class/infiniband/rxeu0/node_type")
                  .text,
              "1: CA\n")
        << umask;
    EXPECT_EQ(Left(), "") << umask;
  }
}

TEST_P(ViewTest, WhereTheRootIsReadOnly) {
  if (geteuid() != 0 || GetParam()) GTEST_SKIP() << "needs root";
  const Result r =
      Execute({"run", "unshare", "--mount", "sh", "-c",
               "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && "
               "cat /sys/class/infiniband/rxeu0/node_type"},
              {"XDG_RUNTIME_DIR="});
  EXPECT_EQ(r.text, "1: CA\n");
}

// Signals still interrupt the program while the view is created.
TEST_P(ViewTest, SignalsDoNotWaitForIt) {
  fs::permissions(root_ / "bin", fs::perms(0777));
  const auto start = std::chrono::steady_clock::now();
  const Result r = Shell(
      "cd " + (root_ / "bin").string() +
      "; mv rxe-user away; printf '#!/bin/sh\\nexec sleep 20\\n' > rxe-user; "
      "chmod 755 rxe-user; timeout 1 cat /sys/class/infiniband/x; echo $?");
  EXPECT_EQ(r.text, "124\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_P(ViewTest, NamesFollowTheSetting) {
  EXPECT_EQ(Shell("ls /sys/class/infiniband; "
                  "export RXE_USER_DEVICES=other=lo; ls /sys/class/infiniband",
                  {"RXE_USER_DEVICES=mlx5_0=lo"})
                .text,
            "mlx5_0\nother\n");
  EXPECT_EQ(Left(), "");
}

TEST_P(ViewTest, CanBeLeftOut) {
  if (fs::exists("/sys/class/infiniband")) GTEST_SKIP() << "there is RDMA";
  EXPECT_NE(
      Execute({"run", "--no-view", "ls", "/sys/class/infiniband"}).exit_status,
      0);
  EXPECT_EQ(
      Execute({"run", "--no-view", "--", "sh", "-c", "echo $LD_PRELOAD"}).text,
      "\n");
}

TEST_P(ViewTest, WithoutItsPartsTheCommandRuns) {
  if (fs::exists("/sys/class/infiniband")) GTEST_SKIP() << "there is RDMA";
  fs::rename(root_ / "lib/librxe_user_view.so", root_ / "away");
  EXPECT_EQ(Shell("echo hello").text, "hello\n");
  fs::rename(root_ / "away", root_ / "lib/librxe_user_view.so");
  fs::permissions(root_ / "bin", fs::perms(0777));
  EXPECT_EQ(Shell("cd " + (root_ / "bin").string() +
                  "; mv rxe-user away; test -e /sys/class/infiniband; echo $?")
                .text,
            "1\n");
}

TEST_P(ViewTest, OtherPreloadedLibrariesStay) {
  const Result r = Shell("echo $LD_PRELOAD; cat /sys/class/infiniband/*/hw_rev",
                         {"LD_PRELOAD=libm.so.6"});
  EXPECT_EQ(r.text, "libm.so.6:" +
                        (root_ / "lib/librxe_user_view.so").string() + "\n0\n");
}

// Threads that use the view, and threads that are started later.
constexpr char kThreads[] = R"(
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
void* look(void* result) {
  char text[16];
  int fd = open("/sys/class/infiniband/rxeu0/node_type", O_RDONLY);
  if (read(fd, text, sizeof(text)) != 6) *(int*)result = 1;
  close(fd);
  return 0;
}
int main(void) {
  int results[4] = {0};
  pthread_t threads[4];
  for (int round = 0; round < 2; ++round) {
    look(&results[0]);
    for (int i = 0; i < 4; ++i) {
      pthread_create(&threads[i], 0, look, &results[i]);
    }
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], 0);
  }
  return results[0] + results[1] + results[2] + results[3];
}
)";

TEST_P(ViewTest, ProgramsWithSanitizers) {
  const fs::path source = root_ / "threads.c", program = root_ / "threads";
  std::ofstream(source) << kThreads;
  for (const std::string sanitizer : {"address", "thread"}) {
    if (system(("gcc -pthread -fsanitize=" + sanitizer + " -o " +
                program.string() + " " + source.string() + " 2>/dev/null")
                   .c_str()) != 0) {
      GTEST_SKIP() << "no gcc with this sanitizer: " << sanitizer;
    }
    const Result r = Shell(program.string());
    EXPECT_EQ(r.text, "") << sanitizer;
    EXPECT_EQ(r.exit_status, 0) << sanitizer;
  }
  // Existing AddressSanitizer options are kept.
  const Result r = Execute({"run", "sh", "-c", "echo $ASAN_OPTIONS"},
                           {"ASAN_OPTIONS=detect_leaks=0"});
  EXPECT_EQ(r.text, "detect_leaks=0:verify_asan_link_order=0\n");
}

// The purpose of the index: a node with many containers. All tests share the
// interfaces, since the kernel takes seconds to create and remove them.
class ManyDevicesTest : public ViewTest {
 protected:
  static constexpr int kDevices = 1000;

  static void SetUpTestSuite() {
    std::ostringstream links;
    for (int i = 0; i < kDevices; i += 2) {
      const std::string a = "many" + std::to_string(i),
                        b = "many" + std::to_string(i + 1);
      links << "link add " << a << " type veth peer name " << b << "\n";
      for (int k = i; k < i + 2; ++k) {
        links << "link set many" << k << " addrgenmode none up\naddr add 10.9."
              << k / 250 << "." << k % 250 + 1 << "/32 dev many" << k << "\n";
      }
    }
    made_ = Ip("-batch", links.str());
  }
  static void TearDownTestSuite() {
    std::ostringstream links;
    for (int i = 0; i < kDevices; i += 2) links << "link del many" << i << "\n";
    Ip("-force -batch", links.str());
  }
  void SetUp() override {
    ViewTest::SetUp();
    if (!IsSkipped() && !made_) {
      GTEST_SKIP() << "needs ip, and a namespace to change";
    }
  }

 private:
  // Whether all of `commands` succeeded.
  static bool Ip(const std::string& options, const std::string& commands) {
    FILE* const ip = popen(("ip " + options + " - 2>/dev/null").c_str(), "w");
    if (ip == nullptr) return false;
    std::fwrite(commands.data(), 1, commands.size(), ip);
    return pclose(ip) == 0;
  }

  static inline bool made_ = false;
};

INSTANTIATE_TEST_SUITE_P(Users, ManyDevicesTest, testing::Values(false),
                         [](const testing::TestParamInfo<bool>&) {
                           return "Self";
                         });

TEST_P(ManyDevicesTest, AnAccessCreatesOnlyItsFiles) {
  const std::string tree = base_.string() + "/rxe_user-view-*/";
  // One device: its file and the folders to it. The shell accesses the view
  // first, so that the tree outlives `cat`.
  Result r = Shell(
      "test -e /sys/class/infiniband; "
      "cat /sys/class/infiniband/rxeu500/ports/1/state; find " +
      tree +
      "sys | wc -l; cat /sys/class/infiniband/rxeu500/ports/1/hw_counters/*"
      " | sort -u; find " +
      tree + "sys | wc -l");
  std::istringstream words(r.text);
  std::string state, more;
  int first = 0, value = -1, second = 0;
  std::getline(words, state);
  words >> first >> value >> second;
  EXPECT_EQ(state, "4: ACTIVE") << r.text;
  EXPECT_EQ(value, 0) << r.text;
  EXPECT_GT(first, 0) << r.text;
  EXPECT_LT(first, 20) << r.text;
  EXPECT_LT(second, 200) << r.text;
  EXPECT_EQ(Left(), "");

  // All names: a link for each.
  r = Shell(
      "test -e /sys/class/infiniband; "
      "ls /sys/class/infiniband | wc -l; find " +
      tree + "sys | wc -l");
  std::istringstream(r.text) >> first >> second;
  EXPECT_EQ(first, kDevices + 1) << r.text;  // and loopback
  EXPECT_LT(second, kDevices + 20) << r.text;
}

// How often a program that reads a file of each device runs the helper: once,
// and again when the answer has expired.
TEST_P(ManyDevicesTest, OneProgramAsksOnce) {
  const fs::path real = root_ / "bin/rxe-user", moved = root_ / "bin/real";
  const fs::path runs = root_ / "runs";
  fs::rename(real, moved);
  std::ofstream(real) << "#!/bin/sh\n[ \"$1\" != view ] || echo $* >> "
                      << runs.string() << "\nexec " << moved.string()
                      << " \"$@\"\n";
  fs::permissions(real, fs::perms(0755));
  const auto start = std::chrono::steady_clock::now();
  const Result r = Execute(
      {"run", "python3", "-c",
       "n = 0\n"
       "for i in range(" +
           std::to_string(kDevices) +
           "):\n"
           "  n += open(f'/sys/class/infiniband/rxeu{i}/node_type').read()"
           " == '1: CA\\n'\n"
           "print(n)\n"});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  EXPECT_EQ(r.text, std::to_string(kDevices) + "\n");
  std::istringstream lines(ReadAll(runs));
  int asked = 0;
  for (std::string line; std::getline(lines, line);) {
    asked += line.find("--leave") == std::string::npos;
  }
  // Each answer is valid for 0.2 s or more.
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, 1 + static_cast<int>(seconds / 0.2));
  EXPECT_LT(asked, kDevices / 10);
}

TEST_P(ViewTest, RelativePathsLeadOn) {
  const Result r = Shell(
      "cd /sys/class/infiniband; cat rxeu0/node_type; cd rxeu0/ports/1; "
      "pwd -P; /bin/pwd; cat state ../../node_type; cd /; "
      "find -L /sys/class/infiniband -maxdepth 2 -name node_type 2>/dev/null; "
      "cd /sys/class/infiniband && find -L rxeu0/ports -name state");
  EXPECT_EQ(r.text,
            "1: CA\n/sys/devices/virtual/infiniband/rxeu0/ports/1\n"
            "/sys/devices/virtual/infiniband/rxeu0/ports/1\n"
            "4: ACTIVE\n1: CA\n/sys/class/infiniband/rxeu0/node_type\n"
            "rxeu0/ports/1/state\n");
}

TEST_P(ViewTest, AnInterfaceKnowsItsDevice) {
  const Result r = Shell(
      "cd /sys/class/net/lo/device/infiniband && ls; "
      "ls /sys/class/net/lo/device/infiniband_verbs; "
      "cat /sys/class/net/lo/device/infiniband/rxeu0/node_type; "
      "test -d /sys/class/net/lo/device/infiniband && echo there; "
      "test -e /sys/class/net/none/device/infiniband || echo none");
  EXPECT_EQ(r.text, "rxeu0\nuverbs0\n1: CA\nthere\nnone\n");
}

// Programs of musl also load the libraries in LD_PRELOAD.
constexpr char kOfMusl[] = R"(
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  char text[64] = "nothing\n";
  FILE* file = fopen("/sys/class/infiniband/rxeu0/node_type", "r");
  if (file != NULL) fgets(text, sizeof(text), file);
  printf("%s%s\n", text, getenv("LD_PRELOAD") ? "preloaded" : "alone");
  return 42;
}
)";

// Compiles `text` to the file `name`. Returns false if there is no musl-gcc.
bool CompileForMusl(const fs::path& folder, const char* text,
                    const std::string& name) {
  const std::string source = (folder / "musl.c").string();
  std::ofstream(source) << text;
  const std::string command =
      "musl-gcc -o " + (folder / name).string() + " " + source + " 2>/dev/null";
  return system(command.c_str()) == 0;
}

TEST_P(ViewTest, ProgramsOfMusl) {
  if (fs::exists("/sys/class/infiniband")) GTEST_SKIP() << "there is RDMA";
  const fs::path program = root_ / "musl";
  if (!CompileForMusl(root_, kOfMusl, "musl")) GTEST_SKIP() << "no musl-gcc";
  // A message is printed, and the program runs normally.
  Result r = Execute({"run", program.string()});
  EXPECT_EQ(r.text, "rxe-user run: " + program.string() +
                        " is linked with musl: our libraries need glibc, so it "
                        "will not see our device\nnothing\nalone\n");
  EXPECT_EQ(r.exit_status, 42);
  // Started by another program, it can load the library and sees our devices.
  r = Shell(program.string());
  EXPECT_EQ(r.text, "1: CA\npreloaded\n");
  EXPECT_EQ(r.exit_status, 42);
  EXPECT_EQ(Left(), "");
  // Without glibc the view cannot be created.
  fs::permissions(root_ / "bin", fs::perms(0777));
  r = Shell("rm " + (root_ / "bin/rxe-user").string() + "; " +
            program.string());
  EXPECT_EQ(r.text,
            "rxe_user: this program is linked with musl and our libraries with "
            "glibc, so it does not see our devices\nnothing\npreloaded\n");
  EXPECT_EQ(r.exit_status, 42);
}

// The program that creates the view gets three descriptors of /dev/null.
TEST_P(ViewTest, MissingDevNullIsNamed) {
  if (GetParam() || geteuid() != 0) GTEST_SKIP() << "needs root";
  if (fs::exists("/sys/class/infiniband")) GTEST_SKIP() << "there is RDMA";
  const Result r =
      Execute({"run", "unshare", "--mount", "sh", "-c",
               "mount -t tmpfs none /dev || exit 9\n"
               "if test -e /sys/class/infiniband; then exit 1; fi\n"
               "if test -e /sys/class/infiniband/rxeu0; then exit 2; fi"});
  EXPECT_EQ(r.text,
            "rxe_user: cannot open /dev/null: No such file or directory: this "
            "program does not see our devices in /sys and /dev\n");
  EXPECT_EQ(r.exit_status, 0);
}

TEST_P(ViewTest, ViewPrintsTheFolder) {
  const Result r = Execute({"view"});
  ASSERT_EQ(r.exit_status, 0) << r.text;
  const fs::path root = r.text.substr(0, r.text.size() - 1);
  EXPECT_EQ(root.parent_path(), base_);
  EXPECT_EQ(ReadAll(root / "sys/class/infiniband/rxeu0/node_type"), "1: CA\n");
  EXPECT_EQ(Execute({"view", "--leave"}).exit_status, 0);
  EXPECT_EQ(Left(), "");
}

}  // namespace
