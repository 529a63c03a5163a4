// ibv_wr_start, ibv_wr_complete, ibv_wr_abort and the builders and setters
// between them (manual page ibv_wr_post(3)). Nothing is posted before
// ibv_wr_complete. ibv_wr_abort discards everything. After any invalid call,
// ibv_wr_complete fails and posts nothing.
#include "verbs_api/libibverbs/work_builder.h"

#include <cstring>

#include "transport/qp/qp_type.h"
#include "transport/qp/send_operation.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/check.h"
#include "verbs_api/libibverbs/fault_ops.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/trace.h"
#include "wire/headers.h"

namespace verbs_api {
namespace {

using transport::SendOpcode;
using transport::SendRequest;

// The data of the request that a setter applies to. Null if there is no
// request, or its data is already set.
WorkBuilder::Data* ForData(WorkBuilder& builder) {
  if (!builder.active || builder.data.empty() || builder.data.back().is_set) {
    Wrong(builder, EINVAL);
    return nullptr;
  }
  builder.data.back().is_set = true;
  return &builder.data.back();
}

void Rdma(ibv_qp_ex* qp, SendOpcode opcode, uint32_t rkey, uint64_t remote_addr,
          uint32_t imm) {
  Begin(qp, opcode, [&](WorkBuilder&, SendRequest& request) {
    request.rkey = rkey;
    request.remote_addr = remote_addr;
    request.imm_be = imm;
  });
}

void WrRdmaRead(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  Rdma(qp, SendOpcode::kRdmaRead, rkey, remote_addr, 0);
}
void WrRdmaWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  Rdma(qp, SendOpcode::kRdmaWrite, rkey, remote_addr, 0);
}
void WrRdmaWriteImm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                    __be32 imm) {
  Rdma(qp, SendOpcode::kRdmaWriteWithImm, rkey, remote_addr, imm);
}

void Atomic(ibv_qp_ex* qp, SendOpcode opcode, uint32_t rkey,
            uint64_t remote_addr, uint64_t compare_add, uint64_t swap) {
  Begin(qp, opcode, [&](WorkBuilder&, SendRequest& request) {
    request.rkey = rkey;
    request.remote_addr = remote_addr;
    request.compare_add = compare_add;
    request.swap = swap;
  });
}

void WrCompareSwap(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                   uint64_t compare, uint64_t swap) {
  Atomic(qp, SendOpcode::kCompareSwap, rkey, remote_addr, compare, swap);
}
void WrFetchAdd(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                uint64_t add) {
  Atomic(qp, SendOpcode::kFetchAdd, rkey, remote_addr, add, 0);
}

// Copies the eight bytes at `data` now.
void WrAtomicWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                   const void* data) {
  Begin(qp, SendOpcode::kAtomicWrite,
        [&](WorkBuilder& builder, SendRequest& request) {
          request.rkey = rkey;
          request.remote_addr = remote_addr;
          BeginInlineData(builder, &builder.data.back());
          const auto* bytes = static_cast<const uint8_t*>(data);
          builder.inline_bytes.insert(builder.inline_bytes.end(), bytes,
                                      bytes + transport::kAtomicSize);
          EndInlineData(builder, transport::kAtomicSize);
        });
}

void WrFlush(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t length,
             uint8_t type, uint8_t level) {
  Begin(qp, SendOpcode::kFlush,
        [&](WorkBuilder& builder, SendRequest& request) {
          request.rkey = rkey;
          request.remote_addr = remote_addr;
          request.compare_add = length;
          request.swap = transport::FlushOperand(
              {.placement_type = type, .selectivity = level});
          builder.data.back().is_set = true;  // it has no data
        });
}

void WrSend(ibv_qp_ex* qp) {
  Begin(qp, SendOpcode::kSend, [](WorkBuilder&, SendRequest&) {});
}
void WrSendImm(ibv_qp_ex* qp, __be32 imm) {
  Begin(qp, SendOpcode::kSendWithImm,
        [&](WorkBuilder&, SendRequest& request) { request.imm_be = imm; });
}
void WrSendInv(ibv_qp_ex* qp, uint32_t rkey) {
  Begin(qp, SendOpcode::kSendWithInvalidate,
        [&](WorkBuilder&, SendRequest& request) {
          request.invalidate_rkey = rkey;
        });
}

