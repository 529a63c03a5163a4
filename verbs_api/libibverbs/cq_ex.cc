#include "verbs_api/libibverbs/cq_ex.h"

#include <cstdint>

#include "verbs_api/libibverbs/check.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/trace.h"
#include "verbs_api/libibverbs/wall_clock.h"

namespace verbs_api {
namespace {

Cq* Self(ibv_cq_ex* cq) { return static_cast<Cq*>(cq); }

int Advance(Cq* cq) {
  const int taken = cq->queue->Poll(
      1, [cq](int, const transport::Completion& c) { cq->current = c; });
  if (taken == 0) return ENOENT;
  cq->wr_id = cq->current.wr_id;
  cq->status = static_cast<ibv_wc_status>(cq->current.status);
  return 0;
}

}  // namespace

int StartPoll(ibv_cq_ex* ibv, ibv_poll_cq_attr* attr) {
  Cq* cq = Self(ibv);
  if (Find(cq->base()) == nullptr) return EINVAL;  // e.g. inherited by fork
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  // The ring is not locked between calls: lanes keep filling it.
  if (!cq->single_threaded) cq->session.lock();
  const int error = Advance(cq);
  if (error != 0 && !cq->single_threaded) cq->session.unlock();
  return error;
}

int NextPoll(ibv_cq_ex* cq) { return Advance(Self(cq)); }

namespace {

void EndPoll(ibv_cq_ex* cq) {
  if (!Self(cq)->single_threaded) Self(cq)->session.unlock();
}

ibv_wc_opcode ReadOpcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(Self(cq)->current.opcode);
}
uint32_t ReadVendorErr(ibv_cq_ex* cq) {
  return static_cast<uint32_t>(Self(cq)->current.reason);
}
uint32_t ReadByteLen(ibv_cq_ex* cq) { return Self(cq)->current.byte_len; }
__be32 ReadImmData(ibv_cq_ex* cq) { return Self(cq)->current.imm_be_or_rkey; }
uint32_t ReadQpNum(ibv_cq_ex* cq) { return Self(cq)->current.qpn; }
uint32_t ReadSrcQp(ibv_cq_ex* cq) { return Self(cq)->current.src_qpn; }
unsigned int ReadWcFlags(ibv_cq_ex* cq) { return Self(cq)->current.flags; }
uint32_t ReadSlid(ibv_cq_ex* /*cq*/) { return 0; }
uint8_t ReadSl(ibv_cq_ex* cq) { return Self(cq)->current.service_level; }
uint8_t ReadDlidPathBits(ibv_cq_ex* /*cq*/) { return 0; }
uint64_t ReadCompletionTs(ibv_cq_ex* cq) {
  return static_cast<uint64_t>(Self(cq)->current.time);
}
uint16_t ReadCvlan(ibv_cq_ex* /*cq*/) { return 0; }
// Only tag-matching receives have both a tag and none of these flags.
uint32_t ReadFlowTag(ibv_cq_ex* cq) {
  constexpr uint32_t kOther =
      transport::kWcWithImm | transport::kWcWithInvalidate | transport::kWcGrh;
  const transport::Completion& current = Self(cq)->current;
  return (current.flags & kOther) == 0 ? current.imm_be_or_rkey : 0;
}
void ReadTmInfo(ibv_cq_ex* /*cq*/, ibv_wc_tm_info* info) { *info = {}; }

uint64_t ReadWallclock(ibv_cq_ex* cq) {
  return static_cast<uint64_t>(ToWallClock(Self(cq)->current.time));
}

}  // namespace

void InitCqEx(Cq* cq) {
  cq->start_poll = StartPoll;
  cq->next_poll = NextPoll;
  cq->end_poll = EndPoll;
  if (rxe_user::CurrentTracer() != nullptr) TraceCqEx(cq);
  if (lint::Checker::Current() != nullptr) CheckCqEx(cq);
  cq->read_opcode = ReadOpcode;
  cq->read_vendor_err = ReadVendorErr;
  cq->read_byte_len = ReadByteLen;
  cq->read_imm_data = ReadImmData;
  cq->read_qp_num = ReadQpNum;
  cq->read_src_qp = ReadSrcQp;
  cq->read_wc_flags = ReadWcFlags;
  cq->read_slid = ReadSlid;
  cq->read_sl = ReadSl;
  cq->read_dlid_path_bits = ReadDlidPathBits;
  cq->read_completion_ts = ReadCompletionTs;
  cq->read_cvlan = ReadCvlan;
  cq->read_flow_tag = ReadFlowTag;
  cq->read_tm_info = ReadTmInfo;
  cq->read_completion_wallclock_ns = ReadWallclock;
}

}  // namespace verbs_api
