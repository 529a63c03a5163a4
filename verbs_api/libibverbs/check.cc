#include "verbs_api/libibverbs/check.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "transport/base/reason.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/memory_tools.h"
#include "verbs_api/libibverbs/split_keys.h"
#include "verbs_api/libibverbs/trace.h"
#include "verbs_api/libibverbs/work_builder.h"

namespace verbs_api {
namespace {

using lint::Checker;
using lint::PostedSend;

uint32_t Unpolled(ibv_cq* ibv) {
  Cq* const cq = Find(ibv);
  return cq != nullptr ? cq->queue->Report().unpolled : 0;
}

// Runs `call`, which posts `posts`, stores the number of accepted requests, and
// returns 0 or errno. Tells the checker of the post.
template <typename Call>
int CheckSends(const Qp& qp, const std::vector<PostedSend>& posts,
               Call&& call) {
  Checker* const checker = Checker::Current();
  std::optional<Checker::SendPosting> posting;
  try {
    if (checker != nullptr) posting.emplace(*checker, CheckedKey(qp), posts);
  } catch (const std::bad_alloc&) {
    // Without memory, the posts are not checked.
  }
  size_t accepted = 0;
  const int error = call(&accepted);
  const int before = errno;
  if (posting && error != 0) {
    posting->End(accepted, error, Unpolled(qp.base->send_cq));
  }
  errno = before;
  return error;
}

// --- Memory.

rxe_user::RegionTable& RegionsOf(const Qp& qp) {
  return qp.owner->device->regions();
}

// Whether requests of the queue pair are flushed, so that their memory does not
// matter.
bool HasFailed(const Qp& qp) {
  const transport::QpState state = qp.pair->Query().state;
  return state == transport::QpState::kErr || state == transport::QpState::kSqe;
}

// Checks the memory of a request as the device does when it uses it. `request`
// is its name in the report.
void CheckLocal(Checker* checker, const Qp& qp, const std::string& request,
                std::span<const lint::Piece> pieces, bool writes) {
  if (!checker->IsOn(lint::Lint::kLocalKey) &&
      !checker->IsOn(lint::Lint::kMixedKeys)) {
    return;
  }
  // An XRC target has no protection domain, and refuses every request.
  if (qp.pair->pd() == nullptr) return;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const lint::Piece& piece = pieces[i];
    // The request that configures a memory key may not have been executed yet.
    if (piece.length == 0 || RegionsOf(qp).IsMkey(piece.lkey)) continue;
    transport::SpanList spans;
    const transport::MemoryStatus status =
        RegionsOf(qp).Translate({.key = piece.lkey,
                                 .remote = false,
                                 .pd = qp.pair->pd()->id,
                                 .qpn = qp.pair->qpn(),
                                 .access = writes ? transport::kAccessLocalWrite
                                                  : transport::kAccessLocalRead,
                                 .va = piece.address,
                                 .length = piece.length},
                                &spans);
    if (status == transport::MemoryStatus::kOk || HasFailed(qp)) continue;
    if (IsOnlyRkey(RegionsOf(qp), piece.lkey)) {
      checker->OnMixedKeys(
          CheckedKey(qp),
          absl::StrCat(request, " has as lkey 0x", absl::Hex(piece.lkey),
                       ", which is the rkey of a region"));
      continue;
    }
    std::string why(transport::TextOf(transport::LocalReason(status)).what);
    if (why.ends_with('.')) why.pop_back();
    checker->OnLocalKey(
        CheckedKey(qp),
        absl::StrCat(request, " cannot use entry ", i,
                     " of its sg_list (lkey 0x", absl::Hex(piece.lkey),
                     ", address 0x", absl::Hex(piece.address), ", ",
                     piece.length, " bytes): ", why));
  }
}

constexpr char kAtPost[] = "at its post";
constexpr char kAtCompletion[] = "at its completion";

// The memory of a piece. Null if its region is null memory, or if it is not
// within a region, which the checks of local keys report.
const uint8_t* MemoryOf(rxe_user::RegionTable& regions,
                        const lint::Piece& piece, bool is_inline) {
  if (is_inline) return reinterpret_cast<const uint8_t*>(piece.address);
  rxe_user::Region region;
  if (!regions.Find(piece.lkey, &region) ||
      !region.Covers(piece.address, piece.length) ||
      reinterpret_cast<uint64_t>(region.host) >= rxe_user::kNullMemory) {
    return nullptr;
  }
  return region.host + (piece.address - region.iova);
}

// Checks whether the program may use the memory of a request. `when`: the time
// of the check, for the report. Returns whether it may.
bool CheckFreed(Checker* checker, lint::QpKey key,
                rxe_user::RegionTable& regions, const std::string& request,
                std::span<const lint::Piece> pieces, bool is_inline,
                const char* when) {
  if (MemoryTool() == nullptr || !checker->IsOn(lint::Lint::kFreedBuffer)) {
    return true;
  }
  for (const lint::Piece& piece : pieces) {
    const uint8_t* const memory = MemoryOf(regions, piece, is_inline);
    if (memory == nullptr) continue;
    const void* const found = FirstFreed(memory, piece.length);
    if (found == nullptr) continue;
    checker->OnFreedBuffer(key, request, found, when, MemoryTool());
    return false;
  }
  return true;
}

// Checks whether all bytes that a request will send have been given a value.
void CheckUninitialized(Checker* checker, lint::QpKey key,
                        const std::string& request, const void* memory,
                        size_t length) {
  if (MemoryTool() == nullptr || memory == nullptr ||
      !checker->IsOn(lint::Lint::kUninitialized)) {
    return;
  }
  const void* const found = FirstUninitialized(memory, length);
  // Freed memory has no value either; that is the other lint.
  if (found == nullptr || FirstFreed(found, 1) != nullptr) return;
  checker->OnUninitialized(
      key, request,
      static_cast<uint64_t>(static_cast<const uint8_t*>(found) -
                            static_cast<const uint8_t*>(memory)),
      length, MemoryTool());
}

// The checks of a send request at its post that need a memory tool.
void CheckContents(Checker* checker, const Qp& qp, const std::string& request,
                   const PostedSend& post) {
  if (!CheckFreed(checker, CheckedKey(qp), RegionsOf(qp), request, post.pieces,
                  post.is_inline, kAtPost) ||
      post.writes_locally) {
    return;
  }
  // A READ or atomic before it may give the bytes their value; inline data are
  // copied now.
  if (post.fenced && !post.is_inline) return;
  for (const lint::Piece& piece : post.pieces) {
    CheckUninitialized(checker, CheckedKey(qp), request,
                       MemoryOf(RegionsOf(qp), piece, post.is_inline),
                       piece.length);
  }
}

// Checks whether `rkey` belongs to a region of this process that lacks the
// right `access`.
void CheckRemote(Checker* checker, const Qp& qp, uint64_t wr_id, uint32_t rkey,
                 uint64_t address, uint64_t length, uint32_t access,
                 const char* right) {
  rxe_user::Region region;
  // Without data, the device does not check the key.
  if (!checker->IsOn(lint::Lint::kRemoteKey) || length == 0 ||
      !RegionsOf(qp).Find(LkeyOf(rkey), &region) || region.binding != 0 ||
      (region.access & access) != 0 || !region.Covers(address, length)) {
    return;
  }
  checker->OnRemoteKey(
      CheckedKey(qp),
      absl::StrCat("request ", wr_id, " has as R_Key 0x", absl::Hex(rkey),
                   ", the key of a region of this process that has no ", right,
                   " right"));
}

// A hash of the data that a request will send; absent if they cannot be read.
std::optional<uint64_t> Checksum(rxe_user::RegionTable& regions,
                                 transport::PdId pd, uint32_t qpn,
                                 std::span<const lint::Piece> pieces) {
  constexpr size_t kPart = 4096;
  uint8_t part[kPart];
  uint64_t hash = 0;
  for (const lint::Piece& piece : pieces) {
    if (regions.IsMkey(piece.lkey)) return std::nullopt;
    for (uint64_t done = 0; done < piece.length;) {
      transport::SpanList spans;
      if (regions.Translate({.key = piece.lkey,
                             .remote = false,
                             .pd = pd,
                             .qpn = qpn,
                             .access = transport::kAccessLocalRead,
                             .va = piece.address + done,
                             .length = piece.length - done},
                            &spans) != transport::MemoryStatus::kOk) {
        return std::nullopt;
      }
      for (const transport::Span& span : spans) {
        for (size_t at = 0; at < span.length; at += kPart) {
          const size_t bytes = std::min(kPart, span.length - at);
          if (!regions.CopyFrom(part, span.data + at, bytes, false)) {
            return std::nullopt;
          }
          hash = absl::HashOf(
              hash, std::string_view(reinterpret_cast<char*>(part), bytes));
        }
        done += span.length;
      }
    }
  }
  return hash;
}

// The part of the description that is common to both ways of posting.
void Describe(Checker* checker, const Qp& qp, transport::SendOpcode opcode,
              unsigned flags, uint32_t rkey, uint64_t remote_address,
              PostedSend* post) {
  using transport::SendOpcode;
  const std::string request = "request " + std::to_string(post->wr_id);
  post->signaled =
      qp.pair->signal_all() || (flags & transport::kSendSignaled) != 0;
  post->fenced = (flags & transport::kSendFence) != 0;
  post->is_inline = (flags & transport::kSendInline) != 0;
  uint64_t length = 0;
  for (const lint::Piece& piece : post->pieces) length += piece.length;
  switch (opcode) {
    case SendOpcode::kRdmaWrite:
    case SendOpcode::kRdmaWriteWithImm:
    case SendOpcode::kAtomicWrite:
      CheckRemote(checker, qp, post->wr_id, rkey, remote_address, length,
                  transport::kAccessRemoteWrite, "IBV_ACCESS_REMOTE_WRITE");
      break;
    case SendOpcode::kRdmaRead:
      post->writes_locally = true;
      CheckRemote(checker, qp, post->wr_id, rkey, remote_address, length,
                  transport::kAccessRemoteRead, "IBV_ACCESS_REMOTE_READ");
      break;
    case SendOpcode::kCompareSwap:
    case SendOpcode::kFetchAdd:
      post->writes_locally = true;
      CheckRemote(checker, qp, post->wr_id, rkey, remote_address, 8,
                  transport::kAccessRemoteAtomic, "IBV_ACCESS_REMOTE_ATOMIC");
      break;
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
    case SendOpcode::kSendWithInvalidate:
    case SendOpcode::kTso:
      break;
    default:
      post->pieces.clear();  // absent, or with another meaning
      return;
  }
  CheckContents(checker, qp, request, *post);
  if (post->is_inline) return;
  CheckLocal(checker, qp, request, post->pieces, post->writes_locally);
  if (checker->IsOn(lint::Lint::kBufferChanged) && !post->writes_locally &&
      qp.pair->pd() != nullptr) {
    post->checksum = Checksum(RegionsOf(qp), qp.pair->pd()->id, qp.pair->qpn(),
                              post->pieces);
  }
}

void AddPieces(const ibv_sge* list, int count, PostedSend* post) {
  if (list == nullptr || count > transport::kMaxSge) return;
  for (int i = 0; i < count; ++i) {
    post->pieces.push_back({list[i].addr, list[i].length, list[i].lkey});
  }
}

int CheckedPostSend(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp* const qp = Find(ibv);
  Checker* const checker = Checker::Current();
  if (qp == nullptr || checker == nullptr) return TracedPostSend(ibv, wr, bad);
  std::vector<PostedSend> posts;
  try {
    for (const ibv_send_wr* one = wr; one != nullptr; one = one->next) {
      PostedSend& post = posts.emplace_back();
      post.wr_id = one->wr_id;
      AddPieces(one->sg_list, one->num_sge, &post);
      const auto opcode = static_cast<transport::SendOpcode>(Raw(one->opcode));
      const bool is_atomic = opcode == transport::SendOpcode::kCompareSwap ||
                             opcode == transport::SendOpcode::kFetchAdd;
      Describe(
          checker, *qp, opcode, one->send_flags,
          is_atomic ? one->wr.atomic.rkey : one->wr.rdma.rkey,
          is_atomic ? one->wr.atomic.remote_addr : one->wr.rdma.remote_addr,
          &post);
    }
  } catch (const std::bad_alloc&) {
    return TracedPostSend(ibv, wr, bad);
  }
  return CheckSends(*qp, posts, [&](size_t* accepted) {
    ibv_send_wr* refused = nullptr;
    const int error = TracedPostSend(ibv, wr, &refused);
    if (error != 0 && bad != nullptr) *bad = refused;
    *accepted = Accepted(wr, refused, error);
    return error;
  });
}

// Either all requests are posted or none.
int CheckedWrComplete(ibv_qp_ex* ibv) {
  ExtendedQp* const qp = Self(ibv);
  Checker* const checker = Checker::Current();
  const WorkBuilder& builder = qp->builder;
  if (!builder.active || qp->pair == nullptr || checker == nullptr) {
    return TracedWrComplete(ibv);
  }
  std::vector<PostedSend> posts;
  try {
    for (size_t i = 0; i < builder.requests.size(); ++i) {
      const transport::SendRequest& request = builder.requests[i];
      const WorkBuilder::Data& data = builder.data[i];
      PostedSend& post = posts.emplace_back();
      post.wr_id = request.wr_id;
      if ((request.flags & transport::kSendInline) != 0) {
        // Inline data have been copied already, unless a setter failed.
        if (builder.error == 0) {
          CheckUninitialized(checker, CheckedKey(*qp),
                             "request " + std::to_string(post.wr_id),
                             builder.inline_bytes.data() + data.first_inline,
                             builder.sges[data.first_sge].length);
        }
      } else {
        for (size_t sge = 0; sge < data.num_sge; ++sge) {
          const transport::Sge& one = builder.sges[data.first_sge + sge];
          post.pieces.push_back({one.addr, one.length, one.lkey});
        }
      }
      Describe(checker, *qp, request.opcode, request.flags, request.rkey,
               request.remote_addr, &post);
    }
  } catch (const std::bad_alloc&) {
    return TracedWrComplete(ibv);
  }
  return CheckSends(*qp, posts, [&](size_t* accepted) {
    const int error = TracedWrComplete(ibv);
    *accepted = error == 0 ? posts.size() : 0;
    return error;
  });
}

int CheckedPostRecv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp* const qp = Find(ibv);
  Checker* const checker = Checker::Current();
  if (qp == nullptr || checker == nullptr) return TracedPostRecv(ibv, wr, bad);
  const lint::QpKey key = CheckedKey(*qp);
  try {
    if (wr != nullptr && checker->ExpectsFirstReceive(key)) {
      const uint32_t naks = qp->pair->Report().counters.rnr_naks_sent;
      if (naks > 0) checker->OnLateReceive(key, naks);
    }
    for (const ibv_recv_wr* one = wr; one != nullptr; one = one->next) {
      PostedSend post;
      AddPieces(one->sg_list, one->num_sge, &post);
      const std::string request = "receive " + std::to_string(one->wr_id);
      CheckLocal(checker, *qp, request, post.pieces, true);
      CheckFreed(checker, key, RegionsOf(*qp), request, post.pieces, false,
                 kAtPost);
    }
  } catch (const std::bad_alloc&) {
    // Without memory, the receives are not checked.
  }
  ibv_recv_wr* refused = nullptr;
  const int error = TracedPostRecv(ibv, wr, &refused);
  if (error != 0 && bad != nullptr) *bad = refused;
  const int before = errno;
  checker->OnReceivesPosted(key, Accepted(wr, refused, error));
  if (error == ENOMEM) checker->OnReceiveRefused(key, Unpolled(ibv->recv_cq));
  errno = before;
  return error;
}

