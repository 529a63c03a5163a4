// The decoder of work requests in the format of a ConnectX's send queue
// (mlx5dv_wr_raw_wqe; structures and numbers: infiniband/mlx5dv.h).
//
// A WQE consists of a control segment, which holds its size in 16-byte units,
// and the segments that its opcode needs, in this order:
//   DC:       address and access key (48 bytes); not for NOP and LOCAL_INV
//   RDMA:     remote address and key (16)
//   atomics:  the same (16), and the operands (16)
//   data:     pointers (16 each), or inline data (4 bytes of length, the bytes,
//             filled up to 16)
#ifndef VERBS_API_LIBIBVERBS_RAW_WQE_H_
#define VERBS_API_LIBIBVERBS_RAW_WQE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/types.h"

namespace verbs_api {

inline constexpr size_t kWqeUnit = 16;  // bytes
inline constexpr size_t kMaxWqeSize = 63 * kWqeUnit;

// The size in the control segment, converted to bytes; 0: invalid.
size_t WqeSize(std::span<const uint8_t, kWqeUnit> control);

struct RawWqe {
  // The destination of a DC request.
  struct Target {
    std::array<uint8_t, 16> gid = {};
    uint8_t gid_index = 0;  // of the source
    uint8_t traffic_class = 0;
    uint8_t hop_limit = 0;
    uint8_t service_level = 0;
    uint32_t flow_label = 0;
    uint32_t dct = 0;
    uint64_t access_key = 0;
    uint16_t stream = 0;
  };

  transport::SendOpcode opcode{};  // without AsRawWqe
  uint32_t flags = 0;              // SendFlag
  uint32_t qpn = 0;                // as the control segment says
  // As in SendRequest.
  uint32_t imm_be = 0;
  uint32_t invalidate_rkey = 0;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  bool has_target = false;
  Target target;
  // Pointers, or inline data (kSendInline).
  std::array<transport::Sge, kMaxWqeSize / kWqeUnit> sges;
  size_t num_sge = 0;
  std::array<uint8_t, kMaxWqeSize> inline_bytes;
  size_t inline_size = 0;
};

// Decodes `wqe`, a complete WQE: reads no byte beyond it. `dc`: it is of a DC
// initiator. 0; EINVAL (malformed); EOPNOTSUPP (unsupported opcodes and
// modifiers, pointers together with inline data).
int DecodeWqe(std::span<const uint8_t> wqe, bool dc, RawWqe* out);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_RAW_WQE_H_
