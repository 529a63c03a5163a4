// WRITEs by several threads at once, each with its own queue pair and
// completion queue, to a passive process. Measures the effect of lanes:
// RXE_USER_LANES sets their number at each end.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/verbs_device.h"

namespace {

using verbs_bench::Device;
using verbs_bench::Die;
using verbs_bench::Seconds;

struct Options {
  std::string device;
  int gid = 0;
  uint32_t threads = 2;
  uint32_t size = 64;
  uint32_t depth = 128;
  double seconds = 1;
};

constexpr uint32_t kMaxThreads = 16;
constexpr uint64_t kStride = 1 << 20;  // between the memories of two threads
constexpr int kBatch =
    16;  // completions polled at once, and requests per completion

// Exchanged by the two ends.
struct Greeting {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t qpn[kMaxThreads] = {};
};

class End {
 public:
  End(const Options& o, int socket)
      : o_(o),
        socket_(socket),
        device_(o.device, o.gid),
        memory_(o.threads * kStride),
        mr_(device_.Register(memory_.data(), memory_.size())) {
    for (uint32_t t = 0; t < o.threads; ++t) {
      cqs_.push_back(device_.CreateCq(static_cast<int>(o.depth)));
      qps_.push_back(device_.Create(cqs_.back(), o.depth));
    }
  }

  void Connect() {
    Greeting mine;
    mine.address = reinterpret_cast<uint64_t>(memory_.data());
    mine.rkey = mr_->rkey;
    for (uint32_t t = 0; t < o_.threads; ++t) mine.qpn[t] = qps_[t]->qp_num;
    Exchange(&mine, &peer_, sizeof(mine));
    for (uint32_t t = 0; t < o_.threads; ++t) {
      device_.Connect(qps_[t], peer_.qpn[t]);
    }
    char mine_done = 0, peer_done;  // both are connected then
    Exchange(&mine_done, &peer_done, 1);
  }

  // Writes on one thread until `stop`. Returns the number of completions.
  uint64_t Write(uint32_t thread, const std::atomic<bool>& stop) {
    ibv_sge sge = {
        reinterpret_cast<uint64_t>(memory_.data()) + thread * kStride, o_.size,
        mr_->lkey};
    ibv_send_wr wr = {}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = peer_.address + thread * kStride;
    wr.wr.rdma.rkey = peer_.rkey;
    uint64_t posted = 0, done = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      for (; posted - done < o_.depth; ++posted) {
        wr.send_flags = (posted + 1) % kBatch == 0 ? IBV_SEND_SIGNALED : 0;
        if (const int error = ibv_post_send(qps_[thread], &wr, &bad)) {
          Die("post", error);
        }
      }
      ibv_wc wc[kBatch];
      const int got = ibv_poll_cq(cqs_[thread], kBatch, wc);
      if (got < 0) Die("poll", EIO);
      for (int i = 0; i < got; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) Die("a WRITE failed", EIO);
      }
      done += static_cast<uint64_t>(got) * kBatch;
    }
    return done;
  }

 private:
  void Exchange(const void* mine, void* theirs, size_t bytes) {
    if (send(socket_, mine, bytes, MSG_NOSIGNAL) !=
            static_cast<ssize_t>(bytes) ||
        recv(socket_, theirs, bytes, MSG_WAITALL) !=
            static_cast<ssize_t>(bytes)) {
      Die("the other end", ECONNRESET);
    }
  }

  const Options& o_;
  const int socket_;
  Device device_;
  std::vector<uint8_t> memory_;
  ibv_mr* const mr_;
  std::vector<ibv_cq*> cqs_;
  std::vector<ibv_qp*> qps_;
  Greeting peer_;
};

void Serve(const Options& o, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  End end(o, socket);
  end.Connect();
  char byte;
  while (recv(socket, &byte, 1, 0) > 0) {
  }
}

nlohmann::json Run(const Options& o, int socket) {
  End end(o, socket);
  end.Connect();
  std::atomic<bool> stop = false;
  std::vector<uint64_t> done(o.threads);
  std::vector<std::thread> threads;
  const double start = Seconds(CLOCK_MONOTONIC);
  for (uint32_t t = 0; t < o.threads; ++t) {
    threads.emplace_back([&, t] { done[t] = end.Write(t, stop); });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(o.seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const double seconds = Seconds(CLOCK_MONOTONIC) - start;
  uint64_t messages = 0;
  for (const uint64_t count : done) messages += count;
  const double rate = static_cast<double>(messages) / seconds;
  return {{"threads", o.threads},
          {"size", o.size},
          {"messages", done},
          {"m_messages_per_s", rate * 1e-6},
          {"gbit_per_s", rate * o.size * 8e-9}};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("WRITEs by several threads to a passive process");
  app.add_option("--device", o.device, "the first one unless given");
  app.add_option("--gid", o.gid, "index");
  app.add_option("--threads", o.threads)->check(CLI::Range(1u, kMaxThreads));
  app.add_option("--size", o.size, "bytes of a message")
      ->check(CLI::Range(uint64_t{1}, kStride));
  app.add_option("--depth", o.depth, "WRITEs of a thread on their way")
      ->check(CLI::Range(kBatch, 4096));
  app.add_option("--seconds", o.seconds)->check(CLI::Range(0.1, 60.0));
  CLI11_PARSE(app, argc, argv);

  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    Die("socketpair");
  }
  // Before the device is opened, because a child of fork cannot use it.
  const pid_t server = fork();
  if (server < 0) Die("fork");
  if (server == 0) {
    close(ends[0]);
    Serve(o, ends[1]);
    return 0;
  }
  close(ends[1]);
  const nlohmann::json result = Run(o, ends[0]);
  close(ends[0]);
  int status = 0;
  if (waitpid(server, &status, 0) != server || status != 0) {
    Die("the server", ECHILD);
  }
  std::puts(result.dump().c_str());
}
