// Tests of the program rxe-user in the folders of an installation.
#include <arpa/inet.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "wire/pcapng.h"

namespace {

namespace fs = std::filesystem;

struct Result {
  int exit_status = -1;  // -1: killed by a signal
  int signal = 0;
  pid_t pid = 0;
  std::string out, err;
};

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* binary = getenv("RXE_USER_TEST_CLI");
    ASSERT_NE(binary, nullptr) << "names the program to test";
    char name[] = "/tmp/rxe_user_cli_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    fs::permissions(root_, fs::perms(0755));
    fs::create_directories(root_ / "bin");
    fs::create_directories(root_ / "lib");
    std::ofstream(root_ / "lib/libibverbs.so.1") << "";
    cli_ = root_ / "bin/rxe-user";
    fs::copy_file(binary, cli_);
  }
  void TearDown() override { fs::remove_all(root_); }

  Result Execute(std::vector<std::string> argv,
                 const std::function<void()>& before = {}) {
    return ExecuteFile(cli_, std::move(argv), before);
  }
  Result ExecuteFile(const fs::path& file, std::vector<std::string> argv,
                     const std::function<void()>& before = {}) {
    argv.insert(argv.begin(), "rxe-user");
    const fs::path out = root_ / "out", err = root_ / "err";
    Result r;
    r.pid = fork();
    if (r.pid == 0) {
      dup2(open(out.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 1);
      dup2(open(err.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 2);
      unsetenv("LD_LIBRARY_PATH");
      if (before) before();
      std::vector<char*> pointers;
      for (std::string& s : argv) pointers.push_back(s.data());
      pointers.push_back(nullptr);
      execv(file.c_str(), pointers.data());
      _exit(99);
    }
    int status = 0;
    waitpid(r.pid, &status, 0);
    if (WIFEXITED(status)) r.exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) r.signal = WTERMSIG(status);
    r.out = ReadAll(out);
    r.err = ReadAll(err);
    return r;
  }

  fs::path root_, cli_;
};

bool OneLine(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n') == 1 &&
         text.back() == '\n' && text.starts_with("rxe-user");
}

TEST_F(CliTest, HelpAndVersion) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"--help"}, {"-h"}}) {
    const Result r = Execute(arguments);
    EXPECT_EQ(r.exit_status, 0);
    for (const char* word : {"run", "devices", "decode", "trace", "stat"}) {
      EXPECT_NE(r.out.find(word), std::string::npos) << r.out;
    }
    EXPECT_EQ(r.err, "");
  }
  for (const char* command : {"run", "devices", "decode", "trace", "stat"}) {
    const Result r = Execute({command, "--help"});
    EXPECT_EQ(r.exit_status, 0);
    EXPECT_NE(r.out.find(command), std::string::npos);
  }
  EXPECT_TRUE(Execute({"--version"}).out.starts_with("rxe-user "));
}

TEST_F(CliTest, HelpIsACommandToo) {
  EXPECT_EQ(Execute({"help"}).out, Execute({"--help"}).out);
  for (const char* command : {"run", "devices", "stat", "decode", "view"}) {
    const Result r = Execute({"help", command});
    EXPECT_EQ(r.exit_status, 0) << command;
    EXPECT_EQ(r.out, Execute({command, "--help"}).out);
  }
  EXPECT_EQ(Execute({"help", "frobnicate"}).exit_status, 2);
}

TEST_F(CliTest, RunSaysWhereToCapture) {
  const std::vector<std::string> show = {"sh", "-c", "echo $RXE_USER_CAPTURE"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), show.begin(), show.end());
    return Execute(arguments, [&] { EXPECT_EQ(chdir(root_.c_str()), 0); });
  };
  const std::string file = root_ / "a.pcap";
  EXPECT_EQ(run({}).out, "\n");
  EXPECT_EQ(run({"--capture", "a.pcap"}).out, file + "\n");
  EXPECT_EQ(run({"--capture=" + file, "--"}).out, file + "\n");
  EXPECT_EQ(run({"--capture", "%p.pcap"}).out,
            (root_ / "%p.pcap").string() + "\n");
  // An existing capture is replaced; another file is not.
  std::ofstream(file) << "\x4d\x3c\xb2\xa1 and so on";
  EXPECT_EQ(run({"--capture", "a.pcap"}).exit_status, 0);
  EXPECT_FALSE(fs::exists(file));
  std::ofstream(file) << "int main() {}";
  const Result r = run({"--capture", "a.pcap"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err,
            "rxe-user run: cannot capture to a.pcap: the file exists and "
            "is not a capture\n");
  EXPECT_EQ(ReadAll(file), "int main() {}");
}

