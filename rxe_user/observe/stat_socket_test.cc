#include "rxe_user/observe/stat_socket.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/testing/descriptors.h"

namespace rxe_user {
namespace {

std::string Prefix(pid_t pid) {
  return "rxe_user-stat-" + std::to_string(pid) + "-";
}

// The stat sockets of this process.
std::vector<std::string> Ours() {
  auto names = ListStatSockets();
  EXPECT_TRUE(names.ok());
  std::erase_if(*names, [](const std::string& name) {
    return !name.starts_with(Prefix(::getpid()));
  });
  return *names;
}

// A descriptor connected to `name`, or -1.
int Connect(const std::string& name, int type = SOCK_SEQPACKET) {
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) {
    return fd;
  }
  ::close(fd);
  return -1;
}

bool Readable(int fd, int timeout_ms) {
  pollfd p = {fd, POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) == 1;
}

size_t OpenFiles() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// A server with a control thread.
class Serving {
 public:
  explicit Serving(StatServer::Report report, bool begins = true,
                   StatServer::Command command = {}) {
    auto server = StatServer::Open(std::move(report), std::move(command));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    if (begins) Begin();
  }
  void Begin() {
    thread_ = std::thread([this] {
      while (!stop_) {
        if (Readable(server_->fd(), 10)) server_->OnReadable();
      }
    });
  }
  ~Serving() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::unique_ptr<StatServer> server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(StatSocket, AnswersOfAnyLength) {
  for (const size_t bytes : {0u, 1u, 100'000u, 5'000'000u}) {
    const std::string text(bytes, 'x');
    Serving serving([&] { return text; });
    ASSERT_EQ(Ours(), std::vector<std::string>{Prefix(::getpid()) + "0"});
    const auto reply = AskForReport(Ours()[0]);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->pid, ::getpid());
    EXPECT_EQ(reply->text, text);
  }
}

TEST(StatSocket, CarriesOutEachCommandOnce) {
  std::vector<std::string> commands;
  Serving serving([] { return "report"; }, true,
                  [&](const std::string& command) {
                    commands.push_back(command);
                    return "did " + command;
                  });
  const std::string name = Prefix(::getpid()) + "0";
  const std::string longest(kMaxCommand, 'x');
  const std::vector<std::string> sent = {"one", "two", longest};
  for (const std::string& command : sent) {
    const auto reply = SendCommand(::getpid(), name, command);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->text, "did " + command);
    EXPECT_EQ(reply->pid, ::getpid());
    EXPECT_EQ(AskForReport(name)->text, "report");
  }
  EXPECT_EQ(commands, sent);
  EXPECT_FALSE(SendCommand(::getpid(), name, "").ok());
  EXPECT_FALSE(SendCommand(::getpid(), name, longest + "x").ok());
}

// A command that arrives after the answer was sent is not carried out, and the
// client notices.
TEST(StatSocket, ACommandThatComesLateIsNotCarriedOut) {
  int commands = 0;
  Serving serving([] { return "report"; }, true,
                  [&](const std::string&) {
                    ++commands;
                    return "did it";
                  });
  const std::string name = Prefix(::getpid()) + "0";
  const int client = Connect(name);
  ASSERT_TRUE(Readable(client, 10'000));
  (void)!::send(client, "late", 4, MSG_NOSIGNAL);
  ::close(client);
  EXPECT_EQ(AskForReport(name)->text, "report");
  EXPECT_EQ(commands, 0);
}

// A process of another PID namespace may have the name. The command used to be
// sent before the owner of the socket was known.
TEST(StatSocket, ACommandIsOnlyForItsProcess) {
  int commands = 0;
  Serving serving([] { return "report"; }, true,
                  [&](const std::string&) {
                    ++commands;
                    return "did it";
                  });
  const std::string name = Prefix(::getpid()) + "0";
  const auto reply = SendCommand(::getppid(), name, "list");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(reply.status().message(),
            "the name is that of process " + std::to_string(::getpid()));
  // The server has finished with the first client by now.
  EXPECT_EQ(AskForReport(name)->text, "report");
  EXPECT_EQ(commands, 0);
}

TEST(StatSocket, AServerWithoutCommands) {
  Serving serving([] { return "report"; });
  const auto reply = SendCommand(::getpid(), Prefix(::getpid()) + "0", "list");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnimplemented);
}

// The server used to make 100 reports for each command.
TEST(StatSocket, AServerWithoutCommandsMakesNoReportForOne) {
  int reports = 0;
  {
    Serving serving(
        [&] {
          ++reports;
          return "report";
        },
        /*begins=*/false);
    const int client = Connect(Prefix(::getpid()) + "0");
    ASSERT_EQ(::send(client, "list", 4, MSG_NOSIGNAL), 4);
    serving.Begin();
    ASSERT_TRUE(Readable(client, 10'000));
    ::close(client);
  }
  EXPECT_EQ(reports, 0);
}

// A command is not carried out twice, and the user is told that it may have
// been carried out.
TEST(StatSocket, ACommandThatIsNotAnsweredMayHaveBeenCarriedOut) {
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const std::string name = Prefix(::getpid()) + "9";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          name.size())),
            0);
  ASSERT_EQ(::listen(listener, 1), 0);
  std::thread server([listener] {
    const int client = ::accept(listener, nullptr, nullptr);
    char text[16];
    EXPECT_EQ(::recv(client, text, sizeof(text), 0), 4);
    ::close(client);
  });
  const auto reply = SendCommand(::getpid(), name, "list");
  server.join();
  ::close(listener);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(reply.status().message(),
            "it closes the connection without an answer; the command may have "
            "been carried out");
}

TEST(StatSocket, EachEngineHasItsName) {
  Serving one([] { return "one"; });
  {
    Serving two([] { return "two"; });
    ASSERT_EQ(Ours().size(), 2u);
    EXPECT_EQ(AskForReport(Ours()[0])->text, "one");
    EXPECT_EQ(AskForReport(Ours()[1])->text, "two");
  }
  EXPECT_EQ(Ours().size(), 1u);
  Serving again([] { return "again"; });
  EXPECT_EQ(AskForReport(Prefix(::getpid()) + "1")->text, "again");
}

// A process that took the names of later processes used to keep them from
// listening.
TEST(StatSocket, ListensIfOthersHaveTakenTheNames) {
  std::vector<int> taken;
  for (int i = 0; i < 64; ++i) {
    const std::string name = Prefix(::getpid()) + std::to_string(i);
    taken.push_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    ASSERT_EQ(::bind(taken.back(), reinterpret_cast<sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                            1 + name.size())),
              0);
  }
  Serving serving([] { return "report"; });
  int answered = 0;
  for (const auto& reply : AskForReports(Ours(), std::chrono::seconds(20))) {
    if (!reply.ok()) continue;
    EXPECT_EQ(reply->text, "report");
    ++answered;
  }
  EXPECT_EQ(answered, 1);
  for (const int fd : taken) ::close(fd);
}

