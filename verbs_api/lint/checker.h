// Follows how the program uses the verbs, and reports misuse (`rxe-user run
// --check`, docs/lints.md). Objects are known by numbers, to which the layer
// above translates its objects.
#ifndef VERBS_API_LINT_CHECKER_H_
#define VERBS_API_LINT_CHECKER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "rxe_user/base/fork_guard.h"
#include "transport/base/types.h"
#include "verbs_api/lint/lints.h"
#include "verbs_api/lint/report.h"

namespace verbs_api::lint {

// A queue pair: its device, and its number on that device.
using QpKey = std::pair<const void*, uint32_t>;

struct CreatedQp {
  uint64_t send_cq = 0;      // 0: none
  uint64_t recv_cq = 0;      // 0: none
  uint64_t srq = 0;          // 0: none
  uint32_t wanted_send = 0;  // max_send_wr as requested
  uint32_t wanted_recv = 0;  // max_recv_wr as requested, or that of the SRQ
  uint32_t max_send = 0;     // the granted number
  uint32_t max_recv = 0;
};

// Attributes of ibv_modify_qp(3) that lints check.
struct ModifiedQp {
  bool to_reset = false;
  bool has_min_rnr_timer = false;
  bool has_timeout = false;
  bool has_rnr_retry = false;
  uint8_t min_rnr_timer = 0;
  uint8_t timeout = 0;
  uint8_t rnr_retry = 0;
};

// A piece of memory of a request.
struct Piece {
  uint64_t address = 0;
  uint32_t length = 0;
  uint32_t lkey = 0;
};

// A send request that is being posted.
struct PostedSend {
  uint64_t wr_id = 0;
  bool signaled = false;
  bool fenced = false;
  bool writes_locally = false;  // READ, atomics: into `pieces`
  bool is_inline = false;       // `pieces` are read at the post
  absl::InlinedVector<Piece, 2> pieces;
  std::optional<uint64_t> checksum;  // of the data to send; absent if unknown
};

// Thread: any. Its lock is a leaf, except that the lock of a SendPosting is
// taken before all others. A child of fork() begins without objects.
class Checker final : private rxe_user::ForkGuard {
 public:
  explicit Checker(const Settings& settings);
  ~Checker();

  // The checker of this process; null without RXE_USER_CHECK. The first call
  // reads the setting.
  static Checker* OfProcess();
  // The same, but null before the first call of OfProcess. Takes no lock.
  static Checker* Current() { return current_.load(std::memory_order_acquire); }

  bool IsOn(Lint lint) const { return settings_.IsOn(lint); }

  // --- Objects. `channel` names the completion channel; null: none.
  // `may_overrun`: the program prefers losing completions to an error.
  void OnCqCreated(uint64_t cq, uint32_t wanted, bool may_overrun,
                   const void* channel);
  void OnCqResized(uint64_t cq, uint32_t wanted);
  void OnCqDestroyed(uint64_t cq);
  void OnQpCreated(QpKey key, const CreatedQp& qp);
  void OnQpModified(QpKey key, const ModifiedQp& change);
  void OnQpDestroyed(QpKey key);

  // --- Requests. A SendPosting represents the posting of a list of send
  // requests, from before the post until after it.
  class SendPosting {
   public:
    SendPosting(Checker& checker, QpKey key, std::span<const PostedSend> posts);
    // The device accepted the first `accepted` requests and refused the next
    // one with `error`; 0: it accepted all. `unpolled`: completions in the send
    // queue's CQ.
    void End(size_t accepted, int error, uint32_t unpolled);

   private:
    struct Sends;
    friend class Checker;
    Checker& checker_;
    const QpKey key_;
    const size_t count_;
    std::shared_ptr<Sends> sends_;  // null: unknown queue pair
    std::unique_lock<std::mutex> order_;
  };
  // Whether no receive has been posted yet to the queue pair's own queue.
  bool ExpectsFirstReceive(QpKey key);
  // Before the first receive was posted, the peer was told `naks` times to wait
  // for one.
  void OnLateReceive(QpKey key, uint32_t naks);
  // Receives were posted to the queue pair's own queue; or one was refused with
  // ENOMEM.
  void OnReceivesPosted(QpKey key, size_t count);
  void OnReceiveRefused(QpKey key, uint32_t unpolled);
  // A completion was polled.
  struct Polled {
    uint64_t cq = 0;
    const void* device = nullptr;
    uint32_t qpn = 0;
    uint64_t wr_id = 0;
    bool failed = false;
    bool receive = false;  // if it has not failed
  };
  // Unless it is null, `*retired` gets the send requests that this completes.
  void OnPolled(const Polled& polled, std::vector<PostedSend>* retired);

