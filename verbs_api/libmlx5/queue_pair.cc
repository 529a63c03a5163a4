// Queue pairs: mlx5dv_create_qp(3), and the operations of mlx5dv on one.
#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <cstring>

#include "verbs_api/libmlx5/verbs.h"
#include "verbs_api/libmlx5/work_requests.h"

namespace libmlx5 {
namespace {

using verbs_api::DcRole;

constexpr uint64_t kKnownMask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
                                MLX5DV_QP_INIT_ATTR_MASK_DC |
                                MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
                                MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
// On a card, small received data may be in the completion. Here they never are,
// which both flags allow.
constexpr uint32_t kScatterFlags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                   MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
// From rdma-core 56 and newer: data may be placed out of order. Here they never
// are.
constexpr uint32_t kOutOfOrder = 1 << 7;
constexpr uint32_t kKnownFlags =
    kScatterFlags | kOutOfOrder | MLX5DV_QP_CREATE_SIG_PIPELINING;
constexpr uint64_t kKeyOperations = MLX5DV_QP_EX_WITH_MR_INTERLEAVED |
                                    MLX5DV_QP_EX_WITH_MR_LIST |
                                    MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;

constexpr uint64_t kDcOperations =
    MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY;

// Reads an enumeration that the program filled in.
template <typename Enum>
int Raw(const Enum& value) {
  int number;
  static_assert(sizeof(value) == sizeof(number));
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

// Reads the attributes in `dv`. Returns 0 or errno.
int Read(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr& dv,
         verbs_api::Mlx5QpAttributes* mlx5, uint64_t* operations) {
  const auto has = [&](uint64_t bit) { return (dv.comp_mask & bit) != 0; };
  if ((dv.comp_mask & ~kKnownMask) != 0) return EINVAL;
  const int type = Raw(attr.qp_type);
  if (has(MLX5DV_QP_INIT_ATTR_MASK_DC) != (type == IBV_QPT_DRIVER)) {
    return EINVAL;
  }
  const uint32_t flags =
      has(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) ? dv.create_flags : 0;
  const bool stops = (flags & MLX5DV_QP_CREATE_SIG_PIPELINING) != 0;
  if ((flags & ~kKnownFlags) != 0 || (stops && type != IBV_QPT_RC) ||
      ((flags & kOutOfOrder) != 0 && type == IBV_QPT_RAW_PACKET)) {
    return EOPNOTSUPP;
  }
  mlx5->stops_at_data_errors = stops;
  if ((flags & kScatterFlags) == kScatterFlags) return EINVAL;
  if (has(MLX5DV_QP_INIT_ATTR_MASK_DC)) {
    switch (Raw(dv.dc_init_attr.dc_type)) {
      case MLX5DV_DCTYPE_DCI:
        mlx5->dc = DcRole::kInitiator;
        break;
      case MLX5DV_DCTYPE_DCT:
        mlx5->dc = DcRole::kTarget;
        mlx5->access_key = dv.dc_init_attr.dct_access_key;
        break;
      default:
        return EINVAL;
    }
  }
  if (has(MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)) {
    const mlx5dv_dci_streams& streams = dv.dc_init_attr.dci_streams;
    if (mlx5->dc != DcRole::kInitiator ||
        streams.log_num_concurent > verbs_api::kMaxLogDcStreams ||
        streams.log_num_errored > verbs_api::kMaxLogDcStreams) {
      return EINVAL;
    }
    mlx5->errored_streams = static_cast<uint16_t>(1 << streams.log_num_errored);
  }
  *operations =
      has(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) ? dv.send_ops_flags : 0;
  if (*operations == 0) return 0;
  const uint64_t offered = type == IBV_QPT_RC ? kKeyOperations | kDcOperations
                           : mlx5->dc == DcRole::kInitiator ? kDcOperations
                                                            : 0;
  if ((*operations & ~offered) != 0) return EOPNOTSUPP;
  mlx5->extended = true;
  mlx5->configures_mkeys = (*operations & kKeyOperations) != 0;
  return mlx5->configures_mkeys &&
                 (flags & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE) != 0
             ? EINVAL
             : 0;
}

}  // namespace

MLX5_EXPORT ibv_qp* mlx5dv_create_qp(ibv_context* context,
                                     ibv_qp_init_attr_ex* attr,
                                     mlx5dv_qp_init_attr* dv) {
  verbs_api::Mlx5Interface* const verbs = VerbsOf(context);
  if (verbs == nullptr) return Fail(EOPNOTSUPP);
  if (attr == nullptr) return Fail(EINVAL);
  verbs_api::Mlx5QpAttributes mlx5;
  mlx5.all_operations = true;
  uint64_t operations = 0;
  if (dv != nullptr) {
    if (const int error = Read(*attr, *dv, &mlx5, &operations)) {
      return Fail(error);
    }
  }
  ibv_qp* const qp = verbs->CreateQp(context, attr, mlx5);
  if (qp == nullptr || operations == 0) return qp;
  // This queue pair is extended, so its ibv_qp_ex begins with an ibv_qp.
  WorkRequests* const requests =
      WorkRequests::Of(reinterpret_cast<ibv_qp_ex*>(qp));
  if (requests == nullptr) {
    verbs->Destroy(qp);
    return Fail(ENOMEM);
  }
  requests->set_operations(operations);
  return qp;
}

// Null for a queue pair without ibv_wr_*.
MLX5_EXPORT mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
  WorkRequests* const requests = WorkRequests::Of(qp);
  return requests != nullptr ? requests->table() : nullptr;
}

// A hint for the card about the path of DC packets to this peer. Has no effect
// here.
MLX5_EXPORT int mlx5dv_map_ah_to_qp(ibv_ah* ah, uint32_t /*qp_num*/) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  const int error = verbs->CheckAddress(ah);
  return error == 0 ? 0 : Refuse(error);
}

MLX5_EXPORT int mlx5dv_modify_qp_udp_sport(ibv_qp* qp, uint16_t port) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  const int error = verbs->SetSourcePort(qp, port);
  return error == 0 ? 0 : Refuse(error);
}

MLX5_EXPORT int mlx5dv_reserved_qpn_alloc(ibv_context* context, uint32_t* qpn) {
  verbs_api::Mlx5Interface* const verbs = VerbsOf(context);
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  if (qpn == nullptr) return Refuse(EINVAL);
  const int error = verbs->ReserveQpn(context, qpn);
  return error == 0 ? 0 : Refuse(error);
}

MLX5_EXPORT int mlx5dv_reserved_qpn_dealloc(ibv_context* context,
                                            uint32_t qpn) {
  verbs_api::Mlx5Interface* const verbs = VerbsOf(context);
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  const int error = verbs->ReleaseQpn(context, qpn);
  return error == 0 ? 0 : Refuse(error);
}

}  // namespace libmlx5
