#include "rxe_user/observe/trace_queues.h"

#include <algorithm>
#include <utility>

#include "transport/qp/send_operation.h"
#include "wire/aeth.h"
#include "wire/opcode.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace rxe_user::trace {
namespace {

using transport::Completion;
using transport::RareEvent;
using transport::RareEventKind;
using transport::SendKind;
using transport::SendOpcode;
using transport::WcStatus;

// Whether the request takes no packets.
bool IsLocal(SendOpcode opcode) {
  return GetSendOperation(opcode).kind == SendKind::kLocal;
}

// Whether the request is one packet, whatever its length.
bool IsOnePacket(SendOpcode opcode) {
  const SendKind kind = GetSendOperation(opcode).kind;
  return kind == SendKind::kAtomic || kind == SendKind::kFlush;
}

uint64_t Key(const QueueName& queue) {
  return static_cast<uint64_t>(queue.kind) << 32 | queue.number;
}

template <typename Queue>
void Bound(Queue* queue, size_t most) {
  while (queue->size() > most) queue->pop_front();
}

}  // namespace

// --- Work requests.

std::deque<Post>& TraceQueues::ListOf(const QueueName& queue) {
  return queue.kind == QueueKind::kSend ? queue_pairs_[queue.number].sends
                                        : receives_[Key(queue)];
}

void TraceQueues::Add(const QueueName& queue, std::span<Post> posts) {
  std::deque<Post>& list = ListOf(queue);
  for (Post& post : posts) {
    post.id = NextId();
    list.push_back(post);
  }
  if (queue.kind != QueueKind::kSend) Bound(&list, kMax);
}

void TraceQueues::Remove(const QueueName& queue, std::span<const Post> posts) {
  std::deque<Post>& list = ListOf(queue);
  for (size_t i = posts.size(); i-- > 0;) {
    // Usually it is the last one.
    for (size_t at = list.size(); at-- > 0;) {
      if (list[at].id != posts[i].id) continue;
      list.erase(list.begin() + static_cast<ptrdiff_t>(at));
      break;
    }
  }
}

// --- Packets.

uint64_t TraceQueues::ComingPacket(QueuePair* qp) {
  if (qp->coming_packet == 0) qp->coming_packet = NextId();
  return qp->coming_packet;
}

std::optional<BegunEvent> TraceQueues::OnPacket(
    const transport::ObservedPacket& packet, PacketEvent* event,
    std::optional<uint32_t>* repeated) {
  wire::PacketView view;
  const bool is_good =
      wire::PacketView::Parse(packet.bytes, &view) == wire::ParseError::kOk;
  const bool is_sent = packet.direction == transport::Direction::kTransmitted;
  uint32_t qpn = packet.qpn;
  if (!is_sent && is_good) qpn = view.bth().dest_qpn;
  const auto found = queue_pairs_.find(qpn);
  std::optional<BegunEvent> begun;
  if (found != queue_pairs_.end()) {
    QueuePair& qp = found->second;
    if (!is_sent) {
      event->header.id = std::exchange(qp.coming_packet, 0);
    } else if (is_good && view.info().is_request) {
      begun = OnRequest(&qp, packet, event, repeated);
    } else if (is_good && view.info().Has(wire::kAeth) &&
               wire::AethKindOf(view.aeth().syndrome) != wire::AethKind::kAck) {
      event->header.cause = std::exchange(qp.nak, 0);
    }
    event->header.qpn = qpn;
  }
  if (begun) begun->header.qpn = qpn;
  if (event->header.id == 0) event->header.id = NextId();
  return begun;
}

std::optional<BegunEvent> TraceQueues::OnRequest(
    QueuePair* qp, const transport::ObservedPacket& packet, PacketEvent* event,
    std::optional<uint32_t>* repeated) {
  wire::PacketView view;
  wire::PacketView::Parse(packet.bytes, &view);
  const uint32_t psn = view.bth().psn;
  const bool is_new = !qp->has_sent || wire::PsnDiff(psn, qp->highest_psn) > 0;
  if (!is_new) {
    event->header.cause = qp->repeat;
    if (repeated != nullptr && qp->is_reliable()) *repeated = psn;
    return std::nullopt;
  }
  qp->has_sent = true;
  qp->highest_psn = psn;
  std::optional<BegunEvent> begun;
  if (view.info().starts_message) {
    begun = Begin(
        qp, psn,
        wire::OperationOf(view.opcode()) == wire::Operation::kReadRequest);
    qp->last_begun = begun ? begun->header.id : 0;
  }
  event->header.cause = qp->last_begun;
  event->message = qp->messages;
  return begun;
}

