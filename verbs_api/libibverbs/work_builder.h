// What the builders and setters of work requests share (work_builder.cc,
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
  if (builder.error == 0) builder.error = error;
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
  builder.data.emplace_back();
  transport::SendRequest& request = builder.requests.emplace_back();
  request.wr_id = qp->wr_id;
  request.opcode = opcode;
  // The data setter decides whether data is inline.
  request.flags = qp->wr_flags & ~static_cast<unsigned int>(IBV_SEND_INLINE);
  return &request;
}

// Begins a work request. Returns null for an operation that was not enabled at
// creation, or outside ibv_wr_start and ibv_wr_complete.
inline transport::SendRequest* Begin(ibv_qp_ex* qp,
                                     transport::SendOpcode opcode,
                                     uint64_t op) {
  WorkBuilder& builder = Self(qp)->builder;
  if (!builder.active || (Self(qp)->send_ops & op) == 0) {
    Wrong(builder, EINVAL);
    return nullptr;
  }
  return Add(qp, builder, opcode);
}

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_WORK_BUILDER_H_