TEST(StatSocket, WithoutAListener) {
  EXPECT_EQ(AskForReport("rxe_user-stat-1-99").status().code(),
            absl::StatusCode::kNotFound);
  // A name that is longer than possible.
  EXPECT_FALSE(AskForReport(std::string(1000, 'x')).ok());
}

// Clients that send, do not read, or disconnect cost the server nothing.
TEST(StatSocket, BadClientsDoNoHarm) {
  Serving serving([] { return std::string(1'000'000, 'x'); });
  const std::string name = Ours()[0];
  const size_t before = OpenFiles();
  for (int i = 0; i < 100; ++i) {
    const int fd = Connect(name);
    ASSERT_GE(fd, 0) << i;
    if (i % 3 == 0) (void)!::send(fd, "garbage", 7, MSG_NOSIGNAL);
    if (i % 3 == 1) ::shutdown(fd, SHUT_RDWR);
    ::close(fd);
  }
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect(name));
  const auto reply = AskForReport(name);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text.size(), 1'000'000u);
  for (const int fd : silent) ::close(fd);
  // The server closes its descriptors after the reply, which may arrive here
  // first.
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (OpenFiles() != before && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(OpenFiles(), before);
  EXPECT_EQ(Connect(name, SOCK_STREAM), -1);  // of another type
}

TEST(StatSocket, OtherUsersAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows a child of fork() no threads";
#endif
  Serving serving([] { return "secret"; });
  const std::string name = Ours()[0];
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(12345, 12345, 12345) != 0) ::_exit(90);
    ::_exit(static_cast<int>(AskForReport(name).status().code()));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status),
            static_cast<int>(absl::StatusCode::kPermissionDenied));

  // A client that asks anyway gets no report.
  const pid_t bold = ::fork();
  if (bold == 0) {
    if (::setresuid(12345, 12345, 12345) != 0) ::_exit(90);
    const int fd = Connect(name);
    char byte;
    ::_exit(fd >= 0 && ::recv(fd, &byte, 1, 0) <= 0 ? 0 : 1);
  }
  ASSERT_EQ(::waitpid(bold, &status, 0), bold);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// False on failure.
