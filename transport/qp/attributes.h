// Creation parameters of a queue pair, and the attributes of ibv_modify_qp(3).
#ifndef TRANSPORT_QP_ATTRIBUTES_H_
#define TRANSPORT_QP_ATTRIBUTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/memory.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/qp/xrc_domain.h"

namespace transport {

// Alignment of queue memory: one cache line.
inline constexpr size_t kQueueAlignment = 64;  // bytes

// struct ibv_qp_cap.
struct QpCapacity {
  uint32_t max_send_wr = 0;
  uint32_t max_recv_wr = 0;
  uint32_t max_send_sge = 0;
  uint32_t max_recv_sge = 0;
  uint32_t max_inline_data = 0;  // bytes
};

// Fixed at creation. Pointers are borrowed and outlive the queue pair.
//
// An XRC target has no protection domain, receives or completion queue of its
// own. `pd`, `srq` and `recv_cq` are those of the SRQ that the last request
// named (MessageReceiver::UseSrq), or unset.
struct QpConfig {
  QpType type = QpType::kRc;
  bool signal_all : 1 = false;  // sq_sig_all
  // The device offers ATOMIC WRITE and FLUSH (annex A19). Otherwise they are
  // neither sent nor executed.
  bool memory_placement : 1 = false;
  bool may_refuse : 1 = false;  // EventSink::Refuse; `events` is not null
  // RC: the queue pair enters SQD after a request in whose buffers
  // Memory::HasDataError finds an error, at the latest before the next fenced
  // request begins.
  bool stops_at_data_errors : 1 = false;
  uint16_t port_mtu = 4096;  // bytes; the maximum UD message
  // DCI: the number of failed streams at which it goes to ERR. 0: no streams.
  uint16_t dci_errored_streams = 0;
  uint32_t qpn = 0;
  PdId pd = 0;
  QpCapacity capacity;
  Memory* memory = nullptr;
  CompletionSink* send_cq = nullptr;
  CompletionSink* recv_cq = nullptr;
  ReceiveSource* srq = nullptr;  // null: the queue pair's own receive queue
  EventSink* events = nullptr;
  XrcDomain* xrc = nullptr;  // XRC target only
  // Memory for its queues: QueueMemorySize() bytes, aligned to kQueueAlignment.
  // Null: the queues allocate.
  std::byte* queue_memory = nullptr;
};

// Depends on type, capacity and srq.
size_t QueueMemorySize(const QpConfig& config);

// Attributes that ibv_modify_qp sets (struct ibv_qp_attr).
struct QpAttributes {
  QpState state = QpState::kReset;
  // Only checked, if kQpCurState is set.
  QpState current_state = QpState::kReset;
  uint32_t path_mtu = 1024;  // bytes
  uint32_t qkey = 0;
  uint32_t rq_psn = 0;
  uint32_t sq_psn = 0;
  uint32_t dest_qpn = 0;
  uint32_t access_flags = 0;  // Access
  AddressVector av;
  std::shared_ptr<const AddressVector> alt_av;  // null: no alternate path
  uint16_t pkey_index = 0;
  uint16_t alt_pkey_index = 0;
  bool en_sqd_async_notify = false;
  bool sq_draining = false;  // read only
  uint8_t max_rd_atomic = 0;
  uint8_t max_dest_rd_atomic = 0;
  uint8_t min_rnr_timer = 0;  // RNR timer code
  uint8_t port_num = 1;
  uint8_t alt_port_num = 0;
  uint8_t timeout = 0;  // local ACK timeout code; 0 = no timeout
  uint8_t alt_timeout = 0;
  uint8_t retry_cnt = 0;
  uint8_t rnr_retry = 0;  // 7 = unlimited
  uint8_t path_mig_state = 0;
};

// Attribute mask bits (IBV_QP_*).
enum QpAttrMask : uint32_t {
  kQpState = 1u << 0,
  kQpCurState = 1u << 1,
  kQpEnSqdAsyncNotify = 1u << 2,
  kQpAccessFlags = 1u << 3,
  kQpPkeyIndex = 1u << 4,
  kQpPort = 1u << 5,
  kQpQkey = 1u << 6,
  kQpAv = 1u << 7,
  kQpPathMtu = 1u << 8,
  kQpTimeout = 1u << 9,
  kQpRetryCnt = 1u << 10,
  kQpRnrRetry = 1u << 11,
  kQpRqPsn = 1u << 12,
  kQpMaxQpRdAtomic = 1u << 13,
  kQpAltPath = 1u << 14,
  kQpMinRnrTimer = 1u << 15,
  kQpSqPsn = 1u << 16,
  kQpMaxDestRdAtomic = 1u << 17,
  kQpPathMigState = 1u << 18,
  kQpCap = 1u << 19,
  kQpDestQpn = 1u << 20,
};

}  // namespace transport

#endif  // TRANSPORT_QP_ATTRIBUTES_H_
