// Shared by the builders and setters of work requests (work_builder.cc,
// mlx5_builders.cc).
#ifndef VERBS_API_LIBIBVERBS_WORK_BUILDER_H_
#define VERBS_API_LIBIBVERBS_WORK_BUILDER_H_

#include "transport/qp/qp_type.h"
#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

inline ExtendedQp* Self(ibv_qp_ex* qp) {
  return static_cast<ExtendedQp::Part*>(qp)->self;
}

inline transport::SendTarget TargetOf(const ExtendedQp& qp) {
  return transport::TraitsOf(qp.pair->type()).target;
}

// The first error of a critical region is the result of ibv_wr_complete.
inline void Wrong(WorkBuilder& builder, int error) {
  if (builder.error != 0 && !builder.is_unfinished) return;
  builder.error = error;
  builder.is_unfinished = false;
}

// Setters and builders report errors only through ibv_wr_complete.
template <typename Body>
void Build(ibv_qp_ex* qp, Body&& body) noexcept {
  WorkBuilder& builder = Self(qp)->builder;
  try {
    body(builder);
  } catch (...) {
    Wrong(builder, ENOMEM);
  }
}

// Adds a work request with the queue pair's `wr_id` and `wr_flags`.
inline transport::SendRequest* Add(ibv_qp_ex* qp, WorkBuilder& builder,
                                   transport::SendOpcode opcode) {
  transport::SendRequest& request = builder.requests.emplace_back();
  try {
    builder.data.emplace_back();
  } catch (...) {
    builder.requests.pop_back();
    throw;
  }
  request.wr_id = qp->wr_id;
  request.opcode = opcode;
  // The data setter decides whether data is inline.
  request.flags = qp->wr_flags & ~static_cast<unsigned int>(IBV_SEND_INLINE);
  return &request;
}

// The opcodes whose bits in send_ops_flags (IBV_QP_EX_WITH_...) are not their
// numbers, and by how much they are less.
inline constexpr uint64_t kPlacementOps =
    kQpExWithFlush | IBV_QP_EX_WITH_ATOMIC_WRITE;
inline constexpr int kPlacementShift = 3;
constexpr uint64_t SendOpOf(transport::SendOpcode opcode) {
  const int number = static_cast<int>(opcode);
  return uint64_t{1} << (opcode >= transport::SendOpcode::kFlush
                             ? number - kPlacementShift
                             : number);
}
static_assert(IBV_QP_EX_WITH_RDMA_WRITE ==
              SendOpOf(transport::SendOpcode::kRdmaWrite));
static_assert(IBV_QP_EX_WITH_TSO == SendOpOf(transport::SendOpcode::kTso));
static_assert(kQpExWithFlush == SendOpOf(transport::SendOpcode::kFlush));
static_assert(IBV_QP_EX_WITH_ATOMIC_WRITE ==
              SendOpOf(transport::SendOpcode::kAtomicWrite));

// Adds a work request, which `body` completes, unless the operation was not
// enabled at creation, or outside of ibv_wr_start and ibv_wr_complete.
template <typename Body>
void Begin(ibv_qp_ex* qp, transport::SendOpcode opcode, Body&& body) noexcept {
  Build(qp, [&](WorkBuilder& builder) {
    if (!builder.active || (Self(qp)->send_ops & SendOpOf(opcode)) == 0) {
      return Wrong(builder, EINVAL);
    }
    body(builder, *Add(qp, builder, opcode));
  });
}

// Begins the inline data of the last request.
inline void BeginInlineData(WorkBuilder& builder, WorkBuilder::Data* data) {
  builder.requests.back().flags |= transport::kSendInline;
  data->is_set = true;
  data->first_inline = builder.inline_bytes.size();
  data->first_sge = builder.sges.size();
}
// Ends the inline data of `total` bytes. Their address is filled in later, when
// the vectors no longer move.
inline void EndInlineData(WorkBuilder& builder, size_t total) {
  builder.sges.push_back({0, static_cast<uint32_t>(total), 0});
  builder.data.back().num_sge = 1;
}

// ibv_wr_complete(3).
int WrComplete(ibv_qp_ex* qp);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_WORK_BUILDER_H_