bool SendSlowToClose(int to) {
  const UniqueFd fd = SlowToClose();
  const uint8_t byte = 0;
  return fd.valid() && SendWithDescriptors(to, {&byte, 1}, {fd.get()});
}

// Another user, whose unread messages contain descriptors that are slow to
// close. This used to block the control thread of every process for as long as
// that user wanted.
class ForeignClient {
 public:
  // Connects when Come is called.
  ForeignClient(const std::string& name, int connections) {
    int go[2], said[2];
    EXPECT_EQ(::pipe2(go, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(said, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      char ok = 1;
      if (::setresuid(12345, 12345, 12345) != 0 || ::read(go[0], &ok, 1) != 1) {
        ::_exit(90);
      }
      for (int i = 0; i < connections; ++i) {
        const int fd = Connect(name);
        if (fd < 0 || !SendSlowToClose(fd)) ok = 0;
      }
      (void)!::write(said[1], &ok, 1);
      for (;;) ::pause();
    }
    ::close(go[0]);
    ::close(said[1]);
    go_ = go[1];
    said_ = said[0];
  }
  ~ForeignClient() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(go_);
    ::close(said_);
  }
  // On return, everything has been sent.
  void Come() {
    char ok = 1;
    EXPECT_EQ(::write(go_, &ok, 1), 1);
    EXPECT_EQ(::read(said_, &ok, 1), 1);
    EXPECT_EQ(ok, 1);
  }

 private:
  pid_t child_;
  int go_;
  int said_;
};

TEST(StatSocket, AForeignClientDoesNotBlockIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Serving serving([] { return "text"; }, /*begins=*/false);
  ForeignClient stranger(Ours()[0], 1);
  stranger.Come();
  serving.Begin();
  const auto reply = AskForReport(Ours()[0]);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text, "text");
}

// No client is answered then, but the thread continues, and the server works
// again afterwards.
TEST(StatSocket, ManyForeignClientsSilenceItWhileTheyLive) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  auto server = StatServer::Open([] { return "text"; });
  ASSERT_TRUE(server.ok());
  const std::string name = Ours()[0];
  // Each of these clients leaves four connections. They are created in advance:
  // a child of fork() would inherit copies of the descriptors that are being
  // closed, so the close would not wait.
  std::vector<std::unique_ptr<ForeignClient>> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(std::make_unique<ForeignClient>(name, 4));
  }
  for (const auto& stranger : strangers) {
    if ((*server)->fd() < 0) break;
    stranger->Come();
    (*server)->OnReadable();
  }
  EXPECT_EQ((*server)->fd(), -1);
  (*server)->OnReadable();
  EXPECT_NE((*server)->time(), StatServer::Clock::time_point::max());
  strangers.clear();
  // Only time() wakes the serving thread now.
  const auto limit = StatServer::Clock::now() + std::chrono::seconds(20);
  while ((*server)->time() < limit) {
    std::this_thread::sleep_until((*server)->time());
    (*server)->OnReadable();
  }
  EXPECT_EQ((*server)->time(), StatServer::Clock::time_point::max());
  EXPECT_GE((*server)->fd(), 0);
}