// A completion was polled from the queue.
void CheckCompletion(Checker* checker, const Cq& cq, uint32_t qpn,
                     uint64_t wr_id, bool failed, bool receive) {
  const void* const device = &cq.owner->device->engine();
  std::vector<PostedSend> retired;
  const bool follows =
      checker->IsOn(lint::Lint::kBufferChanged) ||
      (checker->IsOn(lint::Lint::kFreedBuffer) && MemoryTool() != nullptr);
  checker->OnPolled({.cq = cq.queue->id(),
                     .device = device,
                     .qpn = qpn,
                     .wr_id = wr_id,
                     .failed = failed,
                     .receive = receive},
                    follows ? &retired : nullptr);
  if (retired.empty()) return;
  std::optional<transport::PdId> pd;
  {
    const std::lock_guard lock(cq.owner->mutex);
    for (Qp* one : cq.owner->qps) {
      if (one->base->qp_num == qpn && one->pair != nullptr &&
          one->pair->pd() != nullptr) {
        pd = one->pair->pd()->id;
      }
    }
  }
  if (!pd) return;
  // Check this request and the unsignaled ones that it completes. Another
  // thread may have polled the completion of an earlier one, so the program may
  // be using that one's buffer.
  size_t first = retired.size() - 1;
  while (first > 0 && !retired[first - 1].signaled) --first;
  for (size_t i = first; i < retired.size(); ++i) {
    const PostedSend& send = retired[i];
    if (!send.is_inline) {
      CheckFreed(checker, {device, qpn}, cq.owner->device->regions(),
                 "request " + std::to_string(send.wr_id), send.pieces, false,
                 kAtCompletion);
    }
    if (!send.checksum) continue;
    const auto now =
        Checksum(cq.owner->device->regions(), *pd, qpn, send.pieces);
    if (now && *now != *send.checksum) {
      checker->OnBufferChanged({device, qpn}, send.wr_id);
    }
  }
}

