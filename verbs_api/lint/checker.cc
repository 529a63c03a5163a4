#include "verbs_api/lint/checker.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <string_view>

#include "rxe_user/base/environment.h"
#include "rxe_user/base/warn_once.h"

namespace verbs_api::lint {
namespace {

using std::to_string;

// "1 event", "2 events".
std::string Number(uint64_t number, std::string_view noun) {
  return to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string MadeBy(const Origin& origin) {
  return origin.text.empty() ? "" : " (made by " + origin.text + ")";
}

}  // namespace

constinit std::atomic<Checker*> Checker::current_ = nullptr;

// The contents of a send queue: requests that were posted and are not known to
// be complete.
struct Checker::SendPosting::Sends {
  std::mutex order;  // held during posts, so that `queue` has their order
  // Guarded by the checker's lock.
  std::deque<PostedSend> queue;
  size_t reads = 0;  // those of the queue with writes_locally

  void Add(const PostedSend& send) {
    queue.push_back(send);
    reads += send.writes_locally;
  }
  // Remove the first `count`, or the last.
  void Retire(size_t count, std::vector<PostedSend>* to) {
    for (; count > 0; --count) {
      reads -= queue.front().writes_locally;
      if (to != nullptr) to->push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  void Withdraw(size_t count) {
    for (; count > 0 && !queue.empty(); --count) {
      reads -= queue.back().writes_locally;
      queue.pop_back();
    }
  }
};

// Holds the checker's lock, and reports findings after releasing it.
class Checker::Session {
 public:
  explicit Session(Checker& checker) : lock_(checker.mutex_) {}
  ~Session() {
    lock_.unlock();
    for (const Finding& finding : findings_) Report(finding);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  void Add(Finding finding) { findings_.push_back(std::move(finding)); }

 private:
  std::unique_lock<std::mutex> lock_;
  std::vector<Finding> findings_;
};

Checker::Checker(const Settings& settings)
    : ForkGuard(rxe_user::ForkLevel::kLeafLocks), settings_(settings) {
  EnterForkGuard();
}

Checker::~Checker() { LeaveForkGuard(); }

Checker* Checker::OfProcess() {
  if (Checker* const found = Current()) return found;
  const char* const value = rxe_user::Environment("RXE_USER_CHECK");
  if (value == nullptr) return nullptr;
  Settings settings;
  std::string wrong;
  if (!ParseSettings(value, &settings, &wrong)) {
    rxe_user::WarnOnce("RXE_USER_CHECK: there is no lint " + wrong +
                       " (docs/lints.md); it is ignored");
  }
  if (settings.on.none()) return nullptr;
  auto made = std::make_unique<Checker>(settings);
  Checker* found = nullptr;
  if (current_.compare_exchange_strong(found, made.get())) {
    return made.release();
  }
  return found;
}

void Checker::AfterForkInChild() {
  qps_.clear();
  cqs_.clear();
  made_.clear();
  mutex_.unlock();
}

std::string Checker::NameOf(const Qp& qp) {
  char number[16];
  std::snprintf(number, sizeof(number), "0x%06x", qp.qpn);
  return std::string("queue pair ") + number + MadeBy(qp.origin);
}

std::string Checker::NameOf(const Cq& cq) {
  return "completion queue" + MadeBy(cq.origin);
}

Checker::Qp* Checker::FindQp(QpKey key) {
  const auto found = qps_.find(key);
  return found != qps_.end() ? &found->second : nullptr;
}

Checker::Cq* Checker::FindCq(uint64_t cq) {
  const auto found = cqs_.find(cq);
  return found != cqs_.end() ? &found->second : nullptr;
}

template <typename Object>
void Checker::Find(Session& session, Object& object, Lint lint,
                   std::string what, std::string remedy) {
  const auto i = static_cast<size_t>(lint);
  if (!settings_.IsOn(lint) || object.reported[i]) return;
  object.reported.set(i);
  session.Add({lint, NameOf(object), std::move(what), std::move(remedy)});
}

// --- Completion queues.

void Checker::OnCqCreated(uint64_t cq, uint32_t wanted, bool may_overrun,
                          const void* channel) {
  const Origin origin = FindOrigin();
  const Session session(*this);
  Cq& made = cqs_[cq];
  made.wanted = wanted;
  made.may_overrun = may_overrun;
  made.channel = channel;
  made.origin = origin;
}

void Checker::OnCqResized(uint64_t cq, uint32_t wanted) {
  const Session session(*this);
  if (Cq* const found = FindCq(cq)) found->wanted = wanted;
}

void Checker::OnCqDestroyed(uint64_t cq) {
  const Session session(*this);
  cqs_.erase(cq);
}

void Checker::Use(uint64_t cq, uint32_t requests, int sign) {
  if (Cq* const found = FindCq(cq)) {
    found->used += static_cast<uint64_t>(sign * int64_t{requests});
  }
}

void Checker::UseSends(Session& session, Qp& qp) {
  if (qp.has_sent) return;
  qp.has_sent = true;
  Use(qp.created.send_cq, qp.created.wanted_send, 1);
  CheckSize(session, qp.created.send_cq);
}

void Checker::UseReceives(Session& session, Qp& qp) {
  if (qp.has_received) return;
  qp.has_received = true;
  const CreatedQp& created = qp.created;
  Cq* const cq = FindCq(created.recv_cq);
  // The receives of an SRQ complete once, however many queue pairs use it.
  if (created.srq == 0) {
    Use(created.recv_cq, created.wanted_recv, 1);
  } else if (cq != nullptr && cq->srqs[created.srq].users++ == 0) {
    // The size is stored, since it may change before the SRQ's last user is
    // gone.
    cq->srqs[created.srq].requests = created.wanted_recv;
    Use(created.recv_cq, created.wanted_recv, 1);
  }
  CheckSize(session, created.recv_cq);
}

void Checker::EndUse(const Qp& qp) {
  const CreatedQp& created = qp.created;
  if (qp.has_sent) Use(created.send_cq, created.wanted_send, -1);
  if (!qp.has_received) return;
  Cq* const cq = FindCq(created.recv_cq);
  if (created.srq == 0) {
    Use(created.recv_cq, created.wanted_recv, -1);
  } else if (cq != nullptr) {
    const auto srq = cq->srqs.find(created.srq);
    if (srq == cq->srqs.end() || --srq->second.users > 0) return;
    Use(created.recv_cq, srq->second.requests, -1);
    cq->srqs.erase(srq);
  }
}

void Checker::CheckSize(Session& session, uint64_t id) {
  Cq* const cq = FindCq(id);
  if (cq == nullptr || cq->may_overrun || cq->used <= cq->wanted) return;
  Find(session, *cq, Lint::kSmallCq,
       "it has " + to_string(cq->wanted) +
           " entries, and the queues that use it hold " + to_string(cq->used) +
           " requests: it overruns, and their queue pairs fail, if more of "
           "them complete than it has entries",
       "create it with a cqe of " + to_string(cq->used) + " or more");
}

// --- Events.

void Checker::OnPollCall(uint64_t cq) {
  const Session session(*this);
  if (Cq* const found = FindCq(cq)) found->armed_with = 0;
}

void Checker::OnArmed(uint64_t cq, uint32_t unpolled) {
  const Session session(*this);
  if (Cq* const found = FindCq(cq)) found->armed_with = unpolled;
}

void Checker::OnWait(const void* channel) {
  Session session(*this);
  for (auto& [id, cq] : cqs_) {
    if (cq.channel != channel || cq.armed_with == 0) continue;
    Find(session, cq, Lint::kArmedUnpolled,
         "ibv_req_notify_cq was called with " +
             Number(cq.armed_with, "completion") +
             " in it, and the program waits in ibv_get_cq_event "
             "without a poll: an event is raised for later completions only, "
             "so it may wait for ever",
         "poll once more between ibv_req_notify_cq and the wait");
  }
}

void Checker::OnUnacknowledged(uint64_t cq, uint32_t events) {
  Session session(*this);
  if (Cq* const found = FindCq(cq)) {
    Find(session, *found, Lint::kUnacknowledged,
         "ibv_destroy_cq has waited a second for the acknowledgement of " +
             Number(events, "event") + ", and waits on",
         "call ibv_ack_cq_events for each event that was taken, before "
         "ibv_destroy_cq");
  }
}

// --- Queue pairs.

void Checker::OnQpCreated(QpKey key, const CreatedQp& created) {
  const Origin origin = FindOrigin();
  Session session(*this);
  Qp& qp = qps_[key];
  EndUse(qp);  // one of a context that was closed before its queue pairs
  qp = {};
  qp.qpn = key.second;
  qp.created = created;
  qp.origin = origin;
  qp.sends = std::make_shared<SendPosting::Sends>();
  // Receives are posted to the SRQ, which the checker does not see.
  if (created.srq != 0) UseReceives(session, qp);
}

void Checker::OnQpDestroyed(QpKey key) {
  const Session session(*this);
  const auto found = qps_.find(key);
  if (found == qps_.end()) return;
  EndUse(found->second);
  qps_.erase(found);
}

void Checker::OnQpModified(QpKey key, const ModifiedQp& change) {
  const Origin origin = FindOrigin();
  Session session(*this);
  Qp* const qp = FindQp(key);
  if (qp == nullptr) return;
  if (change.to_reset) {
    qp->sends->Retire(qp->sends->queue.size(), nullptr);
    qp->receives = 0;
  }
  const std::string by = origin.text.empty() ? "" : " by " + origin.text;
  if (change.has_min_rnr_timer && change.min_rnr_timer == 0 &&
      !origin.by_rdma_cm) {
    Find(session, *qp, Lint::kRnrTimer,
         "min_rnr_timer is set to 0" + by +
             ", which means 655.36 ms: a peer that finds no receive waits so "
             "long before it tries again",
         "use 1 (0.01 ms) to 12 (0.64 ms)");
  }
  if (change.has_timeout && change.timeout == 0) {
    Find(session, *qp, Lint::kTimeout,
         "timeout is set to 0" + by +
             ", which means for ever: a request whose acknowledgement is lost, "
             "or whose peer is gone, never completes",
         "use 14 (67 ms), or what fits the network");
  }
  if (change.has_rnr_retry && change.rnr_retry == 0) {
    Find(session, *qp, Lint::kRnrRetry,
         "rnr_retry is set to 0" + by +
             ": the first message that finds no receive posted fails with "
             "IBV_WC_RNR_RETRY_EXC_ERR",
         "use 7 (without limit), or 1 to 6");
  }
}

// --- Requests.

Checker::SendPosting::SendPosting(Checker& checker, QpKey key,
                                  std::span<const PostedSend> posts)
    : checker_(checker), key_(key), count_(posts.size()) {
  {
    const Session session(checker);
    if (Qp* const qp = checker.FindQp(key)) sends_ = qp->sends;
  }
  if (sends_ == nullptr) return;
  order_ = std::unique_lock(sends_->order);
  // Add the requests before the post: another thread may poll a completion
  // before the post returns.
  Session session(checker);
  Qp* const qp = checker.FindQp(key);
  if (qp != nullptr) checker.UseSends(session, *qp);
  for (const PostedSend& post : posts) {
    sends_->Add(post);
    if (qp != nullptr && sends_->reads > 0) {
      checker.CheckOrder(session, *qp, sends_->queue.size() - 1);
    }
  }
}

void Checker::SendPosting::End(size_t accepted, int error, uint32_t unpolled) {
  if (sends_ == nullptr || error == 0) return;
  Session session(checker_);
  const std::deque<PostedSend>& queue = sends_->queue;
  sends_->Withdraw(count_ - accepted);
  Qp* const qp = checker_.FindQp(key_);
  // If the queue has room for the requests, there was another cause, or
  // requests were posted unseen (mlx5dv).
  const size_t refused = count_ - accepted;
  if (qp == nullptr || error != ENOMEM ||
      queue.size() + refused <= qp->created.max_send) {
    return;
  }
  const std::string holds =
      "ibv_post_send failed with ENOMEM: " + to_string(queue.size()) +
      " requests are in its send queue";
  const bool any_signaled = std::ranges::any_of(
      queue, [](const auto& send) { return send.signaled; });
  if (!any_signaled) {
    checker_.Find(session, *qp, Lint::kUnsignaled,
                  holds +
                      ", and none is signaled: they leave it when a later "
                      "completion is polled, and there will be none",
                  "set IBV_SEND_SIGNALED in at least one of " +
                      to_string(qp->created.max_send) +
                      " requests, and poll its completion");
  } else if (unpolled > 0) {
    checker_.Find(session, *qp, Lint::kUnpolled,
                  holds + ", and its completion queue holds " +
                      Number(unpolled, "completion") +
                      " that were not polled: requests leave the send queue "
                      "when their completions are polled",
                  "poll before posting more");
  } else {
    checker_.Find(session, *qp, Lint::kQueueFull,
                  holds + " (max_send_wr), and none of them is complete",
                  "count the requests and wait for completions before posting "
                  "more, or ask for a larger max_send_wr");
  }
}

void Checker::CheckOrder(Session& session, Qp& qp, size_t at) {
  const std::deque<PostedSend>& queue = qp.sends->queue;
  const PostedSend& send = queue[at];
  if (send.writes_locally || send.fenced) return;
  const auto overlap = [&](const PostedSend& read) {
    for (const Piece& a : read.pieces) {
      for (const Piece& b : send.pieces) {
        // An inline request has no key.
        if ((a.lkey == b.lkey || send.is_inline) &&
            a.address < b.address + b.length &&
            b.address < a.address + a.length) {
          return true;
        }
      }
    }
    return false;
  };
  for (size_t i = at; i-- > 0;) {
    if (queue[i].writes_locally && overlap(queue[i])) {
      Find(session, qp, Lint::kReadThenSend,
           "request " + to_string(send.wr_id) +
               " sends memory that READ or atomic request " +
               to_string(queue[i].wr_id) +
               ", posted before it and not complete, is to fill: it may send "
               "the old contents",
           "set IBV_SEND_FENCE in it, or poll the completion of the earlier "
           "request first");
      return;
    }
    // A fenced request has waited for the earlier READs.
    if (queue[i].fenced) return;
  }
}

bool Checker::ExpectsFirstReceive(QpKey key) {
  const Session session(*this);
  const Qp* const qp = FindQp(key);
  return qp != nullptr && qp->created.srq == 0 && !qp->has_received;
}

void Checker::OnLateReceive(QpKey key, uint32_t naks) {
  Find(key, Lint::kLateReceive,
       "its first receive is posted after the peer has sent: the peer got " +
           Number(naks, "RNR NAK") +
           ", and had to wait (min_rnr_timer) and send again, or failed "
           "(rnr_retry)",
       "post receives in INIT, before the peer can send");
}

void Checker::OnReceivesPosted(QpKey key, size_t count) {
  Session session(*this);
  Qp* const qp = FindQp(key);
  if (qp == nullptr || count == 0) return;
  qp->receives += static_cast<uint32_t>(count);
  UseReceives(session, *qp);
}

void Checker::OnReceiveRefused(QpKey key, uint32_t unpolled) {
  Session session(*this);
  Qp* const qp = FindQp(key);
  if (qp == nullptr || qp->receives < qp->created.max_recv) return;
  const std::string holds =
      "ibv_post_recv failed with ENOMEM: " + to_string(qp->receives) +
      " receives are in its receive queue";
  if (unpolled > 0) {
    Find(session, *qp, Lint::kUnpolled,
         holds + ", and its completion queue holds " +
             Number(unpolled, "completion") +
             " that were not polled: receives leave the receive queue when "
             "their completions are polled",
         "poll before posting more");
  } else {
    Find(session, *qp, Lint::kQueueFull,
         holds + " (max_recv_wr), and no message has taken one",
         "post one receive for each completion, or ask for a larger "
         "max_recv_wr");
  }
}

void Checker::OnPolled(const Polled& polled, std::vector<PostedSend>* retired) {
  const Session session(*this);
  Qp* const qp = FindQp({polled.device, polled.qpn});
  if (qp == nullptr) return;
  const std::deque<PostedSend>& sends = qp->sends->queue;
  // The opcode of a failed completion is undefined.
  const bool may_be_send =
      polled.cq == qp->created.send_cq && (polled.failed || !polled.receive);
  if (may_be_send) {
    // A failed request may be unsignaled. All requests before it are complete
    // as well.
    const auto found = std::ranges::find_if(sends, [&](const auto& send) {
      return send.wr_id == polled.wr_id && (send.signaled || polled.failed);
    });
    if (found != sends.end()) {
      qp->sends->Retire(static_cast<size_t>(found - sends.begin()) + 1,
                        retired);
      return;
    }
  }
  if ((polled.receive || polled.failed) && qp->receives > 0) --qp->receives;
}

// --- Memory.

void Checker::Find(QpKey key, Lint lint, std::string what, std::string remedy) {
  Session session(*this);
  if (Qp* const qp = FindQp(key)) {
    Find(session, *qp, lint, std::move(what), std::move(remedy));
  }
}

void Checker::OnLocalKey(QpKey key, const std::string& what) {
  Find(key, Lint::kLocalKey, what,
       "register the memory in the queue pair's protection domain, with "
       "IBV_ACCESS_LOCAL_WRITE for what is received or read, and use its lkey");
}

void Checker::OnRemoteKey(QpKey key, const std::string& what) {
  Find(key, Lint::kRemoteKey, what,
       "use the rkey and address that the peer has told; the peer registers "
       "the memory with this right");
}

void Checker::OnMixedKeys(QpKey key, const std::string& what) {
  Find(key, Lint::kMixedKeys, what,
       "tell the peer the rkey of ibv_reg_mr, and use the lkey in sg_list: "
       "with some devices they are two numbers");
}

void Checker::OnDeregistered(QpKey key, uint32_t lkey, uint32_t incomplete) {
  Session session(*this);
  Qp* const qp = FindQp(key);
  if (qp == nullptr) return;
  const std::deque<PostedSend>& queue = qp->sends->queue;
  const size_t first =
      queue.size() - std::min<size_t>(queue.size(), incomplete);
  for (size_t i = first; i < queue.size(); ++i) {
    if (queue[i].is_inline) continue;
    for (const Piece& piece : queue[i].pieces) {
      if (piece.lkey != lkey) continue;
      Find(session, *qp, Lint::kBufferGone,
           "ibv_dereg_mr takes memory away that request " +
               to_string(queue[i].wr_id) +
               ", which is not complete, uses: it fails, or transfers what is "
               "there by then",
           "poll its completion, or destroy the queue pair, before "
           "ibv_dereg_mr");
      return;
    }
  }
}

void Checker::OnBufferChanged(QpKey key, uint64_t wr_id) {
  Find(key, Lint::kBufferChanged,
       "the memory of request " + to_string(wr_id) +
           " was changed between its post and its completion: the peer got "
           "the old contents, the new ones, or parts of both",
       "change it after the completion was polled");
}

void Checker::OnFreedBuffer(QpKey key, const std::string& request,
                            const void* address, const char* when,
                            const char* tool) {
  char where[24];
  std::snprintf(where, sizeof(where), "%p", address);
  Find(key, Lint::kFreedBuffer,
       request + " has memory that is freed, or outside of an allocation, " +
           when + " (" + tool + ": " + where + ")",
       "free memory after the completion of the last request that uses it was "
       "polled, and not what a region of it still covers");
}

void Checker::OnUninitialized(QpKey key, const std::string& request,
                              uint64_t offset, uint64_t length,
                              const char* tool) {
  Find(key, Lint::kUninitialized,
       request + " sends memory that was never given a value, from byte " +
           to_string(offset) + " of " + to_string(length) + " on (" + tool +
           "): the peer gets what was there before",
       "fill all that its sg_list covers, or send less");
}

// --- Leaks.

void Checker::OnMade(const void* object) {
  if (!IsOn(Lint::kLeak)) return;
  const Origin origin = FindOrigin();
  const Session session(*this);
  made_[object] = origin;
}

void Checker::OnEnd(std::span<const LeakedObject> left) {
  if (!IsOn(Lint::kLeak)) return;
  Session session(*this);
  struct Group {
    uint32_t count = 0;
    const char* call = nullptr;
  };
  std::map<std::pair<std::string_view, std::string>, Group> groups;
  for (const LeakedObject& one : left) {
    const Origin origin = made_[one.object];
    if (one.may_be_of_rdma_cm && origin.by_rdma_cm) continue;
    Group& group = groups[{one.kind, MadeBy(origin)}];
    ++group.count;
    group.call = one.call;
  }
  for (const auto& [name, group] : groups) {
    session.Add(
        {Lint::kLeak, std::string(name.first) + name.second,
         Number(group.count, "such object") + " left at the end of the program",
         std::string("call ") + group.call});
  }
}

}  // namespace verbs_api::lint
