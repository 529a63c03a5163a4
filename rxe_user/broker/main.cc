// rxe-user-port-broker: shares UDP port 4791 of a network namespace among
// processes. The library starts it when it is needed. Started by hand (as root,
// to serve all users) with --stay, it does not end.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "rxe_user/base/environment.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/server.h"
#include "rxe_user/broker/spawn.h"

namespace {

using rxe_user::UniqueFd;
using rxe_user::broker::Server;

// Resets what we inherited from the program that started us.
void ResetProcess() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // the ledger then fails to grow, with an error
  // If a setuid program started us, its caller must not be able to signal us.
  (void)!setresgid(getegid(), getegid(), getegid());
  (void)!setresuid(geteuid(), geteuid(), geteuid());
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    // Root may raise the limit above that of the program that started us.
    const rlimit wanted = {65'536, 65'536};
    if (files.rlim_max < wanted.rlim_max &&
        setrlimit(RLIMIT_NOFILE, &wanted) == 0) {
      files = wanted;
    }
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

// The broker serves all processes, so it drops the priority and OOM score of
// the program that started it.
void ResetPriority() {
  if (getpriority(PRIO_PROCESS, 0) > 0) (void)setpriority(PRIO_PROCESS, 0, 0);
  const UniqueFd file(open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  char score[16] = {};
  if (read(file.get(), score, sizeof(score) - 1) > 0 && std::atoi(score) > 0) {
    (void)!pwrite(file.get(), "0\n", 2, 0);
  }
}

// It also drops the limits of that program, which for a setuid program are its
// caller's. Where it may not exceed a hard limit, it raises the soft limit to
// it.
void ResetLimits() {
  for (const auto resource :
       {RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_MEMLOCK,
        RLIMIT_NPROC, RLIMIT_RTTIME, RLIMIT_SIGPENDING}) {
    const rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(resource, &unlimited) == 0) continue;
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(resource, &limit);
  }
}

int Usage(const char* wrong) {
  std::fprintf(stderr,
               "rxe-user-port-broker: %s (usage: rxe-user-port-broker "
               "[--stay])\n",
               wrong);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Server::Options options;
  int ready = -1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--stay") {
      options.linger = std::chrono::milliseconds(-1);
    } else if (argument == rxe_user::broker::kReadyArgument) {
      ready = rxe_user::broker::kReadyFd;  // started by the library
    } else {
      return Usage(("unknown argument " + argument).c_str());
    }
  }
  ResetProcess();
  options.containers = geteuid() == 0;
  if (ready >= 0) {
    ResetPriority();
    ResetLimits();
  }
  const char* linger = rxe_user::Environment("RXE_USER_BROKER_LINGER_MS");
  if (linger != nullptr && options.linger.count() >= 0) {
    options.linger = std::chrono::milliseconds(std::atoi(linger));
  }
  auto server = Server::Create(options);
  const bool raced = absl::IsAlreadyExists(server.status());
  if (ready >= 0 && (server.ok() || raced)) {
    // This broker or another one serves now.
    (void)!write(ready, &rxe_user::broker::kServesByte, 1);
    close(ready);
    if (raced) return 0;
  }
  if (!server.ok()) {
    const std::string why(server.status().message());
    if (ready >= 0) {
      const std::string said = rxe_user::broker::kFailedByte + why;
      (void)!write(ready, said.data(), said.size());
    }
    std::fprintf(stderr, "rxe-user-port-broker: %s\n", why.c_str());
    return 1;
  }
  (*server)->Run();
  return 0;
}
