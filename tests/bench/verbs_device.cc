#include "tests/bench/verbs_device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace verbs_bench {

void Die(const std::string& what, int error) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name,
               what.c_str(), std::strerror(error));
  std::exit(1);
}

double Seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Device::Device(const std::string& name, int gid_index) : gid_index_(gid_index) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count && context_ == nullptr; ++i) {
    if (name.empty() || name == ibv_get_device_name(list[i])) {
      context_ = ibv_open_device(list[i]);
    }
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (context_ == nullptr) Die("no device '" + name + "'", ENODEV);
  if (ibv_query_gid(context_, 1, gid_index_, &gid_) != 0) Die("GID");
  pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr) Die("protection domain");
}

ibv_mr* Device::Register(void* memory, size_t bytes) {
  ibv_mr* mr = ibv_reg_mr(pd_, memory, bytes,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (mr == nullptr) Die("memory region");
  return mr;
}

ibv_cq* Device::CreateCq(int entries) {
  ibv_cq* cq = ibv_create_cq(context_, entries, nullptr, nullptr, 0);
  if (cq == nullptr) Die("completion queue");
  return cq;
}

ibv_qp* Device::Create(ibv_cq* cq, uint32_t depth) {
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {depth, depth, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  if (qp == nullptr) Die("create");
  return qp;
}

ibv_ah_attr Device::OwnAddress() const {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_;
  attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
  attr.grh.hop_limit = 64;
  return attr;
}

void Device::Connect(ibv_qp* qp, uint32_t peer, uint8_t timeout) {
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
  attr.ah_attr = OwnAddress();
  error = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                            IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) Die("modify to RTR", error);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = timeout;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  error = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) Die("modify to RTS", error);
}

}  // namespace verbs_bench
