#include "verbs_api/libibverbs/trace.h"

#include <optional>
#include <utility>
#include <vector>

#include "verbs_api/libibverbs/cq_ex.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/work_builder.h"

namespace verbs_api {
namespace {

using rxe_user::CurrentTracer;
using rxe_user::Tracer;
using rxe_user::trace::Post;
using rxe_user::trace::QueueKind;
using rxe_user::trace::QueueName;

// A work request with more SGEs than this is invalid; they are not read.
constexpr int kMaxSges = 256;

template <typename Wr>
Post Describe(const Wr& wr) {
  Post post;
  post.wr_id = wr.wr_id;
  const int sges = ReadOnce(wr.num_sge);
  if (sges <= 0 || sges > kMaxSges || wr.sg_list == nullptr) return post;
  post.sges = static_cast<uint16_t>(sges);
  for (int i = 0; i < sges; ++i) post.bytes += ReadOnce(wr.sg_list[i].length);
  return post;
}

Post DescribeSend(const ibv_send_wr& wr, bool signal_all) {
  Post post = Describe(wr);
  const int opcode = Raw(wr.opcode);
  post.opcode = static_cast<transport::SendOpcode>(opcode);
  post.flags = wr.send_flags;
  post.signaled = signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE:
      post.remote_address = wr.wr.rdma.remote_addr;
      post.rkey = wr.wr.rdma.rkey;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      post.remote_address = wr.wr.atomic.remote_addr;
      post.rkey = wr.wr.atomic.rkey;
      break;
    default:
      break;
  }
  return post;
}

// Runs `post`, which returns 0 or errno, and records the list of requests.
// `post` stores in `bad` the request that it refuses.
template <typename Wr, typename DescribeOne, typename Call>
int Record(const QueueName& queue, uint32_t qpn, Wr* first, Wr** bad,
           DescribeOne&& describe, Call&& call) {
  Tracer* const tracer = CurrentTracer();
  Wr* refused = nullptr;
  std::optional<Tracer::Posting> posting;
  try {
    std::vector<Post> posts;
    for (const Wr* wr = first; wr != nullptr; wr = wr->next) {
      posts.push_back(describe(*wr));
    }
    if (tracer != nullptr) posting.emplace(*tracer, queue, qpn, posts);
  } catch (...) {
    // Without memory, the posts are not recorded.
  }
  const int error = call(&refused);
  if (error != 0 && bad != nullptr) *bad = refused;
  if (!posting) return error;
  const int before = errno;
  posting->End(Accepted(first, refused, error), error);
  errno = before;
  return error;
}

}  // namespace

int TracedPostSend(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp* const qp = Find(ibv);
  if (qp == nullptr) return PostSend(ibv, wr, bad);
  const uint32_t qpn = qp->pair->qpn();
  const bool signal_all = qp->pair->signal_all();
  return Record(
      {QueueKind::kSend, qpn}, qpn, wr, bad,
      [&](const ibv_send_wr& one) { return DescribeSend(one, signal_all); },
      [&](ibv_send_wr** refused) { return PostSend(ibv, wr, refused); });
}

int TracedPostRecv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp* const qp = Find(ibv);
  if (qp == nullptr) return PostRecv(ibv, wr, bad);
  const uint32_t qpn = qp->pair->qpn();
  return Record(
      {QueueKind::kReceive, qpn}, qpn, wr, bad, Describe<ibv_recv_wr>,
      [&](ibv_recv_wr** refused) { return PostRecv(ibv, wr, refused); });
}

namespace {

int TracedPostSrqRecv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Srq* const srq = Find(ibv);
  if (srq == nullptr) return PostSrqRecv(ibv, wr, bad);
  return Record(
      {QueueKind::kShared, srq->queue->id()}, 0, wr, bad, Describe<ibv_recv_wr>,
      [&](ibv_recv_wr** refused) { return PostSrqRecv(ibv, wr, refused); });
}

}  // namespace