// The bytes of the members that a failed completion leaves undefined: all but
// wr_id, status, qp_num and vendor_err (ibv_poll_cq(3)).
constexpr uint8_t kJunk = 0xa5;

void FillUndefined(ibv_wc* wc) {
  const ibv_wc defined = *wc;
  std::memset(wc, kJunk, sizeof(*wc));
  wc->wr_id = defined.wr_id;
  wc->status = defined.status;
  wc->vendor_err = defined.vendor_err;
  wc->qp_num = defined.qp_num;
}

void FillUndefined(transport::Completion* completion) {
  std::memset(&completion->opcode, kJunk, sizeof(completion->opcode));
  std::memset(&completion->byte_len, kJunk, sizeof(completion->byte_len));
  std::memset(&completion->imm_be_or_rkey, kJunk,
              sizeof(completion->imm_be_or_rkey));
  std::memset(&completion->src_qpn, kJunk, sizeof(completion->src_qpn));
  std::memset(&completion->flags, kJunk, sizeof(completion->flags));
}

int CheckedPollCq(ibv_cq* ibv, int count, ibv_wc* wc) {
  const int polled = TracedPollCq(ibv, count, wc);
  Checker* const checker = Checker::Current();
  if (polled < 0 || count == 0 || checker == nullptr) return polled;
  const Cq& cq = *Find(ibv);
  checker->OnPollCall(cq.queue->id());
  for (int i = 0; i < polled; ++i) {
    const bool failed = wc[i].status != IBV_WC_SUCCESS;
    CheckCompletion(checker, cq, wc[i].qp_num, wc[i].wr_id, failed,
                    (wc[i].opcode & IBV_WC_RECV) != 0);
    if (failed && checker->IsOn(lint::Lint::kUndefinedField)) {
      FillUndefined(&wc[i]);
    }
  }
  return polled;
}

