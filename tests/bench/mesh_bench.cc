// Processes of one host, each connected to each, send one message or more to
// each other. Measures the time and the memory of all together.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/verbs_device.h"

namespace {

using verbs_bench::Device;
using verbs_bench::Die;
using verbs_bench::Seconds;

constexpr uint32_t kMaxProcesses = 512;
// 1.1 s: a process may wait long for a processor.
constexpr uint8_t kTimeout = 18;

struct Options {
  std::string device;
  int gid = 0;
  uint32_t processes = 16;
  uint32_t messages = 1;
  uint32_t size = 64;
  unsigned limit = 120;
};

// Data that all processes share.
struct Shared {
  pthread_barrier_t barrier;
  std::atomic<uint64_t> pss_kib;
  // [from][to]: the queue pair of process `from` that is connected to `to`.
  uint32_t qpn[kMaxProcesses][kMaxProcesses];
};

class Process {
 public:
  Process(const Options& o, uint32_t self, Shared* shared)
      : o_(o),
        self_(self),
        shared_(*shared),
        device_(o.device, o.gid),
        memory_(o.size),
        mr_(device_.Register(memory_.data(), memory_.size())),
        channel_(ibv_create_comp_channel(device_.context())) {
    if (channel_ == nullptr) Die("completion channel");
    cq_ = ibv_create_cq(device_.context(),
                        static_cast<int>(2 * o.messages * o.processes), nullptr,
                        channel_, 0);
    if (cq_ == nullptr) Die("completion queue");
    for (uint32_t peer = 0; peer < o.processes; ++peer) {
      qps_.push_back(peer == self ? nullptr : device_.Create(cq_, o.messages));
      if (peer != self) shared->qpn[self][peer] = qps_.back()->qp_num;
    }
  }

  void Run() {
    Meet();
    ibv_sge sge = {reinterpret_cast<uint64_t>(memory_.data()), o_.size,
                   mr_->lkey};
    ibv_recv_wr receive = {};
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ibv_send_wr send = {};
    send.sg_list = &sge;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    for (uint32_t peer = 0; peer < o_.processes; ++peer) {
      if (peer == self_) continue;
      device_.Connect(qps_[peer], shared_.qpn[peer][self_], kTimeout);
      for (uint32_t i = 0; i < o_.messages; ++i) {
        ibv_recv_wr* bad;
        if (const int error = ibv_post_recv(qps_[peer], &receive, &bad)) {
          Die("receive", error);
        }
      }
    }
    Meet();
    for (uint32_t i = 0; i < o_.messages; ++i) {
      for (uint32_t p = 1; p < o_.processes; ++p) {
        ibv_send_wr* bad;
        ibv_qp* const qp = qps_[(self_ + p) % o_.processes];
        if (const int error = ibv_post_send(qp, &send, &bad)) {
          Die("send", error);
        }
      }
    }
    for (uint64_t left = 2ull * o_.messages * (o_.processes - 1); left != 0;) {
      left -= Poll();
    }
    Meet();
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
      unsigned long kib;
      if (std::sscanf(line.c_str(), "Pss: %lu kB", &kib) == 1) {
        shared_.pss_kib += kib;
      }
    }
    Meet();
  }

 private:
  void Meet() { pthread_barrier_wait(&shared_.barrier); }

  // The number of completions; waits for one.
  uint64_t Poll() {
    for (bool asked = false;; asked = !asked) {
      ibv_wc wc[64];
      const int got = ibv_poll_cq(cq_, 64, wc);
      if (got < 0) Die("poll", EIO);
      for (int i = 0; i < got; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) {
          Die(ibv_wc_status_str(wc[i].status), EIO);
        }
      }
      if (got != 0) return static_cast<uint64_t>(got);
      if (!asked) {
        if (const int error = ibv_req_notify_cq(cq_, 0)) Die("notify", error);
        continue;
      }
      ibv_cq* cq;
      void* context;
      if (ibv_get_cq_event(channel_, &cq, &context) != 0) Die("event");
      ibv_ack_cq_events(cq, 1);
    }
  }

  const Options& o_;
  const uint32_t self_;
  Shared& shared_;
  Device device_;
  std::vector<uint8_t> memory_;
  ibv_mr* const mr_;
  ibv_comp_channel* const channel_;
  ibv_cq* cq_ = nullptr;
  std::vector<ibv_qp*> qps_;
};

nlohmann::json Run(const Options& o) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("memory");
  auto* const shared = new (memory) Shared;
  pthread_barrierattr_t attr;
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attr, o.processes + 1);
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < o.processes; ++i) {
    const pid_t child = fork();
    if (child < 0) Die("fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Process(o, i, shared).Run();
      std::exit(0);
    }
    children.push_back(child);
  }
  // If one of them fails, the others wait for it, until all die with this one.
  alarm(o.limit);
  double times[5];
  times[0] = Seconds(CLOCK_MONOTONIC);
  for (int i = 1; i < 5; ++i) {
    pthread_barrier_wait(&shared->barrier);
    times[i] = Seconds(CLOCK_MONOTONIC);
  }
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
      Die("a process", ECHILD);
    }
  }
  return {{"processes", o.processes},
          {"messages", o.messages},
          {"open_s", times[1] - times[0]},
          {"connect_s", times[2] - times[1]},
          {"send_s", times[3] - times[2]},
          {"pss_mib", static_cast<double>(shared->pss_kib) / 1024}};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("messages among processes that are all connected");
  app.add_option("--device", o.device, "the first one unless given");
  app.add_option("--gid", o.gid, "index");
  app.add_option("--processes", o.processes)
      ->check(CLI::Range(2u, kMaxProcesses));
  app.add_option("--messages", o.messages, "of a process to each other one")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--size", o.size, "bytes of a message")
      ->check(CLI::Range(1u, 1u << 20));
  app.add_option("--limit", o.limit, "seconds for everything");
  CLI11_PARSE(app, argc, argv);
  std::puts(Run(o).dump().c_str());
}