  // --- Events.
  // The program polls the queue.
  void OnPollCall(uint64_t cq);
  // The program requests an event while the queue holds `unpolled` completions,
  // which will cause none.
  void OnArmed(uint64_t cq, uint32_t unpolled);
  // The program is about to wait for an event of the channel, and there is
  // none.
  void OnWait(const void* channel);
  // The program destroys the queue without having acknowledged this many of its
  // events.
  void OnUnacknowledged(uint64_t cq, uint32_t events);

  // --- Memory.
  // The device will refuse a piece of a request; `what` says which one and why.
  void OnLocalKey(QpKey key, const std::string& what);
  void OnRemoteKey(QpKey key, const std::string& what);
  // An lkey was used where the region's rkey belongs, or the reverse.
  void OnMixedKeys(QpKey key, const std::string& what);
  // The region `lkey` is deregistered while the last `incomplete` send requests
  // are not complete.
  void OnDeregistered(QpKey key, uint32_t lkey, uint32_t incomplete);
  void OnBufferChanged(QpKey key, uint64_t wr_id);
  // `request` uses `address`, which `tool` ("AddressSanitizer") knows to be
  // freed or outside of an allocation. `when`: "at its post", "at its
  // completion".
  void OnFreedBuffer(QpKey key, const std::string& request, const void* address,
                     const char* when, const char* tool);
  // `request` sends memory of which byte `offset` of `length`, and perhaps
  // later ones, has never been given a value.
  void OnUninitialized(QpKey key, const std::string& request, uint64_t offset,
                       uint64_t length, const char* tool);

  // --- Leaks.
  // An object was made, perhaps at the address of one that no longer exists.
  void OnMade(const void* object);
  // An object that still exists at the end of the program.
  struct LeakedObject {
    const char* kind;  // "protection domain"
    const char* call;  // the call that destroys it
    const void* object;
    // librdmacm may have made it for itself.
    bool may_be_of_rdma_cm = false;
  };
  void OnEnd(std::span<const LeakedObject> left);

 private:
  class Session;
  struct Cq {
    uint32_t wanted = 0;
    bool may_overrun = false;
    const void* channel = nullptr;
    uint32_t armed_with = 0;  // completions; 0: polled since, or not armed
    Origin origin;
    uint64_t used = 0;  // requests that may complete here
    std::bitset<kLintCount> reported;
    struct Srq {
      uint32_t users = 0;
      uint32_t requests = 0;  // of it, in `used`
    };
    std::unordered_map<uint64_t, Srq> srqs;
  };
  struct Qp {
    uint32_t qpn = 0;
    CreatedQp created;
    Origin origin;
    std::shared_ptr<SendPosting::Sends> sends;
    uint32_t receives = 0;      // posted, without a polled completion
    bool has_sent = false;      // has posted a send request
    bool has_received = false;  // has posted a receive, or has an SRQ
    std::bitset<kLintCount> reported;
  };

  // Reports the first finding of `lint` for the object.
  template <typename Object>
  void Find(Session& session, Object& object, Lint lint, std::string what,
            std::string remedy);
  // The same, for a queue pair; for an unknown one, nothing.
  void Find(QpKey key, Lint lint, std::string what, std::string remedy);
  static std::string NameOf(const Qp& qp);
  static std::string NameOf(const Cq& cq);
  // Adds (sign 1) or removes (sign -1) the requests of a queue that completes
  // in `cq`.
  void Use(uint64_t cq, uint32_t requests, int sign);
  // A queue counts from its first post on.
  void UseSends(Session& session, Qp& qp);
  void UseReceives(Session& session, Qp& qp);
  void EndUse(const Qp& qp);
  void CheckSize(Session& session, uint64_t cq);
  // `send` was added to the queue: checks whether it may send data that an
  // earlier READ has not fetched yet.
  void CheckOrder(Session& session, Qp& qp, size_t send);
  Qp* FindQp(QpKey key);
  Cq* FindCq(uint64_t cq);

  // --- rxe_user::ForkGuard
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override;

  static constinit std::atomic<Checker*> current_;

  const Settings settings_;
  std::mutex mutex_;  // guards all that follows
  std::unordered_map<uint64_t, Cq> cqs_;
  std::unordered_map<QpKey, Qp, absl::Hash<QpKey>> qps_;
  std::unordered_map<const void*, Origin> made_;
};

}  // namespace verbs_api::lint

#endif  // VERBS_API_LINT_CHECKER_H_
