// Many processes on one address, each with a listener, an active and a passive
// connection, and so with two slots of the UDP port.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

// RXE_USER_TEST_PROCESSES: for a run by hand, up to 1,900.
size_t Processes() {
  const char* text = std::getenv("RXE_USER_TEST_PROCESSES");
  return text != nullptr ? std::stoul(text) : 40;
}

constexpr uint16_t kFirstPort = 20'000;

rdma_cm_id* NewEndpoint(int flags, size_t process) {
  rdma_addrinfo hints = {};
  hints.ai_flags = flags | RAI_NUMERICHOST;
  hints.ai_qp_type = IBV_QPT_RC;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  const std::string port = std::to_string(kFirstPort + process);
  if (rdma_getaddrinfo("127.0.0.1", port.c_str(), &hints, &info) != 0) {
    return nullptr;
  }
  ibv_qp_init_attr attr = {};
  attr.cap = {1, 1, 1, 1, 0};
  attr.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, info, nullptr, &attr) != 0) id = nullptr;
  rdma_freeaddrinfo(info);
  return id;
}

// Receives one number from a connection. False with errno set.
bool Serve(rdma_cm_id* listener, uint64_t* number) {
  rdma_cm_id* id = nullptr;
  if (rdma_get_request(listener, &id) != 0) return false;
  ibv_mr* const mr = rdma_reg_msgs(id, number, sizeof(*number));
  ibv_wc wc = {};
  return mr != nullptr &&
         rdma_post_recv(id, nullptr, number, sizeof(*number), mr) == 0 &&
         rdma_accept(id, nullptr) == 0 && rdma_get_recv_comp(id, &wc) == 1 &&
         wc.status == IBV_WC_SUCCESS;
}

bool Ask(size_t process, uint64_t number) {
  rdma_cm_id* const id = NewEndpoint(0, process);
  if (id == nullptr) return false;
  ibv_mr* const mr = rdma_reg_msgs(id, &number, sizeof(number));
  ibv_wc wc = {};
  return mr != nullptr && rdma_connect(id, nullptr) == 0 &&
         rdma_post_send(id, nullptr, &number, sizeof(number), mr, 0) == 0 &&
         rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS;
}

// One of the processes. Tells `control` of each step, or why it failed, and
// waits there for the next one.
[[noreturn]] void Participate(int control, size_t own, size_t peer) {
  const auto say = [control](bool done, const char* step) {
    const std::string text =
        done ? "" : std::string(step) + ": " + std::strerror(errno);
    (void)!write(control, text.c_str(), text.size() + 1);
    char go;
    if (!done || read(control, &go, 1) != 1) _exit(1);
  };
  rdma_cm_id* const listener = NewEndpoint(RAI_PASSIVE, own);
  say(listener != nullptr && rdma_listen(listener, 4) == 0, "listen");
  uint64_t number = 0;
  bool served = false;
  int error = 0;
  std::thread server([&] {
    served = Serve(listener, &number);
    error = errno;
  });
  const bool asked = Ask(peer, 1000 + peer);
  if (!asked) say(false, "connect");
  server.join();
  errno = error;
  say(served && number == 1000 + own, "accept");
  _exit(0);
}

TEST(ManyProcesses, EachHasConnectionsOnOneAddress) {
  const size_t count = Processes();
  struct Process {
    pid_t pid;
    int control;
  };
  std::vector<Process> processes;
  for (size_t i = 0; i < count; ++i) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const Process& other : processes) close(other.control);
      close(ends[0]);
      Participate(ends[1], i, (i + 1) % count);
    }
    close(ends[1]);
    processes.push_back({pid, ends[0]});
  }
  size_t failed = 0;
  auto begin = std::chrono::steady_clock::now();
  for (const char* step : {"listen", "connect"}) {
    for (const Process& process : processes) {
      char text[256] = "it has ended";
      (void)!read(process.control, text, sizeof(text));
      if (text[0] != '\0' && ++failed <= 5) {
        ADD_FAILURE() << "step " << step << ", process "
                      << &process - processes.data() << ": " << text;
      }
    }
    const auto now = std::chrono::steady_clock::now();
    std::printf("%zu processes, %s: %.1f s\n", count, step,
                std::chrono::duration<double>(now - begin).count());
    begin = now;
    if (failed != 0) break;
    for (const Process& process : processes) {
      ASSERT_EQ(write(process.control, "", 1), 1);
    }
  }
  EXPECT_EQ(failed, 0u);
  for (const Process& process : processes) close(process.control);
  for (const Process& process : processes) waitpid(process.pid, nullptr, 0);
}

}  // namespace
}  // namespace conformance