TEST_F(CliTest, RunSaysWhereToRecord) {
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    for (const char* word :
         {"sh", "-c", "echo $RXE_USER_TRACE $RXE_USER_TRACE_PAYLOAD"}) {
      arguments.push_back(word);
    }
    return Execute(arguments, [&] { EXPECT_EQ(chdir(root_.c_str()), 0); });
  };
  const std::string file = root_ / "a.pcapng";
  EXPECT_EQ(run({"--trace", "a.pcapng"}).out, file + "\n");
  EXPECT_EQ(run({"--payload", "--trace=a.pcapng"}).out, file + " 1\n");
  // A recording is replaced; what another program wrote is not.
  std::vector<uint8_t> bytes;
  wire::pcapng::AppendSection("rxe_user", &bytes);
  std::ofstream(file) << std::string(bytes.begin(), bytes.end());
  EXPECT_EQ(run({"--trace", "a.pcapng"}).exit_status, 0);
  EXPECT_FALSE(fs::exists(file));
  bytes.clear();
  wire::pcapng::AppendSection("dumpcap", &bytes);
  std::ofstream(file) << std::string(bytes.begin(), bytes.end());
  const Result r = run({"--trace", "a.pcapng"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_EQ(r.err,
            "rxe-user run: cannot record to a.pcapng: the file exists and is "
            "not a recording\n");
}

// The programs get the rules themselves: they need no file.
TEST_F(CliTest, RunChecksRulesAndPassesThemOn) {
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    for (const char* word :
         {"sh", "-c", "echo \"$RXE_USER_FAULTS|$RXE_USER_FAULTS_SEED\""}) {
      arguments.push_back(word);
    }
    return Execute(arguments, [&] { EXPECT_EQ(chdir(root_.c_str()), 0); });
  };
  EXPECT_EQ(run({"--faults", "drop rx nth=2; ce  tx"}).out,
            "drop rx nth=2\nce  tx|\n");
  std::ofstream(root_ / "my.rules") << "# why\ndrop rx nth=2 # this\n";
  EXPECT_EQ(run({"--faults=my.rules", "--faults-seed", "7"}).out,
            "drop rx nth=2|7\n");
  std::ofstream(root_ / "my.rules") << "drop rx\ndrop nth=x\n";
  for (const auto& [arguments, said] :
       {std::pair<std::vector<std::string>, std::string>{
            {"--faults", "drop rx nth=x"},
            "rxe-user run: --faults: line 1, column 13: 'x': nth= needs "},
        {{"--faults", "my.rules"},
         "rxe-user run: --faults: my.rules: line 2, column 10: 'x': nth= "},
        {{"--faults", "none.rules"},
         "rxe-user run: --faults: none.rules: No such file or directory"},
        {{"--faults", "drop", "--faults-seed", "x"},
         "rxe-user run: --faults: the seed 'x' is no number"}}) {
    const Result r = run(arguments);
    EXPECT_EQ(r.exit_status, 2);
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with(said)) << r.err;
    EXPECT_TRUE(OneLine(r.err)) << r.err;
  }
}

TEST_F(CliTest, CheckSetsTheVariable) {
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"run", "--no-view"});
    arguments.insert(arguments.end(), {"--", "printenv", "RXE_USER_CHECK"});
    return Execute(arguments);
  };
  EXPECT_EQ(run({"--check"}).out, "1\n");
  EXPECT_EQ(run({"--check=-unsignaled,leak"}).out, "-unsignaled,leak\n");
  EXPECT_EQ(run({"--strict"}).out, "strict\n");
  EXPECT_EQ(run({"--check=-timeout", "--strict"}).out, "-timeout,strict\n");
  for (const auto& [argument, said] :
       {std::pair<std::string, std::string>{
            "--check=-nosuch", "run: --check: there is no lint -nosuch "},
        {"--check=0", "run: --check= needs a list of lints "},
        {"--check=", "run: --check= needs a list of lints "},
        {"--expect=lints == 0",
         "run: --expect 'lints == 0' needs --check: without it there are no "
         "lints"}}) {
    const Result r = run({argument});
    EXPECT_EQ(r.exit_status, 2) << argument;
    EXPECT_EQ(r.out, "");
    EXPECT_NE(r.err.find(said), std::string::npos) << r.err;
    EXPECT_TRUE(OneLine(r.err)) << r.err;
  }
}