// The n-th request that takes packets is the n-th FIRST or ONLY packet.
std::optional<BegunEvent> TraceQueues::Begin(QueuePair* qp, uint32_t psn,
                                             bool is_read) {
  ++qp->messages;
  while (qp->begun < qp->sends.size() && IsLocal(qp->sends[qp->begun].opcode)) {
    ++qp->begun;
  }
  if (qp->begun == qp->sends.size()) return std::nullopt;
  Post& post = qp->sends[qp->begun++];
  BegunEvent begun;
  begun.header.id = NextId();
  begun.header.cause = post.id;
  begun.wr_id = post.wr_id;
  begun.message = qp->messages;
  begun.first_psn = begun.last_psn = psn;
  const bool is_one =
      IsOnePacket(post.opcode) || qp->type == transport::QpType::kUd;
  if (!is_one && post.bytes > 0) {
    begun.last_psn =
        wire::PsnAdd(psn, static_cast<int64_t>((post.bytes - 1) / qp->mtu));
  }
  if (is_read) qp->highest_psn = begun.last_psn;
  post.begun = true;
  post.first_psn = begun.first_psn;
  post.last_psn = begun.last_psn;
  return begun;
}

// --- Decisions.

TraceQueues::Id TraceQueues::OnDecision(const RareEvent& event) {
  QueuePair& qp = queue_pairs_[event.qpn];
  Id ids = {.id = NextId()};
  switch (event.kind) {
    case RareEventKind::kState: {
      const auto to = static_cast<transport::QpState>(event.value & 0xff);
      if (to == transport::QpState::kErr || to == transport::QpState::kSqe) {
        if (event.reason != transport::Reason::kModifiedToError) {
          ids.cause = qp.decision;
        }
        qp.error = ids.id;
      } else if (to == transport::QpState::kReset) {
        Forget(event.qpn);
      }
      break;
    }
    case RareEventKind::kAckTimeout:
    case RareEventKind::kProbe:
      qp.decision = qp.repeat = ids.id;
      qp.why = event.kind == RareEventKind::kProbe
                   ? RetransmissionReason::kProbe
                   : RetransmissionReason::kAckTimeout;
      break;
    case RareEventKind::kRetransmission:
      ids.cause = qp.decision;
      qp.repeat = ids.id;
      break;
    case RareEventKind::kSequenceNakReceived:
    case RareEventKind::kFatalNakReceived:
    case RareEventKind::kRnrNakReceived:
      ids.cause = ComingPacket(&qp);
      qp.decision = qp.repeat = ids.id;
      qp.why = event.kind == RareEventKind::kRnrNakReceived
                   ? RetransmissionReason::kRnr
                   : RetransmissionReason::kSequenceNak;
      break;
    case RareEventKind::kRetriesExceeded:
    case RareEventKind::kRnrRetriesExceeded:
      ids.cause = qp.decision;
      qp.decision = ids.id;
      break;
    case RareEventKind::kSequenceNakSent:
    case RareEventKind::kFatalNakSent:
    case RareEventKind::kRnrNakSent:
      qp.nak = ids.id;
      break;
    case RareEventKind::kDestroyed:
      Forget(event.qpn);
      queue_pairs_.erase(event.qpn);
      break;
    case RareEventKind::kFault:
      break;
  }
  return ids;
}

// The queue pair was reset or destroyed: its requests and completions are gone.
void TraceQueues::Forget(uint32_t qpn) {
  QueuePair& qp = queue_pairs_[qpn];
  QueuePair fresh;
  fresh.type = qp.type;
  fresh.mtu = qp.mtu;
  qp = std::move(fresh);
  ForgetQueue({QueueKind::kReceive, qpn});
  for (auto& [cq, completions] : completions_) {
    std::erase_if(completions.unpolled,
                  [qpn](const Unpolled& each) { return each.qpn == qpn; });
  }
}

