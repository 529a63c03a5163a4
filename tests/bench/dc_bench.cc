// Measures what perftest does not: a DC initiator that changes its target with
// each message. Everything is within this process.
//
//   dc_bench --targets N   WRITEs of 8 bytes, one at a time, to N targets (DCT)
//                          in turn; 0: by an RC queue pair
//
// Prints the median time from post to completion in us.
#include <infiniband/mlx5dv.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/verbs_device.h"

namespace {

using verbs_bench::Die;
using verbs_bench::Seconds;

struct Options {
  std::string device;
  int gid = 0;
  uint32_t targets = 2;
  uint32_t messages = 5000;
};

constexpr uint64_t kKey = 0x1122334455667788;
constexpr double kPatience = 60;  // time limit for a completion in seconds

class Bench {
 public:
  explicit Bench(const Options& o)
      : device_(o.device, o.gid),
        mr_(device_.Register(bytes_, sizeof(bytes_))),
        cq_(device_.CreateCq(16)) {
    if (o.targets == 0) {
      qp_ = device_.Create(cq_, 1);
      ibv_qp* const peer = device_.Create(cq_, 1);
      device_.Connect(qp_, peer->qp_num);
      device_.Connect(peer, qp_->qp_num);
      return;
    }
    ibv_srq_init_attr attr = {};
    attr.attr = {1, 1, 0};
    srq_ = ibv_create_srq(device_.pd(), &attr);
    if (srq_ == nullptr) Die("shared receive queue");
    ibv_ah_attr address = device_.OwnAddress();
    ah_ = ibv_create_ah(device_.pd(), &address);
    if (ah_ == nullptr) Die("address handle");
    for (uint32_t i = 0; i < o.targets; ++i) {
      ibv_qp* const target = Create(MLX5DV_DCTYPE_DCT);
      ToRtr(target, true);
      targets_.push_back(target->qp_num);
    }
    qp_ = Create(MLX5DV_DCTYPE_DCI);
    ToRtr(qp_, false);
    ibv_qp_attr to = {};
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = 7;
    to.rnr_retry = 7;
    to.max_rd_atomic = 1;
    Modify(qp_, &to,
           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  // The time of one WRITE in us. `i`: its number.
  double Write(uint32_t i) {
    const double begin = Seconds(CLOCK_MONOTONIC);
    targets_.empty() ? PostRc() : PostDc(targets_[i % targets_.size()]);
    for (;;) {
      ibv_wc wc;
      const int n = ibv_poll_cq(cq_, 1, &wc);
      const double now = Seconds(CLOCK_MONOTONIC);
      if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS)) {
        Die("a WRITE failed", EIO);
      }
      if (n == 1) return (now - begin) * 1e6;
      if (now - begin > kPatience) Die("a WRITE", ETIMEDOUT);
    }
  }

 private:
  static void Modify(ibv_qp* qp, ibv_qp_attr* to, int mask) {
    if (const int error = ibv_modify_qp(qp, to, mask)) Die("modify", error);
  }

  ibv_qp* Create(mlx5dv_dc_type type) {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_DRIVER;
    attr.send_cq = attr.recv_cq = cq_;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = device_.pd();
    mlx5dv_qp_init_attr dc = {};
    dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dc.dc_init_attr.dc_type = type;
    if (type == MLX5DV_DCTYPE_DCT) {
      attr.srq = srq_;
      dc.dc_init_attr.dct_access_key = kKey;
    } else {
      attr.cap.max_send_wr = 1;
      attr.cap.max_send_sge = 1;
      attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    }
    ibv_qp* const qp = mlx5dv_create_qp(device_.context(), &attr, &dc);
    if (qp == nullptr) Die("create");
    return qp;
  }

  void ToRtr(ibv_qp* qp, bool target) {
    ibv_qp_attr to = {};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    Modify(qp, &to,
           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (target ? IBV_QP_ACCESS_FLAGS : 0));
    to = {};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.min_rnr_timer = 12;
    to.ah_attr = device_.OwnAddress();
    Modify(qp, &to,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
               (target ? IBV_QP_MIN_RNR_TIMER : 0));
  }

  void PostRc() {
    ibv_sge sge = {Address(), 8, mr_->lkey};
    ibv_send_wr wr = {}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = Address() + 8;
    wr.wr.rdma.rkey = mr_->rkey;
    if (const int error = ibv_post_send(qp_, &wr, &bad)) Die("post", error);
  }
  void PostDc(uint32_t target) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(qp_);
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, mr_->rkey, Address() + 8);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), ah_, target, kKey);
    ibv_wr_set_sge(qp, mr_->lkey, Address(), 8);
    if (const int error = ibv_wr_complete(qp)) Die("post", error);
  }

  uint64_t Address() const { return reinterpret_cast<uint64_t>(bytes_); }

  alignas(64) uint8_t bytes_[64] = {};
  verbs_bench::Device device_;
  ibv_mr* const mr_;
  ibv_cq* const cq_;
  ibv_srq* srq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_qp* qp_ = nullptr;  // sends
  std::vector<uint32_t> targets_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Latency of a DC initiator that changes its target");
  app.add_option("--targets", o.targets, "0: RC")->check(CLI::Range(0, 1000));
  app.add_option("--messages", o.messages)->check(CLI::Range(1, 10000000));
  app.add_option("--device", o.device, "the first one unless given");
  app.add_option("--gid", o.gid, "index");
  CLI11_PARSE(app, argc, argv);

  Bench bench(o);
  for (uint32_t i = 0; i < 100; ++i) bench.Write(i);
  std::vector<double> us(o.messages);
  for (uint32_t i = 0; i < o.messages; ++i) us[i] = bench.Write(i);
  std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
  const nlohmann::json out = {{"targets", o.targets},
                              {"messages", o.messages},
                              {"us", us[us.size() / 2]}};
  std::puts(out.dump().c_str());
}