int CheckedReqNotifyCq(ibv_cq* ibv, int solicited_only) {
  Checker* const checker = Checker::Current();
  Cq* const cq = Find(ibv);
  if (checker != nullptr && cq != nullptr) {
    // A program that waits for solicited completions may leave others unpolled.
    checker->OnArmed(cq->queue->id(), solicited_only != 0 ? 0 : Unpolled(ibv));
  }
  return TracedReqNotifyCq(ibv, solicited_only);
}

int CheckPoll(ibv_cq_ex* ibv, int result) {
  Checker* const checker = Checker::Current();
  if (checker == nullptr) return result;
  Cq& cq = *static_cast<Cq*>(ibv);
  if (result == 0 || result == ENOENT) checker->OnPollCall(cq.queue->id());
  if (result != 0) return result;
  const bool failed = cq.current.status != transport::WcStatus::kSuccess;
  CheckCompletion(checker, cq, cq.current.qpn, cq.current.wr_id, failed,
                  (static_cast<int>(cq.current.opcode) & IBV_WC_RECV) != 0);
  if (failed && checker->IsOn(lint::Lint::kUndefinedField)) {
    FillUndefined(&cq.current);
  }
  return 0;
}

int CheckedStartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  return CheckPoll(cq, TracedStartPoll(cq, attr));
}