int TracedPollCq(ibv_cq* ibv, int count, ibv_wc* wc) {
  const int polled = PollCq(ibv, count, wc);
  Tracer* const tracer = CurrentTracer();
  if (polled < 0 || count == 0 || tracer == nullptr) return polled;
  const uint64_t cq = Find(ibv)->queue->id();
  if (polled == 0) tracer->OnEmptyPoll(cq);
  for (int i = 0; i < polled; ++i) {
    tracer->OnPolled(cq, wc[i].qp_num, wc[i].wr_id);
  }
  return polled;
}

int TracedReqNotifyCq(ibv_cq* ibv, int solicited_only) {
  Cq* const cq = Find(ibv);
  Tracer* const tracer = CurrentTracer();
  if (cq != nullptr && tracer != nullptr) {
    tracer->OnArmed(cq->queue->id(), solicited_only != 0,
                    cq->queue->Report().unpolled);
  }
  return ReqNotifyCq(ibv, solicited_only);
}

namespace {

int RecordPoll(ibv_cq_ex* ibv, int result) {
  Tracer* const tracer = CurrentTracer();
  if (tracer == nullptr) return result;
  Cq* const cq = static_cast<Cq*>(ibv);
  if (result == ENOENT) tracer->OnEmptyPoll(cq->queue->id());
  if (result == 0) {
    tracer->OnPolled(cq->queue->id(), cq->current.qpn, cq->current.wr_id);
  }
  return result;
}

}  // namespace

int TracedStartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  return RecordPoll(cq, StartPoll(cq, attr));
}

int TracedNextPoll(ibv_cq_ex* cq) { return RecordPoll(cq, NextPoll(cq)); }

namespace {

std::vector<Post> DescribeBuilt(const ExtendedQp& qp) {
  std::vector<Post> posts;
  const WorkBuilder& builder = qp.builder;
  for (size_t i = 0; i < builder.requests.size(); ++i) {
    const transport::SendRequest& request = builder.requests[i];
    const WorkBuilder::Data& data = builder.data[i];
    Post post;
    post.wr_id = request.wr_id;
    post.opcode = request.opcode;
    post.flags = request.flags;
    post.signaled = qp.pair->signal_all() ||
                    (request.flags & transport::kSendSignaled) != 0;
    post.remote_address = request.remote_addr;
    post.rkey = request.rkey;
    post.sges = static_cast<uint16_t>(data.num_sge);
    for (size_t sge = 0; sge < data.num_sge; ++sge) {
      post.bytes += builder.sges[data.first_sge + sge].length;
    }
    if (request.opcode == transport::SendOpcode::kMemcpy) {
      post.bytes = request.swap;
    }
    posts.push_back(post);
  }
  return posts;
}

}  // namespace

// Either all requests are posted or none.
int TracedWrComplete(ibv_qp_ex* ibv) {
  ExtendedQp* const qp = Self(ibv);
  Tracer* const tracer = CurrentTracer();
  if (tracer == nullptr || !qp->builder.active) return WrComplete(ibv);
  std::optional<Tracer::Posting> posting;
  size_t count = 0;
  try {
    std::vector<Post> posts = DescribeBuilt(*qp);
    count = posts.size();
    const uint32_t qpn = qp->pair->qpn();
    posting.emplace(*tracer, QueueName{QueueKind::kSend, qpn}, qpn,
                    std::move(posts));
  } catch (...) {
    // Without memory, the posts are not recorded.
  }
  const int error = WrComplete(ibv);
  const int before = errno;
  if (posting) posting->End(error == 0 ? count : 0, error);
  errno = before;
  return error;
}

void TraceOps(ibv_context_ops* ops) {
  ops->poll_cq = TracedPollCq;
  ops->req_notify_cq = TracedReqNotifyCq;
  ops->post_srq_recv = TracedPostSrqRecv;
  ops->post_send = TracedPostSend;
  ops->post_recv = TracedPostRecv;
}

void TraceCqEx(Cq* cq) {
  cq->start_poll = TracedStartPoll;
  cq->next_poll = TracedNextPoll;
}

}  // namespace verbs_api
