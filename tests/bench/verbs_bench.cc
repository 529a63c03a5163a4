// What stock programs do not measure: many queue pairs, and idle ones. All are
// connected to each other in this process, in pairs.
//
//   verbs_bench --mode setup   CPU time to create, connect and destroy
//   verbs_bench --mode memory  resident memory of idle connected queue pairs
//   verbs_bench --mode many    a WRITE by each of many
//   verbs_bench --mode idle    connected after some WRITEs; says "ready" and
//                              is idle until its standard input ends
#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

struct Options {
  std::string mode = "setup";
  std::string device;
  int gid = 0;
  uint32_t qps = 1000;
  uint32_t depth = 16;  // of each queue
};

constexpr double kPatience = 60;  // seconds for a completion

[[noreturn]] void Die(const std::string& what, int error = errno) {
  std::fprintf(stderr, "verbs_bench: %s: %s\n", what.c_str(),
               std::strerror(error));
  std::exit(1);
}

double Seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Bytes of this process that are in memory and that no file has.
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

class Device {
 public:
  explicit Device(const Options& o) : gid_index_(o.gid) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    for (int i = 0; i < count && context_ == nullptr; ++i) {
      if (o.device.empty() || o.device == ibv_get_device_name(list[i])) {
        context_ = ibv_open_device(list[i]);
      }
    }
    if (list != nullptr) ibv_free_device_list(list);
    if (context_ == nullptr) Die("no device '" + o.device + "'", ENODEV);
    if (ibv_query_gid(context_, 1, gid_index_, &gid_) != 0) Die("GID");
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr) Die("protection domain");
    mr_ = ibv_reg_mr(pd_, bytes_, sizeof(bytes_),
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr_ == nullptr) Die("memory region");
    cq_ = ibv_create_cq(context_, 1024, nullptr, nullptr, 0);
    if (cq_ == nullptr) Die("completion queue");
  }

  // An even number of queue pairs, each connected to its neighbour.
  std::vector<ibv_qp*> Connected(uint32_t count, uint32_t depth) {
    std::vector<ibv_qp*> qps;
    qps.reserve(count);
    for (uint32_t i = 0; i < count; ++i) qps.push_back(Create(depth));
    for (uint32_t i = 0; i < count; ++i) Connect(qps[i], qps[i ^ 1]->qp_num);
    return qps;
  }

  void Destroy(std::vector<ibv_qp*>* qps) {
    for (ibv_qp* qp : *qps) {
      if (const int error = ibv_destroy_qp(qp)) Die("destroy", error);
    }
    qps->clear();
  }

  // One WRITE by each, some at a time, so that the CQ holds them.
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
  ibv_qp* Create(uint32_t depth) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {depth, depth, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    if (qp == nullptr) Die("create");
    return qp;
  }

  void Connect(ibv_qp* qp, uint32_t peer) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    int error = ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) Die("modify to INIT", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid_;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    error = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                              IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error != 0) Die("modify to RTR", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    error = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0) Die("modify to RTS", error);
  }

  int gid_index_;
  ibv_context* context_ = nullptr;
  ibv_gid gid_ = {};
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  alignas(64) uint8_t bytes_[64] = {};
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

  Device device(o);
  // What is made once: the lane, its sockets and its thread.
  std::vector<ibv_qp*> first = device.Connected(2, o.depth);
  device.WriteByEach(first);

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
    std::vector<ibv_qp*> qps = device.Connected(o.qps, o.depth);
    out["bytes_per_qp"] =
        (static_cast<double>(ResidentBytes()) - static_cast<double>(memory)) /
        o.qps;
    if (o.mode == "many") device.WriteByEach(qps);
    device.Destroy(&qps);
    out["cpu_s"] = Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    out["wall_s"] = Seconds(CLOCK_MONOTONIC) - wall;
  }
  device.Destroy(&first);
  std::puts(out.dump().c_str());
}