TEST_F(CliTest, WrongUseIsOneLineAndStatus2) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"frobnicate"},
        {"--frobnicate"},
        {"devices", "--frobnicate"},
        {"devices", "surplus"},
        {"decode"},
        {"decode", "a", "b"},
        {"devices", "decode", "x"},
        {"run"},
        {"run", "--"},
        {"stat", "0"},
        {"stat", "-5"},
        {"stat", "x"},
        {"stat", "1", "2"},
        {"stat", "1", "--all"},
        {"stat", "--watch", "x"},
        {"stat", "--watch", "0"},
        {"run", "--capture"},
        {"run", "--capture="},
        {"run", "--capture", "a"},
        {"run", "--trace"},
        {"run", "--trace="},
        {"run", "--payload", "true"},
        {"run", "--faults"},
        {"run", "--faults=", "true"},
        {"run", "--faults", "drop"},
        {"run", "--faults-seed", "7", "true"},
        {"run", "-x", "true"}}) {
    const Result r = Execute(arguments);
    EXPECT_EQ(r.exit_status, 2) << testing::PrintToString(arguments);
    EXPECT_TRUE(OneLine(r.err)) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST_F(CliTest, WrongUseSaysWhereToLook) {
  for (const auto& [arguments, said] :
       {std::pair<std::vector<std::string>, std::string>{
            {"frobnicate"},
            "no command frobnicate; there are run, rdma, devices, decode, "
            "trace, check, stat, explain, faults, lesson, view (see rxe-user "
            "--help)\n"},
        {{"--frobnicate"}, "(see rxe-user --help)\n"},
        {{"devices", "surplus"}, "(see rxe-user devices --help)\n"},
        {{"stat", "x"}, "(see rxe-user stat --help)\n"},
        {{"decode"}, "(see rxe-user decode --help)\n"},
        {{"run"}, "run: no command given (see rxe-user run --help)\n"},
        {{"run", "-x"}, "unknown option -x (see rxe-user run --help)\n"}}) {
    const Result r = Execute(arguments);
    EXPECT_EQ(r.exit_status, 2);
    EXPECT_TRUE(r.err.ends_with(said)) << r.err;
    EXPECT_TRUE(OneLine(r.err)) << r.err;
  }
}

TEST_F(CliTest, RunSaysWhereVariablesAreSet) {
  const Result r =
      Execute({"run", "--", "RXE_USER_LANES=2", "A=b", "true", "x"});
  EXPECT_EQ(r.exit_status, 127);
  EXPECT_EQ(r.err,
            "rxe-user run: RXE_USER_LANES=2: command not found; set variables "
            "before rxe-user run: RXE_USER_LANES=2 rxe-user run -- ...\n");
  for (const char* command : {"=2", "1A=2", "a-b=2", "./A=2"}) {
    const Result other = Execute({"run", command});
    EXPECT_EQ(other.exit_status, 127);
    EXPECT_EQ(other.err.find("variables"), std::string::npos) << other.err;
  }
}

TEST_F(CliTest, RunSaysThatThereIsNoPlaceForTheView) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::ofstream(root_ / "lib/librxe_user_view.so") << "";
  const auto read_only = [] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      _exit(97);
    }
    for (const char* place : {"/tmp", "/dev/shm"}) {
      if (mount(place, place, nullptr, MS_BIND, nullptr) != 0 ||
          mount(nullptr, place, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY,
                nullptr) != 0) {
        _exit(96);
      }
    }
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
  };
  const std::string not_found =
      "rxe-user run: no-such-command-at-all: command not found\n";
  EXPECT_EQ(Execute({"run", "no-such-command-at-all"}, read_only).err,
            "rxe-user run: programs do not see our devices in /sys and "
            "/dev: there is no place for files in XDG_RUNTIME_DIR (/nowhere), "
            "/tmp or /dev/shm\n" +
                not_found);
  EXPECT_EQ(Execute({"run", "no-such-command-at-all"}).err, not_found);
  EXPECT_EQ(
      Execute({"run", "--no-view", "no-such-command-at-all"}, read_only).err,
      not_found);
  const Result view = Execute({"view"}, read_only);
  EXPECT_EQ(view.exit_status, 1);
  EXPECT_EQ(view.err,
            "rxe-user view: there is no place for files in XDG_RUNTIME_DIR "
            "(/nowhere), /tmp or /dev/shm\n");
}