// Operations without data.
void WrLocalInv(ibv_qp_ex* qp, uint32_t rkey) {
  Begin(qp, SendOpcode::kLocalInvalidate,
        [&](WorkBuilder& builder, SendRequest& request) {
          request.invalidate_rkey = rkey;
          builder.data.back().is_set = true;
        });
}
void WrBindMw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey,
              const ibv_mw_bind_info* info) {
  Begin(qp, SendOpcode::kBindMw,
        [&](WorkBuilder& builder, SendRequest& request) {
          builder.data.back().is_set = true;
          builder.data.back().window = mw;
          const int error = info != nullptr ? ToBindRequest(*Self(qp), mw, rkey,
                                                            *info, &request)
                                            : EINVAL;
          if (error != 0) Wrong(builder, error);
        });
}

// Copies the header now. The data is set as for other operations.
void WrSendTso(ibv_qp_ex* qp, void* header, uint16_t size, uint16_t mss) {
  Begin(qp, SendOpcode::kTso, [&](WorkBuilder& builder, SendRequest& request) {
    if (size > Self(qp)->pair->max_tso_header() ||
        (size > 0 && header == nullptr)) {
      return Wrong(builder, EINVAL);
    }
    builder.data.back().first_header = builder.inline_bytes.size();
    builder.data.back().header_size = size;
    const auto* bytes = static_cast<const uint8_t*>(header);
    builder.inline_bytes.insert(builder.inline_bytes.end(), bytes,
                                bytes + size);
    request.tso_mss = mss;
  });
}

// --- Address and data.

void WrSetUdAddr(ibv_qp_ex* qp, ibv_ah* ibv_ah, uint32_t qpn, uint32_t qkey) {
  Build(qp, [&](WorkBuilder& builder) {
    if (!builder.active || builder.data.empty() ||
        TargetOf(*Self(qp)) != transport::SendTarget::kAddress) {
      return Wrong(builder, EINVAL);
    }
    const Ah* const ah = FindAddress(*Self(qp), ibv_ah);
    if (ah == nullptr) return Wrong(builder, EINVAL);
    builder.data.back().is_addressed = true;
    builder.data.back().av = ah->av;
    builder.requests.back().remote_qpn = qpn & wire::kQpnMask;
    builder.requests.back().remote_qkey = qkey;
  });
}

void WrSetXrcSrqn(ibv_qp_ex* qp, uint32_t srqn) {
  Build(qp, [&](WorkBuilder& builder) {
    if (!builder.active || builder.data.empty() ||
        TargetOf(*Self(qp)) != transport::SendTarget::kSrq) {
      return Wrong(builder, EINVAL);
    }
    builder.data.back().is_addressed = true;
    builder.requests.back().remote_srqn = srqn;
  });
}

void WrSetSgeList(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  Build(qp, [&](WorkBuilder& builder) {
    WorkBuilder::Data* data = ForData(builder);
    if (data == nullptr) return;
    if (count > Self(qp)->pair->capacity().max_send_sge ||
        (count > 0 && list == nullptr)) {
      return Wrong(builder, EINVAL);
    }
    data->first_sge = builder.sges.size();
    const auto sges = ToSges(list, count);
    builder.sges.insert(builder.sges.end(), sges.begin(), sges.end());
    data->num_sge = count;
  });
}

void WrSetSge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  const ibv_sge sge = {addr, length, lkey};
  WrSetSgeList(qp, 1, &sge);
}

void WrSetInlineDataList(ibv_qp_ex* qp, size_t count,
                         const ibv_data_buf* list) {
  Build(qp, [&](WorkBuilder& builder) {
    WorkBuilder::Data* data = ForData(builder);
    if (data == nullptr) return;
    const size_t limit = Self(qp)->pair->capacity().max_inline_data;
    BeginInlineData(builder, data);
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t length = ReadOnce(list[i].length);
      if (length > limit - total) return Wrong(builder, EINVAL);
      total += length;
      const auto* bytes = static_cast<const uint8_t*>(list[i].addr);
      builder.inline_bytes.insert(builder.inline_bytes.end(), bytes,
                                  bytes + length);
    }
    EndInlineData(builder, total);
  });
}

void WrSetInlineData(ibv_qp_ex* qp, void* addr, size_t length) {
  const ibv_data_buf buffer = {addr, length};
  WrSetInlineDataList(qp, 1, &buffer);
}

// --- The critical region.

