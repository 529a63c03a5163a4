// Measures what perftest does not: RDMA WRITEs of 64 KB out of a memory key
// with block signatures. Everything is within this process.
//
//   mkey_bench --signature crc32c   each block of 4096 bytes gets a CRC-32C on
//                                   the wire (crc32, crc64, t10dif, checksum)
//   mkey_bench --signature none     a memory key without signatures
//   mkey_bench --signature plain    the region itself
//
// --check: the blocks have signatures in memory, which are checked and not
// sent. Prints MB/s of data.
#include <infiniband/mlx5dv.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
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
  std::string signature = "crc32c";
  bool check = false;
  uint32_t messages = 20000;
};

constexpr uint32_t kData = 64 << 10;
constexpr uint32_t kBlocks = kData / 4096;
constexpr uint32_t kDepth = 16;   // outstanding WRITEs
constexpr double kPatience = 60;  // time limit for a completion in seconds
constexpr size_t kSpace = 2 * (kData + kBlocks * 8);

class Bench {
 public:
  explicit Bench(const Options& o)
      : bytes_(kSpace, 0x5a),
        device_(o.device, o.gid),
        mr_(device_.Register(bytes_.data(), bytes_.size())),
        cq_(device_.CreateCq(2 * kDepth)),
        qp_(Create()),
        peer_(Create()) {
    device_.Connect(qp_, peer_->qp_num);
    device_.Connect(peer_, qp_->qp_num);
    lkey_ = mr_->lkey;
    from_ = reinterpret_cast<uint64_t>(bytes_.data());
    if (o.signature != "plain") Configure(o);
  }

  // Seconds for that many messages.
  double Run(uint32_t messages) {
    const double begin = Seconds(CLOCK_MONOTONIC);
    uint32_t posted = 0;
    double last = begin;
    for (uint32_t done = 0; done < messages;) {
      while (posted < messages && posted - done < kDepth) {
        Post();
        ++posted;
      }
      ibv_wc wc[kDepth];
      const int n = ibv_poll_cq(cq_, kDepth, wc);
      for (int i = 0; i < n; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) Die("a WRITE failed", EIO);
      }
      const double now = Seconds(CLOCK_MONOTONIC);
      if (n > 0) last = now;
      if (n < 0 || now - last > kPatience) Die("a WRITE", ETIMEDOUT);
      done += static_cast<uint32_t>(n);
    }
    return Seconds(CLOCK_MONOTONIC) - begin;
  }

 private:
  ibv_qp* Create() {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {kDepth + 1, 1, 1, 1, 512};  // and the configuration
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = device_.pd();
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    ibv_qp* const qp = mlx5dv_create_qp(device_.context(), &attr, &mlx5);
    if (qp == nullptr) Die("create");
    return qp;
  }

  void Configure(const Options& o) {
    mlx5dv_sig_crc crc = {MLX5DV_SIG_CRC_TYPE_CRC32C, 0};
    mlx5dv_sig_t10dif t10 = {};
    mlx5dv_sig_block_domain domain = {};
    domain.block_size = MLX5DV_BLOCK_SIZE_4096;
    domain.sig_type = MLX5DV_SIG_TYPE_CRC;
    domain.sig.crc = &crc;
    uint32_t guard = 4;
    if (o.signature == "crc32") crc.type = MLX5DV_SIG_CRC_TYPE_CRC32;
    if (o.signature == "crc64") {
      crc.type = MLX5DV_SIG_CRC_TYPE_CRC64_XP10;
      guard = 8;
    }
    if (o.signature == "t10dif" || o.signature == "checksum") {
      domain.sig_type = MLX5DV_SIG_TYPE_T10DIF;
      domain.sig.dif = &t10;
      if (o.signature == "checksum") t10.bg_type = MLX5DV_SIG_T10DIF_CSUM;
      guard = 8;
    }
    const bool has_signature = o.signature != "none";
    if (!has_signature) guard = 0;
    mlx5dv_mkey_init_attr init = {
        device_.pd(),
        MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
            MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
        4};
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&init);
    if (mkey == nullptr) Die("memory key");
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(qp_);
    mlx5dv_qp_ex* const mlx5 = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
    mlx5dv_mkey_conf_attr conf = {};
    ibv_sge sge = {from_, kData + (o.check ? kBlocks * guard : 0), mr_->lkey};
    mlx5dv_sig_block_attr attr = {};
    (o.check ? attr.mem : attr.wire) = &domain;
    attr.check_mask = 0xff;
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_INLINE;
    mlx5dv_wr_mkey_configure(mlx5, mkey, has_signature ? 3 : 2, &conf);
    mlx5dv_wr_set_mkey_access_flags(mlx5, IBV_ACCESS_LOCAL_WRITE);
    mlx5dv_wr_set_mkey_layout_list(mlx5, 1, &sge);
    if (has_signature) mlx5dv_wr_set_mkey_sig_block(mlx5, &attr);
    if (const int error = ibv_wr_complete(qp)) Die("configure", error);
    lkey_ = mkey->lkey;
    from_ = 0;
    if (!o.check) length_ += kBlocks * guard;
  }

  void Post() {
    ibv_sge sge = {from_, length_, lkey_};
    ibv_send_wr wr = {}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr =
        reinterpret_cast<uint64_t>(bytes_.data() + kSpace / 2);
    wr.wr.rdma.rkey = mr_->rkey;
    if (const int error = ibv_post_send(qp_, &wr, &bad)) Die("post", error);
  }

  std::vector<uint8_t> bytes_;
  verbs_bench::Device device_;
  ibv_mr* const mr_;
  ibv_cq* const cq_;
  ibv_qp* const qp_;  // sends
  ibv_qp* const peer_;
  uint64_t from_ = 0;
  uint32_t length_ = kData;
  uint32_t lkey_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("WRITEs out of a memory key with block signatures");
  app.add_option("--signature", o.signature)
      ->check(CLI::IsMember(
          {"plain", "none", "crc32", "crc32c", "crc64", "t10dif", "checksum"}));
  app.add_flag("--check", o.check, "signatures in memory, not on the wire");
  app.add_option("--messages", o.messages)->check(CLI::Range(1, 10000000));
  app.add_option("--device", o.device, "the first one unless given");
  app.add_option("--gid", o.gid, "index");
  CLI11_PARSE(app, argc, argv);

  Bench bench(o);
  bench.Run(1000);
  const double seconds = bench.Run(o.messages);
  const nlohmann::json out = {
      {"signature", o.signature},
      {"check", o.check},
      {"messages", o.messages},
      {"MB/s", static_cast<double>(o.messages) * kData / seconds / 1e6}};
  std::puts(out.dump().c_str());
}