int CheckedNextPoll(ibv_cq_ex* cq) { return CheckPoll(cq, TracedNextPoll(cq)); }

}  // namespace

void CheckOps(ibv_context_ops* ops) {
  ops->poll_cq = CheckedPollCq;
  ops->req_notify_cq = CheckedReqNotifyCq;
  ops->post_send = CheckedPostSend;
  ops->post_recv = CheckedPostRecv;
}

void CheckCqEx(Cq* cq) {
  cq->start_poll = CheckedStartPoll;
  cq->next_poll = CheckedNextPoll;
}

void CheckQpEx(ibv_qp_ex* qp) { qp->wr_complete = CheckedWrComplete; }

void CheckWait(Channel* channel) {
  Checker* const checker = Checker::Current();
  pollfd event = {channel->events.fd(), POLLIN, 0};
  if (checker == nullptr || poll(&event, 1, 0) != 0) return;
  checker->OnWait(channel);
}

void CheckDeregistered(const Mr& mr) {
  Checker* const checker = Checker::Current();
  if (checker == nullptr) return;
  Context* const context = mr.owner;
  std::vector<std::pair<lint::QpKey, std::shared_ptr<rxe_user::QueuePair>>> qps;
  {
    const std::lock_guard lock(context->mutex);
    for (Qp* qp : context->qps) qps.emplace_back(CheckedKey(*qp), qp->pair);
  }
  for (const auto& [key, pair] : qps) {
    if (pair == nullptr) continue;
    const uint32_t incomplete = pair->Report().send_queued;
    if (incomplete == 0) continue;
    checker->OnDeregistered(key, mr.region->key(), incomplete);
  }
}