void Clear(WorkBuilder& builder) {
  builder.requests.clear();
  builder.data.clear();
  builder.sges.clear();
  builder.inline_bytes.clear();
  builder.error = 0;
}

void WrStart(ibv_qp_ex* qp) {
  WorkBuilder& builder = Self(qp)->builder;
  // The context is closed, or belongs to the parent of this child of fork.
  if (Self(qp)->pair == nullptr || IsInherited(&qp->qp_base)) {
    builder.active = false;  // later calls of this critical region do nothing
    return;
  }
  builder.critical.lock();
  Clear(builder);
  builder.active = true;
}

void Leave(WorkBuilder& builder) {
  Clear(builder);
  builder.active = false;
  builder.critical.unlock();
}

int Post(ExtendedQp* qp) {
  WorkBuilder& builder = qp->builder;
  if (builder.error != 0) return builder.error;
  const transport::SendTarget target = TargetOf(*qp);
  const bool xrc = target == transport::SendTarget::kSrq;
  // A datagram without an address is refused with its other fields.
  const bool needs_address = xrc || target == transport::SendTarget::kDct;
  for (size_t i = 0; i < builder.requests.size(); ++i) {
    transport::SendRequest& request = builder.requests[i];
    const WorkBuilder::Data& data = builder.data[i];
    if ((request.flags & transport::kSendInline) != 0) {
      builder.sges[data.first_sge].addr = reinterpret_cast<uint64_t>(
          builder.inline_bytes.data() + data.first_inline);
    }
    if (request.opcode == SendOpcode::kTso) {
      request.tso_header = {builder.inline_bytes.data() + data.first_header,
                            data.header_size};
    }
    request.sges = {builder.sges.data() + data.first_sge, data.num_sge};
    if (data.is_addressed) {
      if (!xrc) request.ah = &data.av;
    } else if (needs_address &&
               transport::GetSendOperation(request.opcode).kind !=
                   transport::SendKind::kLocal) {
      return EINVAL;
    }
  }
  rxe_user::QueuePair::Posting posting(*qp->pair);
  if (const int error = posting.SendAll(builder.requests)) return error;
  for (size_t i = 0; i < builder.requests.size(); ++i) {
    if (builder.data[i].window == nullptr) continue;
    ShowBoundKey(builder.data[i].window, builder.requests[i].rkey);
  }
  return 0;
}

}  // namespace

int WrComplete(ibv_qp_ex* ibv) {
  ExtendedQp* qp = Self(ibv);
  if (!qp->builder.active) return EINVAL;
  const int error = PostCall([qp] { return Post(qp); });
  Leave(qp->builder);
  return error;
}

namespace {

void WrAbort(ibv_qp_ex* qp) {
  if (Self(qp)->builder.active) Leave(Self(qp)->builder);
}

}  // namespace

ExtendedQp::ExtendedQp(uint64_t send_ops)
    : Qp(&part.qp_base), send_ops(send_ops) {
  part.self = this;
  part.wr_atomic_cmp_swp = WrCompareSwap;
  part.wr_atomic_fetch_add = WrFetchAdd;
  part.wr_bind_mw = WrBindMw;
  part.wr_local_inv = WrLocalInv;
  part.wr_rdma_read = WrRdmaRead;
  part.wr_rdma_write = WrRdmaWrite;
  part.wr_rdma_write_imm = WrRdmaWriteImm;
  part.wr_send = WrSend;
  part.wr_send_imm = WrSendImm;
  part.wr_send_inv = WrSendInv;
  part.wr_send_tso = WrSendTso;
  part.wr_set_ud_addr = WrSetUdAddr;
  part.wr_set_xrc_srqn = WrSetXrcSrqn;
  part.wr_set_inline_data = WrSetInlineData;
  part.wr_set_inline_data_list = WrSetInlineDataList;
  part.wr_set_sge = WrSetSge;
  part.wr_set_sge_list = WrSetSgeList;
  part.wr_start = WrStart;
  part.wr_complete =
      rxe_user::CurrentTracer() != nullptr ? TracedWrComplete : WrComplete;
  if (lint::Checker::Current() != nullptr) CheckQpEx(&part);
  FaultQpEx(&part);
  part.wr_abort = WrAbort;
  part.wr_atomic_write = WrAtomicWrite;
  part.wr_flush = WrFlush;
}

}  // namespace verbs_api