const Post* TraceQueues::FindByPsn(uint32_t qpn, uint32_t psn) const {
  const auto qp = queue_pairs_.find(qpn);
  if (qp == queue_pairs_.end()) return nullptr;
  for (const Post& post : qp->second.sends) {
    if (post.begun && wire::PsnDiff(psn, post.first_psn) >= 0 &&
        wire::PsnDiff(psn, post.last_psn) <= 0) {
      return &post;
    }
  }
  return nullptr;
}

void TraceQueues::ForgetQueue(const QueueName& queue) {
  receives_.erase(Key(queue));
}

uint32_t TraceQueues::highest_psn(uint32_t qpn) const {
  const auto qp = queue_pairs_.find(qpn);
  return qp == queue_pairs_.end() ? 0 : qp->second.highest_psn;
}

RetransmissionReason TraceQueues::why(uint32_t qpn) const {
  const auto qp = queue_pairs_.find(qpn);
  return qp == queue_pairs_.end() ? RetransmissionReason::kGap : qp->second.why;
}

void TraceQueues::SetMtu(uint32_t qpn, transport::QpType type, uint32_t mtu) {
  QueuePair& qp = queue_pairs_[qpn];
  qp.type = type;
  if (mtu != 0) qp.mtu = mtu;
}

// --- Completions.

uint64_t TraceQueues::CauseOf(const Completion& completion, bool has_answer,
                              QueuePair* qp) {
  if (completion.status == WcStatus::kFlushed) return qp->error;
  if (completion.status != WcStatus::kSuccess) return qp->decision;
  return has_answer ? ComingPacket(qp) : 0;
}

std::vector<CompletedEvent> TraceQueues::OnCompletion(
    const Completion& completion, const QueueName& queue, uint64_t cq,
    std::optional<Post>* ended) {
  QueuePair& qp = queue_pairs_[completion.qpn];
  std::deque<Post>& list = ListOf(queue);
  const bool is_send = queue.kind == QueueKind::kSend;
  const bool failed = completion.status != WcStatus::kSuccess;
  const auto posted =
      std::find_if(list.begin(), list.end(), [&](const Post& post) {
        return post.wr_id == completion.wr_id && (post.signaled || failed);
      });
  std::vector<CompletedEvent> events;
  CompletedEvent event;
  event.header.qpn = completion.qpn;
  const bool is_local = posted != list.end() && IsLocal(posted->opcode);
  event.header.cause =
      CauseOf(completion, !is_send || (qp.is_reliable() && !is_local), &qp);
  if (posted != list.end()) {
    const auto place = posted - list.begin();
    if (ended != nullptr) *ended = *posted;
    event.posted = posted->id;
    const auto first = is_send ? list.begin() : posted;
    for (auto each = first; each != posted; ++each) {
      if (each->signaled) continue;
      CompletedEvent silent = event;
      silent.header.id = NextId();
      if (failed) silent.header.cause = 0;
      silent.wr_id = each->wr_id;
      silent.posted = each->id;
      silent.opcode =
          static_cast<uint8_t>(GetSendOperation(each->opcode).wc_opcode);
      events.push_back(silent);
    }
    list.erase(first, posted + 1);
    if (is_send) {
      qp.begun -= std::min(qp.begun, static_cast<size_t>(place) + 1);
    }
  }
  event.header.id = NextId();
  event.wr_id = completion.wr_id;
  event.cq = static_cast<uint32_t>(cq);
  event.bytes = completion.byte_len;
  event.reason = static_cast<uint32_t>(completion.reason);
  event.status = static_cast<uint8_t>(completion.status);
  event.opcode = static_cast<uint8_t>(completion.opcode);
  events.push_back(event);
  std::deque<Unpolled>& unpolled = completions_[cq].unpolled;
  unpolled.push_back({event.header.id, completion.qpn, completion.wr_id});
  Bound(&unpolled, kMax);
  return events;
}

uint64_t TraceQueues::OnPolled(uint64_t cq, uint32_t qpn, uint64_t wr_id) {
  std::deque<Unpolled>& unpolled = completions_[cq].unpolled;
  const auto found =
      std::find_if(unpolled.begin(), unpolled.end(), [&](const Unpolled& each) {
        return each.qpn == qpn && each.wr_id == wr_id;
      });
  if (found == unpolled.end()) return 0;
  const uint64_t id = found->id;
  unpolled.erase(found);
  return id;
}

uint64_t TraceQueues::TakeEmptyPolls(uint64_t cq) {
  return std::exchange(completions_[cq].empty_polls, 0);
}

}  // namespace rxe_user::trace