uint32_t MissingAcks(pthread_mutex_t* mutex, pthread_cond_t* cond,
                     const uint32_t* completed, uint32_t taken) {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  ++until.tv_sec;
  pthread_mutex_lock(mutex);
  int error = 0;
  while (static_cast<int32_t>(taken - *completed) > 0 && error == 0) {
    error = pthread_cond_timedwait(cond, mutex, &until);
  }
  const uint32_t missing = static_cast<uint32_t>(
      std::max(static_cast<int32_t>(taken - *completed), 0));
  pthread_mutex_unlock(mutex);
  return missing;
}

void NoteMade(const void* object) noexcept {
  Checker* const checker = Checker::Current();
  if (checker == nullptr) return;
  try {
    checker->OnMade(object);
  } catch (const std::bad_alloc&) {
    // Without memory, the finding will not say who made the object.
  }
}

namespace {

// Runs after the handlers of atexit(), which may destroy objects.
__attribute__((destructor)) void CheckEnd() {
  Checker* const checker = Checker::Current();
  if (checker == nullptr || !checker->IsOn(lint::Lint::kLeak)) return;
  std::vector<Checker::LeakedObject> left;
  const auto add = [&](const char* kind, const char* call, auto* base,
                       bool may_be_of_rdma_cm = false) {
    left.push_back({kind, call, base, may_be_of_rdma_cm});
  };
  ForEachLiveContext([&](const Context& context) {
    add("device context", "ibv_close_device", &context.context, true);
  });
  Handles<Pd>().ForEach([&](Pd* pd) {
    add("protection domain", "ibv_dealloc_pd", static_cast<ibv_pd*>(pd), true);
  });
  Handles<Mr>().ForEach([&](Mr* mr) {
    add("memory region", "ibv_dereg_mr", static_cast<ibv_mr*>(mr));
  });
  Handles<Mw>().ForEach([&](Mw* mw) {
    add("memory window", "ibv_dealloc_mw", static_cast<ibv_mw*>(mw));
  });
  Handles<Ah>().ForEach([&](Ah* ah) {
    add("address handle", "ibv_destroy_ah", static_cast<ibv_ah*>(ah));
  });
  Handles<Cq>().ForEach(
      [&](Cq* cq) { add("completion queue", "ibv_destroy_cq", cq->base()); });
  Handles<Srq>().ForEach([&](Srq* srq) {
    add("shared receive queue", "ibv_destroy_srq", static_cast<ibv_srq*>(srq));
  });
  Handles<Qp>().ForEach(
      [&](Qp* qp) { add("queue pair", "ibv_destroy_qp", qp->base); });
  checker->OnEnd(left);
}

}  // namespace
}  // namespace verbs_api