TEST_F(CliTest, RunMakesDevicesLookLikeMlx5) {
  const std::vector<std::string> show = {"sh", "-c", "echo [$RXE_USER_MLX5]"};
  std::vector<std::string> arguments = {"run"};
  arguments.insert(arguments.end(), show.begin(), show.end());
  EXPECT_EQ(Execute(arguments).out, "[]\n");
  arguments.insert(arguments.begin() + 1, "--mlx5");
  EXPECT_EQ(Execute(arguments).out, "[1]\n");
}

TEST_F(CliTest, RunPassesArgumentsAndStatusOn) {
  const Result r = Execute({"run", "--", "sh", "-c",
                            "for a; do printf '<%s>' \"$a\"; done; exit 42",
                            "sh", "--json", "a b", "", "--", "-x"});
  EXPECT_EQ(r.exit_status, 42);
  EXPECT_EQ(r.out, "<--json><a b><><--><-x>");
  EXPECT_EQ(r.err, "");
  // Only the first -- belongs to rxe-user, and it may be omitted.
  EXPECT_EQ(Execute({"run", "echo", "--", "x"}).out, "-- x\n");
}

TEST_F(CliTest, RunBecomesTheCommand) {
  const Result r = Execute({"run", "sh", "-c", "echo $$; kill -KILL $$"});
  EXPECT_EQ(r.out, std::to_string(r.pid) + "\n");
  EXPECT_EQ(r.signal, SIGKILL);
}

TEST_F(CliTest, RunPutsOurLibrariesFirst) {
  const std::vector<std::string> show = {"run", "sh", "-c",
                                         "echo $LD_LIBRARY_PATH"};
  const std::string lib = (root_ / "lib").string();
  EXPECT_EQ(Execute(show).out, lib + "\n");
  EXPECT_EQ(
      Execute(show, [] { setenv("LD_LIBRARY_PATH", "/some:/other", 1); }).out,
      lib + ":/some:/other\n");
  EXPECT_EQ(Execute(show, [] { setenv("LD_LIBRARY_PATH", "", 1); }).out,
            lib + "\n");
  // Called through a symbolic link, and moved.
  fs::create_symlink(cli_, root_ / "link");
  EXPECT_EQ(ExecuteFile(root_ / "link", show).out, lib + "\n");
  fs::create_directory(root_ / "moved");
  fs::rename(root_ / "bin", root_ / "moved/bin");
  fs::rename(root_ / "lib", root_ / "moved/lib");
  EXPECT_EQ(ExecuteFile(root_ / "moved/bin/rxe-user", show).out,
            (root_ / "moved/lib").string() + "\n");
}

TEST_F(CliTest, RunPutsOurCommandsFirst) {
  const auto path = [] { setenv("PATH", "/bin:/usr/bin", 1); };
  EXPECT_EQ(Execute({"run", "sh", "-c", "echo $PATH"}, path).out,
            "/bin:/usr/bin\n");
  const fs::path commands = root_ / "libexec/commands";
  fs::create_directories(commands);
  EXPECT_EQ(Execute({"run", "sh", "-c", "echo $PATH"}, path).out,
            commands.string() + ":/bin:/usr/bin\n");
  EXPECT_EQ(Execute({"run", "--no-view", "sh", "-c", "echo $PATH"}, path).out,
            "/bin:/usr/bin\n");
}