// The connection that cannot be accepted keeps the listener readable.
TEST(StatSocket, WithoutADescriptorItTriesAgainLater) {
  auto server = StatServer::Open([] { return "text"; });
  ASSERT_TRUE(server.ok());
  const UniqueFd client(Connect(Ours()[0]));
  ASSERT_TRUE(client.valid());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  (*server)->OnReadable();
  const int fd = (*server)->fd();
  const auto time = (*server)->time();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(fd, -1);
  ASSERT_NE(time, StatServer::Clock::time_point::max());
  std::this_thread::sleep_until(time);
  (*server)->OnReadable();
  EXPECT_TRUE(Readable(client.get(), 10'000));
  EXPECT_GE((*server)->fd(), 0);
}

// Such a client does not block the thread that destroys the server either.
TEST(StatSocket, AForeignClientDoesNotBlockItsEnd) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  auto server = StatServer::Open([] { return "text"; });
  ASSERT_TRUE(server.ok());
  const std::string name = Ours()[0];
  ForeignClient stranger(name, 1);
  stranger.Come();
  server->reset();
  EXPECT_EQ(Connect(name), -1);
}

// A child of fork() does not answer, and its parent still does.
TEST(StatSocket, AChildDoesNotAnswer) {
  int ends[2];  // one for each process
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  pid_t child = 0;
  char byte = 'x';
  std::string name;
  {
    Serving serving([] { return "parent"; });
    name = Ours()[0];
    child = ::fork();
    if (child == 0) {
      (void)!::write(ends[1], &byte, 1);
      (void)!::read(ends[1], &byte, 1);
      ::_exit(0);
    }
    // The child has closed the descriptors that it inherited.
    ASSERT_EQ(::read(ends[0], &byte, 1), 1);
    EXPECT_EQ(AskForReport(name)->text, "parent");
  }
  // The parent's socket is gone, although the child still runs.
  EXPECT_EQ(AskForReport(name).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(::write(ends[0], &byte, 1), 1);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
}

// A stopped process does not block the tool.
TEST(StatSocket, ASilentEngineTimesOut) {
  auto server = StatServer::Open([] { return ""; });
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(AskForReport(Ours()[0]).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

// The timeouts of silent engines run concurrently.
TEST(StatSocket, ManyAreAskedAtOnce) {
  std::vector<std::unique_ptr<StatServer>> silent;
  for (int i = 0; i < 30; ++i) {
    auto server = StatServer::Open([] { return ""; });
    ASSERT_TRUE(server.ok());
    silent.push_back(*std::move(server));
  }
  Serving serving([] { return "report"; });
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> names = Ours();
  ASSERT_EQ(names.size(), 31u);
  const auto replies = AskForReports(names);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  ASSERT_EQ(replies.size(), names.size());
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(replies[i].status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  ASSERT_TRUE(replies[30].ok()) << replies[30].status();
  EXPECT_EQ(replies[30]->text, "report");
}

TEST(StatSocket, AStoppedProcessIsSkipped) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto server = StatServer::Open([] { return ""; });
    (void)!::write(ready[1], server.ok() ? "1" : "0", 1);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  char opened = 0;
  ASSERT_EQ(::read(ready[0], &opened, 1), 1);
  ASSERT_EQ(opened, '1');
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  const auto reply = AskForReport(Prefix(child) + "0");
  EXPECT_EQ(reply.status().message(), "it is stopped");
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  for (const int fd : ready) ::close(fd);
}

// A fake server cannot make the tool wait, or read without end.
class FakeServer {
 public:
  // Answers with `files`.
  explicit FakeServer(const std::vector<int>& files) {
    const std::string name = Name();
    listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                            1 + name.size())),
              0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    thread_ = std::thread([this, files] {
      const int client = ::accept(listener_, nullptr, nullptr);
      const uint8_t byte = 0;
      EXPECT_TRUE(SendWithDescriptors(client, {&byte, 1}, files));
      ::close(client);
    });
  }
  ~FakeServer() {
    thread_.join();
    ::close(listener_);
  }
  static std::string Name() { return Prefix(::getpid()) + "9"; }

 private:
  int listener_;
  std::thread thread_;
};

TEST(StatSocket, OnlyMemoryFilesAreRead) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const int huge = ::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(huge, 1 << 30), 0);
  for (const std::vector<int>& files :
       {std::vector<int>{pipe_ends[0]}, {huge}, {}}) {
    FakeServer server(files);
    EXPECT_FALSE(AskForReport(FakeServer::Name()).ok());
  }
  ::close(huge);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

// The descriptors used to stay open in the client.
TEST(StatSocket, ClosesExtraDescriptors) {
  const int report = ::memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const size_t before = OpenFiles();
  for (const size_t count : {2, 3, 253}) {
    FakeServer server(std::vector<int>(count, report));
    EXPECT_FALSE(AskForReport(FakeServer::Name()).ok()) << count;
  }
  EXPECT_EQ(OpenFiles(), before);
  ::close(report);
}

// A child process of another user that listens on names of its own. It answers
// each client with a descriptor that `make` opens, and keeps no copy of it.
class ForeignServer {
 public:
  ForeignServer(uid_t uid, size_t names, const std::function<int()>& make) {
    for (size_t i = 0; i < names; ++i) {
      names_.push_back(Prefix(1) + std::to_string(uid) + std::to_string(i));
    }
    int said[2];
    EXPECT_EQ(::pipe2(said, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      if (::setresuid(uid, uid, uid) != 0) ::_exit(90);
      Serve(make, said[1]);
    }
    ::close(said[1]);
    char ok = 0;
    EXPECT_EQ(::read(said[0], &ok, 1), 1);
    ::close(said[0]);
  }
  ~ForeignServer() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  [[noreturn]] void Serve(const std::function<int()>& make, int said) {
    std::vector<pollfd> listeners;
    for (const std::string& name : names_) {
      const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                               1 + name.size());
      if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
          ::listen(fd, 8) != 0) {
        ::_exit(91);
      }
      listeners.push_back({fd, POLLIN, 0});
    }
    (void)!::write(said, "1", 1);
    const uint8_t byte = 0;
    while (::poll(listeners.data(), listeners.size(), -1) > 0) {
      for (const pollfd& listener : listeners) {
        if (listener.revents == 0) continue;
        const int client = ::accept(listener.fd, nullptr, nullptr);
        const int file = make();
        (void)SendWithDescriptors(client, {&byte, 1}, {file});
        ::close(file);
      }
    }
    ::_exit(92);
  }

  std::vector<std::string> names_;
  pid_t child_;
};

