// rxe-user run: what it passes on, and what it says.
#include <elf.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tools/rxe_user_cli/cli_fixture.h"
#include "wire/pcapng.h"

namespace cli_test {
namespace {

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

}  // namespace
}  // namespace cli_test