// Also removes the view that an outer rxe-user run has set up.
TEST_F(CliTest, RunWithoutView) {
  fs::create_directories(root_ / "libexec/commands");
  std::ofstream(root_ / "lib/librxe_user_view.so") << "";
  const Result r = Execute({"run", "--no-view", "env"}, [this] {
    setenv("PATH", ((root_ / "libexec/commands").string() + ":/bin").c_str(),
           1);
    setenv("LD_PRELOAD", "libm.so.6:/elsewhere/librxe_user_view.so", 1);
    // `rxe-user` itself may have AddressSanitizer, which insists on being
    // first.
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  });
  EXPECT_NE(r.out.find("\nPATH=/bin\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("\nLD_PRELOAD=libm.so.6\n"), std::string::npos) << r.out;
}

TEST_F(CliTest, RdmaShowsDevices) {
  const Result links = Execute({"rdma", "-j", "link"});
  EXPECT_EQ(links.exit_status, 0);
  EXPECT_TRUE(nlohmann::json::parse(links.out).is_array()) << links.out;
  const Result none = Execute({"rdma", "link", "show", "no_such_device"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_EQ(none.err, "rdma: there is no no_such_device; see rdma link\n");
  EXPECT_EQ(none.out, "");
}

TEST_F(CliTest, LessonsAreListed) {
  Result r = Execute({"lesson"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find("no lessons in"), std::string::npos) << r.err;
  EXPECT_TRUE(OneLine(r.err)) << r.err;

  const fs::path lessons = root_ / "libexec/lessons";
  fs::create_directories(lessons);
  std::ofstream(lessons / "10-b.c") << "/* Lesson 10: the last. */\n";
  std::ofstream(lessons / "2-a.c") << "/* Lesson 2: a: b, c.\n * faults: x\n";
  std::ofstream(lessons / "3-other.c") << "/* No lesson. */\n";
  std::ofstream(lessons / "empty.c") << "";
  r = Execute({"lesson"});
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_EQ(r.out, " 2  a: b, c\n10  the last\n");
  EXPECT_EQ(r.err, "");

  r = Execute({"lesson", "3"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find("no lesson 3"), std::string::npos) << r.err;
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  for (const char* number : {"0", "-1", "x", "100"}) {
    EXPECT_EQ(Execute({"lesson", number}).exit_status, 2) << number;
  }
}

TEST_F(CliTest, LessonThatDoesNotCompileSaysWhatItNeeds) {
  fs::create_directories(root_ / "libexec/lessons");
  std::ofstream(root_ / "libexec/lessons/1-a.c")
      << "/* Lesson 1: a. */\n#error this\n";
  const Result r =
      Execute({"lesson", "1", "--folder", (root_ / "work").string()});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find("cannot compile"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("libibverbs-dev"), std::string::npos) << r.err;
}

TEST_F(CliTest, RunSaysWhatCannotBeRun) {
  Result r = Execute({"run", "no-such-command-at-all"});
  EXPECT_EQ(r.exit_status, 127);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  r = Execute({"run", "/no/such/file"});
  EXPECT_EQ(r.exit_status, 127);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  r = Execute({"run", "/etc/passwd"});
  EXPECT_EQ(r.exit_status, 126);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  r = Execute({"run", "/"});
  EXPECT_EQ(r.exit_status, 126);
  fs::remove(root_ / "lib/libibverbs.so.1");
  r = Execute({"run", "true"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find((root_ / "lib/libibverbs.so.1").string()),
            std::string::npos);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
}

TEST_F(CliTest, RunSaysThatSetuidProgramsIgnoreIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const fs::path program = root_ / "setuid";
  fs::copy_file("/bin/true", program);
  ASSERT_EQ(chown(program.c_str(), 12345, 12345), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  const Result r = Execute({"run", program});
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  EXPECT_NE(r.err.find("setuid"), std::string::npos);
}

using Elf = std::pair<ElfW(Ehdr), ElfW(Phdr)>;

// The start of an ELF program with one segment. `interpreter`: its dynamic
// linker, unless empty. `change` modifies the rest.
std::string ProgramText(const std::string& interpreter,
                        const std::function<void(Elf&)>& change = {}) {
  Elf elf{};
  auto& [header, segment] = elf;
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  ElfW(Ehdr) ours{};
  std::ifstream("/proc/self/exe")
      .read(reinterpret_cast<char*>(&ours), sizeof(ours));
  header.e_machine = ours.e_machine;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(segment);
  header.e_phnum = 1;
  segment.p_type = interpreter.empty() ? PT_LOAD : PT_INTERP;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = interpreter.size() + 1;
  if (change) change(elf);
  std::string text(reinterpret_cast<char*>(&header), sizeof(header));
  text.append(reinterpret_cast<char*>(&segment), sizeof(segment));
  return text + interpreter + std::string(1, 0);
}

TEST_F(CliTest, RunSaysWhichProgramsCannotLoadOurLibraries) {
  constexpr char kGlibc[] = "/lib64/ld-linux-x86-64.so.2";
  struct Case {
    std::string name, text, said;
  };
  for (const Case& c : std::vector<Case>{
           {"static", ProgramText(""),
            " is statically linked: it loads no libraries"},
           {"musl", ProgramText("/lib/ld-musl-x86_64.so.1"),
            " is linked with musl: our libraries need glibc"},
           {"class",
            ProgramText(
                kGlibc,
                [](Elf& elf) { elf.first.e_ident[EI_CLASS] = ELFCLASS32; }),
            " is a 32-bit program: our libraries are for 64 bits"},
           {"machine",
            ProgramText(kGlibc,
                        [](Elf& elf) { elf.first.e_machine = EM_S390; }),
            " is for another processor than our libraries"},
           {"dynamic", ProgramText(kGlibc), ""},
           {"cut", ProgramText(kGlibc).substr(0, 70), ""},
           {"script", "#!/bin/true\n", ""},
           {"ld-linux-x86-64.so.2", ProgramText(""), ""},
           {"ld-2.31.so", ProgramText(""), ""}}) {
    const fs::path program = root_ / c.name;
    std::ofstream(program) << c.text;
    fs::permissions(program, fs::perms(0644));  // not executable
    const Result r = Execute({"run", program});
    const std::string who = "rxe-user run: " + program.string();
    EXPECT_EQ(
        r.err,
        (c.said.empty() ? ""
                        : who + c.said + ", so it will not see our device\n") +
            who + ": Permission denied\n");
  }
}

TEST_F(CliTest, RunSaysThatItNeedsProc) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer itself complains of a missing /proc";
#endif
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Result r = Execute({"run", "true"}, [] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        umount2("/proc", MNT_DETACH) != 0) {
      _exit(97);
    }
  });
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  EXPECT_NE(r.err.find("/proc is not mounted"), std::string::npos) << r.err;
}

// Standard output is a pipe without a reader.
void ClosePipe(void (*sigpipe)(int)) {
  int ends[2];
  if (pipe(ends) != 0) _exit(98);
  close(ends[0]);
  dup2(ends[1], 1);
  signal(SIGPIPE, sigpipe);
}

TEST_F(CliTest, ClosedPipesAreNoError) {
  const Result r = Execute({"devices"}, [] { ClosePipe(SIG_IGN); });
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.exit_status, 0);
  const Result killed = Execute({"devices"}, [] { ClosePipe(SIG_DFL); });
  EXPECT_EQ(killed.err, "");
}

TEST_F(CliTest, TraceWritesAFileToItsEndWithoutAReaderOfTheOutput) {
  const fs::path file = root_ / "empty.pcap";
  const unsigned char header[24] = {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0};
  std::ofstream(file).write(reinterpret_cast<const char*>(header),
                            sizeof(header));
  const fs::path alone = root_ / "alone", beside = root_ / "beside";
  // Each file is a line: together they are more than a buffer.
  const auto trace = [&](const fs::path& to) {
    std::vector<std::string> arguments = {"trace", "--json", "--sqlog", to};
    arguments.insert(arguments.end(), 200, file);
    return arguments;
  };
  const Result all = Execute(trace(alone));
  EXPECT_EQ(all.exit_status, 0) << all.err;
  EXPECT_GT(all.out.size(), 8192u);
  const Result cut = Execute(trace(beside), [] { ClosePipe(SIG_DFL); });
  EXPECT_EQ(cut.exit_status, 0);
  EXPECT_EQ(cut.err, "");
  EXPECT_EQ(ReadAll(beside), ReadAll(alone));
}

// In a new network namespace that only has loopback.
void FreshNamespace() {
  if (unshare(CLONE_NEWNET) != 0) _exit(97);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) _exit(97);
}

TEST_F(CliTest, StatSaysThatNothingRuns) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"stat"},
        {"stat", "--all"},
        {"stat", "--json"},
        {"stat", "--watch"},
        {"stat", "1"}}) {
    const Result r = Execute(arguments, FreshNamespace);
    EXPECT_EQ(r.exit_status, 1) << testing::PrintToString(arguments);
    EXPECT_TRUE(OneLine(r.err)) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST_F(CliTest, StatSaysThatThereIsNoProcess) {
  // A number above Linux's maximum.
  const Result r = Execute({"stat", "99999999"});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_EQ(r.err, "rxe-user stat: there is no process 99999999\n");
}

TEST_F(CliTest, DevicesListsWhatIsThere) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Result r = Execute({"devices", "--json"}, FreshNamespace);
  ASSERT_EQ(r.exit_status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  ASSERT_EQ(json["devices"].size(), 1u) << r.out;
  const auto& lo = json["devices"][0];
  EXPECT_EQ(lo["netdev"], "lo");
  EXPECT_EQ(lo["state"], "up");
  EXPECT_EQ(lo["gids"][0]["address"], "127.0.0.1");
  EXPECT_EQ(lo["gids"][0]["port_available"], true);
  r = Execute({"devices"}, FreshNamespace);
  EXPECT_NE(r.out.find("127.0.0.1"), std::string::npos) << r.out;
}

TEST_F(CliTest, DevicesSaysWhoHasThePort) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Result r = Execute({"devices"}, [] {
    FreshNamespace();
    // Not close-on-exec, so rxe-user inherits it and is the holder itself.
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(4791);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0) {
      _exit(96);
    }
  });
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_NE(
      r.out.find("taken by process " + std::to_string(r.pid) + " (rxe-user)"),
      std::string::npos)
      << r.out;
}