// A sparse memory file, which takes no memory.
int MemoryFile(size_t bytes) {
  const int fd = ::memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? fd : -1;
}

// Any user can have many names: with 24 names of one user, root's tool used to
// take 9 GB.
TEST(StatSocket, LimitsTheTextOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr size_t kMegabyte = 1 << 20;
  ForeignServer greedy(12345, 24, [] { return MemoryFile(12 * kMegabyte); });
  ForeignServer modest(12346, 1, [] { return MemoryFile(4 * kMegabyte); });
  Serving serving([] { return std::string(5 * kMegabyte, 'x'); });
  std::vector<std::string> names = greedy.names();
  names.push_back(modest.names()[0]);
  names.push_back(Ours()[0]);
  const auto replies = AskForReports(names, std::chrono::seconds(20));
  size_t of_greedy = 0;
  for (size_t i = 0; i < 24; ++i) {
    if (replies[i].ok()) {
      of_greedy += replies[i]->text.size();
    } else {
      EXPECT_EQ(replies[i].status().code(),
                absl::StatusCode::kResourceExhausted);
    }
  }
  // The greedy user's second report is read only if it arrives before the
  // modest user's.
  EXPECT_GE(of_greedy, 12 * kMegabyte);
  EXPECT_LE(of_greedy, 24 * kMegabyte);
  ASSERT_TRUE(replies[24].ok()) << replies[24].status();
  ASSERT_TRUE(replies[25].ok()) << replies[25].status();
}

// The client used to wait ten minutes for the seventeenth name.
TEST(StatSocket, SlowDescriptorsOfOtherUsersDoNotDelayTheClient) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ForeignServer slow(12345, 20, [] { return SlowToClose().Release(); });
  const size_t before = OpenFiles();
  for (int round = 0; round < 3; ++round) {
    for (const auto& reply :
         AskForReports(slow.names(), std::chrono::seconds(20))) {
      EXPECT_FALSE(reply.ok());
    }
    EXPECT_LE(OpenFiles(), before + slow.names().size());
  }
}

// The client used to wait for each 256 names as long as for one.
TEST(StatSocket, ManySilentNamesDoNotDelayTheOthers) {
  const std::string silent = Prefix(::getpid()) + "99";
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, silent.data(), silent.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          silent.size())),
            0);
  ASSERT_EQ(::listen(fd, 1), 0);
  Serving serving([] { return "report"; });
  std::vector<std::string> names(100 * 256, silent);
  names.push_back(Prefix(::getpid()) + "0");
  const auto begin = std::chrono::steady_clock::now();
  const auto replies = AskForReports(names, std::chrono::milliseconds(300));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(replies[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(replies.back().ok()) << replies.back().status();
  ::close(fd);
}

// Any process can create any name.
TEST(StatSocket, OddNamesAreNotListed) {
  const std::string odd[] = {"rxe_user-stat-",     "rxe_user-stat-x-0",
                             "rxe_user-stat-5",    "rxe_user-stat-5-",
                             "rxe_user-stat-5-0x", "rxe_user-stat--5-0"};
  std::vector<int> fds;
  for (const std::string& name : odd) {
    fds.push_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    ASSERT_EQ(::bind(fds.back(), reinterpret_cast<sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                            1 + name.size())),
              0);
  }
  const auto names = ListStatSockets();
  ASSERT_TRUE(names.ok());
  for (const std::string& name : odd) {
    EXPECT_EQ(std::ranges::count(*names, name), 0) << name;
  }
  for (const int fd : fds) ::close(fd);
}

}  // namespace
}  // namespace rxe_user
