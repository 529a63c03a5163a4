// Layout checks of the C ABI, and conversions that several files use.
#include "verbs_api/libibverbs/abi.h"

#include <cstddef>

namespace verbs_api {

// The offsets are compiled into applications by the header's inline functions.
// Measured with rdma-core 44; unchanged up to 65. The application may be
// compiled with another version of the header than this library, and newer
// versions append members, so the size of a structure that can grow is a lower
// bound.
//
// A structure with a mutex is longer where the mutex is longer. Measured on
// x86-64 and aarch64.
#if defined(__x86_64__)
static_assert(sizeof(pthread_mutex_t) == 40);
#elif defined(__aarch64__)
static_assert(sizeof(pthread_mutex_t) == 48);
#endif
constexpr size_t kLonger = sizeof(pthread_mutex_t) - 40;
static_assert(sizeof(ibv_device) == 664);
static_assert(sizeof(ibv_context) == 328 + kLonger);
static_assert(sizeof(ibv_context_ops) == 256);
// A verbs_context grows at its front. Applications compute offsets relative to
// `context`, and `sz` tells them how much precedes it.
constexpr size_t BeforeContext(size_t offset) {
  return offsetof(verbs_context, context) - offset;
}
static_assert(sizeof(verbs_context) >= 648 + kLonger);
static_assert(BeforeContext(sizeof(verbs_context)) == -sizeof(ibv_context));
static_assert(BeforeContext(offsetof(verbs_context, sz)) == 8);
static_assert(BeforeContext(offsetof(verbs_context, close_xrcd)) == 24);
static_assert(BeforeContext(offsetof(verbs_context, create_srq_ex)) == 40);
static_assert(BeforeContext(offsetof(verbs_context, create_qp_ex)) == 56);
static_assert(BeforeContext(offsetof(verbs_context, query_device_ex)) == 104);
static_assert(BeforeContext(offsetof(verbs_context, create_cq_ex)) == 120);
static_assert(BeforeContext(offsetof(verbs_context, query_port)) == 320);
static_assert(offsetof(ibv_context, ops) == 8);
static_assert(offsetof(ibv_context, async_fd) == 268);
static_assert(offsetof(ibv_context, num_comp_vectors) == 272);
static_assert(offsetof(ibv_context, abi_compat) == 320 + kLonger);
static_assert(offsetof(ibv_context_ops, alloc_mw) == 56);
static_assert(offsetof(ibv_context_ops, poll_cq) == 88);
static_assert(offsetof(ibv_context_ops, req_notify_cq) == 96);
static_assert(offsetof(ibv_context_ops, post_srq_recv) == 160);
static_assert(offsetof(ibv_context_ops, post_send) == 200);
static_assert(offsetof(ibv_context_ops, post_recv) == 208);
static_assert(sizeof(ibv_qp) == 160 + kLonger &&
              offsetof(ibv_qp, qp_num) == 52);
static_assert(sizeof(ibv_qp_ex) >= 352 + kLonger);
static_assert(offsetof(ibv_qp_ex, wr_atomic_write) == 344 + kLonger);
static_assert(sizeof(ibv_cq) == 128 + kLonger);
static_assert(sizeof(ibv_cq_ex) == 288 + kLonger);
static_assert(offsetof(ibv_cq_ex, status) == 132 + kLonger);
static_assert(sizeof(ibv_srq) == 128 + kLonger);
static_assert(sizeof(ibv_mr) == 48 && offsetof(ibv_mr, lkey) == 36);
static_assert(sizeof(ibv_pd) == 16);
static_assert(sizeof(ibv_ah) == 24);
static_assert(sizeof(ibv_comp_channel) == 16);
static_assert(sizeof(ibv_wc) == 48);
static_assert(sizeof(ibv_send_wr) == 128);
static_assert(sizeof(ibv_recv_wr) == 32);
static_assert(sizeof(ibv_gid_entry) == 32);
static_assert(sizeof(ibv_async_event) == 16);
static_assert(sizeof(ibv_port_attr) >= 52);
static_assert(offsetof(ibv_port_attr, port_cap_flags2) == 48);
static_assert(sizeof(ibv_device_attr_ex) >= 400);
static_assert(offsetof(ibv_device_attr_ex, phys_port_cnt_ex) == 396);

// Each of our structures begins with the C structure.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(ExtendedQp::Part, qp_base) == 0);
static_assert(offsetof(ExtendedQp::Part, wr_flush) == 352 + kLonger);
static_assert(offsetof(Cq, status) == 132 + kLonger);
static_assert(offsetof(Device, not_a_vendor_device) >= 664);
#pragma GCC diagnostic pop

// --- Enumerators that have the same values in the transport and in the ABI.
static_assert(int{IBV_QPT_RC} == static_cast<int>(transport::QpType::kRc));
static_assert(int{IBV_QPS_ERR} == static_cast<int>(transport::QpState::kErr));
static_assert(int{IBV_WR_RDMA_WRITE} ==
              static_cast<int>(transport::SendOpcode::kRdmaWrite));
static_assert(int{IBV_WR_SEND_WITH_INV} ==
              static_cast<int>(transport::SendOpcode::kSendWithInvalidate));
static_assert(int{IBV_WR_ATOMIC_WRITE} ==
              static_cast<int>(transport::SendOpcode::kAtomicWrite));
static_assert(int{IBV_SEND_FENCE} == int{transport::kSendFence});
static_assert(int{IBV_SEND_SIGNALED} == int{transport::kSendSignaled});
static_assert(int{IBV_SEND_SOLICITED} == int{transport::kSendSolicited});
static_assert(int{IBV_SEND_INLINE} == int{transport::kSendInline});
static_assert(int{IBV_WC_WR_FLUSH_ERR} ==
              static_cast<int>(transport::WcStatus::kFlushed));
static_assert(int{IBV_WC_RNR_RETRY_EXC_ERR} ==
              static_cast<int>(transport::WcStatus::kRnrRetryExceeded));
static_assert(int{IBV_WC_RESP_TIMEOUT_ERR} ==
              static_cast<int>(transport::WcStatus::kResponseTimeout));
static_assert(int{IBV_WC_GENERAL_ERR} ==
              static_cast<int>(transport::WcStatus::kGeneral));
static_assert(int{IBV_WC_RECV} ==
              static_cast<int>(transport::WcOpcode::kReceive));
static_assert(int{IBV_WC_RECV_RDMA_WITH_IMM} ==
              static_cast<int>(transport::WcOpcode::kReceiveRdmaWithImm));
static_assert(int{IBV_WC_ATOMIC_WRITE} ==
              static_cast<int>(transport::WcOpcode::kAtomicWrite));
static_assert(int{IBV_WR_DRIVER1} ==
              static_cast<int>(transport::SendOpcode::kConfigureMkey));
static_assert(int{IBV_WC_DRIVER1} ==
              static_cast<int>(transport::WcOpcode::kConfigureMkey));
static_assert(int{IBV_WC_DRIVER2} ==
              static_cast<int>(transport::WcOpcode::kRawWqe));
static_assert(int{IBV_WC_DRIVER3} ==
              static_cast<int>(transport::WcOpcode::kMemcpy));
static_assert(int{IBV_WC_WITH_INV} == int{transport::kWcWithInvalidate});
static_assert(int{IBV_ACCESS_LOCAL_WRITE} == int{transport::kAccessLocalWrite});
static_assert(int{IBV_ACCESS_REMOTE_ATOMIC} ==
              int{transport::kAccessRemoteAtomic});
static_assert(int{IBV_ACCESS_HUGETLB} == int{transport::kAccessHugeTlb});
static_assert(int{IBV_QP_STATE} == int{transport::kQpState});
static_assert(int{IBV_QP_DEST_QPN} == int{transport::kQpDestQpn});
static_assert(int{IBV_QP_PATH_MIG_STATE} == int{transport::kQpPathMigState});
static_assert(int{IBV_EVENT_QP_FATAL} ==
              static_cast<int>(transport::QpEvent::kFatal));
static_assert(int{IBV_EVENT_QP_LAST_WQE_REACHED} ==
              static_cast<int>(transport::QpEvent::kLastWqeReached));

static_assert(sizeof(ibv_sge) == sizeof(transport::Sge));
static_assert(offsetof(ibv_sge, addr) == offsetof(transport::Sge, addr));
static_assert(offsetof(ibv_sge, length) == offsetof(transport::Sge, length));
static_assert(offsetof(ibv_sge, lkey) == offsetof(transport::Sge, lkey));

void WaitForAcks(pthread_mutex_t* mutex, pthread_cond_t* cond,
                 const uint32_t* completed, uint32_t taken) {
  pthread_mutex_lock(mutex);
  // Counters wrap around. The wait also ends if more events were acknowledged
  // than taken.
  while (static_cast<int32_t>(taken - *completed) > 0) {
    pthread_cond_wait(cond, mutex);
  }
  pthread_mutex_unlock(mutex);
}

}  // namespace verbs_api