TEST_F(CliTest, NoDeviceIsSaidInOneLine) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto no_interface = [] {
    if (unshare(CLONE_NEWNET) != 0) _exit(97);
  };
  Result r = Execute({"devices"}, no_interface);
  EXPECT_EQ(r.exit_status, 1);
  // One line for each interface gives the reason.
  EXPECT_NE(r.out.find("NO DEVICE, BECAUSE"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("it is down"), std::string::npos) << r.out;
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  EXPECT_NE(r.err.find("no interface is up and has an address"),
            std::string::npos)
      << r.err;
  EXPECT_NE(Execute({"devices", "--help"}).out.find("Exit status 1"),
            std::string::npos);
  r = Execute({"devices", "--json"}, no_interface);
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_EQ(nlohmann::json::parse(r.out)["devices"].size(), 0u);
}

TEST_F(CliTest, NoDeviceOfThoseNamedIsSaid) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Result r = Execute({"devices"}, [] {
    FreshNamespace();
    setenv("RXE_USER_DEVICES", "mlx5_0=eth7", 1);
  });
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_TRUE(r.err.ends_with(
      "\nrxe-user devices: no device: none of those that RXE_USER_DEVICES "
      "names\n"))
      << r.err;
}

TEST_F(CliTest, UnknownSettingsAreSaidOnce) {
  const Result r = Execute({"devices"}, [] {
    setenv("RXE_USER_DEVICE", "a=lo", 1);
    setenv("RXE_USER_SPIN", "7", 1);
  });
  EXPECT_EQ(r.err.find("there is no setting"),
            r.err.rfind("there is no setting"));
  EXPECT_TRUE(r.err.starts_with(
      "rxe_user: there is no setting RXE_USER_DEVICE, RXE_USER_SPIN; the "
      "settings are RXE_USER_BROKER,"))
      << r.err;
}

