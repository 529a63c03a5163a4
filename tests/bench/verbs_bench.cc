// Measures what stock programs do not: many queue pairs, and idle ones. All are
// connected in pairs within this process.
//
//   verbs_bench --mode setup   CPU time to create, connect and destroy
//   verbs_bench --mode memory  resident memory of idle connected queue pairs
//   verbs_bench --mode many    a WRITE by each of many queue pairs
//   verbs_bench --mode idle    connected after some WRITEs; prints "ready" and
//                              is idle until its standard input ends
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/verbs_device.h"

namespace {

using verbs_bench::Die;
using verbs_bench::Seconds;

struct Options {
  std::string mode = "setup";
  std::string device;
  int gid = 0;
  uint32_t qps = 1000;
  uint32_t depth = 16;  // of each queue
};

constexpr double kPatience = 60;  // time limit for a completion in seconds

// Resident anonymous memory of this process in bytes.
uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("RssAnon:", 0) == 0) {
      return std::strtoull(line.c_str() + 8, nullptr, 10) * 1024;
    }
  }
  Die("/proc/self/status has no RssAnon", ENOENT);
}

// Queue pairs with one completion queue.
class QueuePairs {
 public:
  explicit QueuePairs(const Options& o)
      : device_(o.device, o.gid),
        mr_(device_.Register(bytes_, sizeof(bytes_))),
        cq_(device_.CreateCq(1024)) {}

  // An even number of queue pairs, each connected to its neighbour.
  std::vector<ibv_qp*> Connected(uint32_t count, uint32_t depth) {
    std::vector<ibv_qp*> qps;
    qps.reserve(count);
    for (uint32_t i = 0; i < count; ++i)
      qps.push_back(device_.Create(cq_, depth));
    for (uint32_t i = 0; i < count; ++i) {
      device_.Connect(qps[i], qps[i ^ 1]->qp_num);
    }
    return qps;
  }

  void Destroy(std::vector<ibv_qp*>* qps) {
    for (ibv_qp* qp : *qps) {
      if (const int error = ibv_destroy_qp(qp)) Die("destroy", error);
    }
    qps->clear();
  }

  // One WRITE by each queue pair, a few at a time so that they fit the CQ.
  void WriteByEach(const std::vector<ibv_qp*>& qps) {
    constexpr size_t kAtOnce = 256;
    for (size_t begin = 0; begin < qps.size(); begin += kAtOnce) {
      const size_t end = std::min(qps.size(), begin + kAtOnce);
      for (size_t i = begin; i < end; ++i) {
        ibv_sge sge = {reinterpret_cast<uint64_t>(bytes_), 8, mr_->lkey};
        ibv_send_wr wr = {}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = sge.addr + 8;
        wr.wr.rdma.rkey = mr_->rkey;
        if (const int error = ibv_post_send(qps[i], &wr, &bad)) {
          Die("post", error);
        }
      }
      const double until = Seconds(CLOCK_MONOTONIC) + kPatience;
      for (size_t done = begin; done < end;) {
        ibv_wc wc;
        const int n = ibv_poll_cq(cq_, 1, &wc);
        if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS)) {
          Die("a WRITE failed", EIO);
        }
        done += static_cast<size_t>(n);
        if (Seconds(CLOCK_MONOTONIC) > until) Die("a WRITE", ETIMEDOUT);
      }
    }
  }

 private:
  alignas(64) uint8_t bytes_[64] = {};
  verbs_bench::Device device_;
  ibv_mr* const mr_;
  ibv_cq* const cq_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Many queue pairs and idle ones");
  app.add_option("--mode", o.mode)
      ->check(CLI::IsMember({"setup", "memory", "many", "idle"}));
  app.add_option("--device", o.device, "the first one unless given");
  app.add_option("--gid", o.gid, "index");
  app.add_option("--qps", o.qps, "how many queue pairs")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--depth", o.depth, "requests that each queue holds")
      ->check(CLI::Range(1, 16384));
  CLI11_PARSE(app, argc, argv);
  o.qps += o.qps % 2;

  QueuePairs all(o);
  // Creates what exists once: the lane, its sockets and its thread.
  std::vector<ibv_qp*> first = all.Connected(2, o.depth);
  all.WriteByEach(first);

  nlohmann::json out = {{"mode", o.mode}, {"qps", o.qps}, {"depth", o.depth}};
  const double wall = Seconds(CLOCK_MONOTONIC);
  const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  const uint64_t memory = ResidentBytes();
  if (o.mode == "idle") {
    std::puts("ready");
    std::fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
  } else {
    std::vector<ibv_qp*> qps = all.Connected(o.qps, o.depth);
    out["bytes_per_qp"] =
        (static_cast<double>(ResidentBytes()) - static_cast<double>(memory)) /
        o.qps;
    if (o.mode == "many") all.WriteByEach(qps);
    all.Destroy(&qps);
    out["cpu_s"] = Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    out["wall_s"] = Seconds(CLOCK_MONOTONIC) - wall;
  }
  all.Destroy(&first);
  std::puts(out.dump().c_str());
}