TEST_F(CliTest, TraceReportsFilesThatItCannotRead) {
  const Result none = Execute({"trace", "/nonexistent/x"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_EQ(none.err,
            "rxe-user trace: /nonexistent/x: No such file or directory\n");
  const fs::path file = root_ / "text";
  std::ofstream(file) << "hello";
  const Result text = Execute({"trace", file});
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_EQ(text.err, "rxe-user trace: " + file.string() +
                          ": it is neither a pcap nor a pcapng file\n");
}

TEST_F(CliTest, CheckTellsItsResultByTheExitStatus) {
  const Result none = Execute({"check", "/nonexistent/x"});
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_EQ(none.err,
            "rxe-user check: /nonexistent/x: No such file or directory\n");
  EXPECT_EQ(Execute({"check"}).exit_status, 2);
  // A pcap file of raw IP with one packet, whose ICRC is wrong.
  const fs::path file = root_ / "bad.pcap";
  std::string bytes("\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0", 16);
  bytes.append("\xff\xff\0\0\x65\0\0\0", 8);
  const Result empty = [&] {
    std::ofstream(file) << bytes;
    return Execute({"check", file});
  }();
  EXPECT_EQ(empty.exit_status, 0) << empty.err;
  EXPECT_EQ(empty.out + empty.err, "");
  bytes.append(8, '\0').append("\x2c\0\0\0\x2c\0\0\0", 8);
  bytes.append("\x45\0\0\x2c\0\0\x40\0\x40\x11\0\0", 12);  // IPv4
  bytes.append("\x0a\0\0\1\x0a\0\0\2", 8);
  bytes.append("\xc0\0\x12\xb7\0\x18\0\0", 8);           // UDP
  bytes.append("\4\x40\xff\xff\0\0\0\x11\0\0\0\7", 12);  // BTH
  bytes.append(4, '\0');
  std::ofstream(file) << bytes;
  const Result bad = Execute({"check", "--local", "10.0.0.1", file});
  EXPECT_EQ(bad.exit_status, 1) << bad.err;
  EXPECT_EQ(bad.out, file.string() +
                         ": icrc: packet 1 10.0.0.1 > 10.0.0.2 qp=0x000011 "
                         "psn=7: sent with a wrong ICRC (IBA A17.3)\n");
  const Result json = Execute({"check", "--json", file});
  EXPECT_EQ(json.exit_status, 1);
  EXPECT_EQ(nlohmann::json::parse(json.out)["rule"], "icrc") << json.out;
  // Twenty READs, answered within 2.2 ms.
  const std::string golden = "tests/golden/kernel_rxe/read_bw.pcap";
  const Result times = Execute({"check", "--latencies", "--local", "10.9.0.1",
                                "--local", "10.9.0.2", golden});
  EXPECT_EQ(times.exit_status, 0) << times.out << times.err;
  EXPECT_NE(times.out.find("READ request to first response "),
            std::string::npos)
      << times.out;
  const Result rows = Execute({"check", "--latencies", "--json", golden});
  const auto row = nlohmann::json::parse(rows.out);
  EXPECT_EQ(row["latency"], "READ request to first response");
  EXPECT_EQ(row["count"], 20);
  EXPECT_EQ(row["max_ns"], 2170000);
  EXPECT_EQ(Execute({"check", "--timeout", "32", golden}).exit_status, 2);
  const Result wrong = Execute({"check", "--local", "x", file});
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_TRUE(OneLine(wrong.err)) << wrong.err;
}

TEST_F(CliTest, TraceWritesItsViews) {
  // A pcap file without packets.
  const fs::path file = root_ / "empty.pcap";
  const unsigned char header[24] = {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0};
  std::ofstream(file).write(reinterpret_cast<const char*>(header),
                            sizeof(header));
  const Result text = Execute({"trace", file});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_NE(text.out.find("0 packets\n"), std::string::npos) << text.out;
  const Result json = Execute({"trace", "--json", file, file});
  EXPECT_EQ(json.exit_status, 0) << json.err;
  EXPECT_NE(json.out.find("{\"type\":\"summary\""), std::string::npos);
  const fs::path html = root_ / "x.html", svg = root_ / "x.svg";
  const Result both = Execute(
      {"trace", file, "--html", html, "--svg", svg, "--local", "10.0.0.1"});
  EXPECT_EQ(both.exit_status, 0) << both.err;
  EXPECT_EQ(both.out, "");
  EXPECT_TRUE(ReadAll(html).starts_with("<!doctype html>"));
  EXPECT_TRUE(ReadAll(svg).starts_with("<svg "));
  const fs::path perfetto = root_ / "x.json";
  const Result tracks = Execute({"trace", file, "--perfetto", perfetto});
  EXPECT_EQ(tracks.exit_status, 0) << tracks.err;
  EXPECT_EQ(tracks.out, "");
  EXPECT_TRUE(nlohmann::json::parse(ReadAll(perfetto))["traceEvents"].empty());
  const fs::path sqlog = root_ / "x.sqlog";
  const Result records = Execute({"trace", file, "--sqlog", sqlog});
  EXPECT_EQ(records.exit_status, 0) << records.err;
  EXPECT_EQ(records.out, "");
  EXPECT_TRUE(ReadAll(sqlog).starts_with("\x1e{\"file_schema\":"));
  for (const std::string view : {"--svg", "--perfetto", "--sqlog"}) {
    const Result bad = Execute({"trace", file, view, "/nonexistent/x"});
    EXPECT_EQ(bad.exit_status, 1);
    EXPECT_EQ(bad.err,
              "rxe-user trace: /nonexistent/x: No such file or directory\n");
  }
  const Result full = Execute({"trace", file, "--perfetto", "/dev/full"});
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_EQ(full.err, "rxe-user trace: /dev/full: No space left on device\n");
}

TEST_F(CliTest, DecodeReportsAFileThatIsNotThere) {
  const Result r = Execute({"decode", (root_ / "nothing.pcap").string()});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
}

}  // namespace
