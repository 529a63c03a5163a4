// XRC domains: ibv_open_xrcd(3), ibv_open_qp(3).
#ifndef RXE_USER_OBJECTS_XRC_DOMAIN_H_
#define RXE_USER_OBJECTS_XRC_DOMAIN_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "transport/qp/xrc_domain.h"

namespace rxe_user {

class CompletionQueue;
class Context;
class QueuePair;

// An XRC domain: its SRQs and targets (receiving queue pairs). Its SRQs have
// their own completion queues. A poll of one makes progress in the lanes of the
// domain's targets.
//
// Thread: any. Outlives its SRQs and targets.
class XrcDomain final : public transport::XrcDomain {
 public:
  // `context` opened it; other contexts of the device may open it as well.
  explicit XrcDomain(std::shared_ptr<Context> context)
      : context_(std::move(context)) {}

  Context& context() const { return *context_; }

  // --- SRQs, by number. AddSrq: false if the number is taken; `cq` is the one
  // of `srq.cq`. On return of RemoveSrq no target uses the SRQ. The caller
  // holds no lane's lock.
  bool AddSrq(uint32_t srqn, const transport::XrcSrq& srq, CompletionQueue* cq);
  void RemoveSrq(uint32_t srqn);

  // --- Targets.
  void AddTarget(const std::shared_ptr<QueuePair>& target);
  void RemoveTarget(QueuePair* target);
  // Null if no target has this number.
  std::shared_ptr<QueuePair> FindTarget(uint32_t qpn);

  // --- transport::XrcDomain
  bool FindSrq(uint32_t srqn, transport::XrcSrq* out) override;

 private:
  struct Srq {
    transport::XrcSrq srq;
    CompletionQueue* cq;
  };
  struct Target {
    QueuePair* qp;
    std::weak_ptr<QueuePair> shared;
  };

  const std::shared_ptr<Context> context_;
  // Taken outside lanes' and completion queues' locks.
  std::mutex targets_mutex_;
  std::vector<Target> targets_;  // guarded by targets_mutex_
  // Taken inside lanes' locks; changed with targets_mutex_ held as well.
  std::shared_mutex srqs_mutex_;
  std::unordered_map<uint32_t, Srq> srqs_;
};

// The XRC domains of a device that are associated with files.
//
// Thread: any.
class XrcDomainTable {
 public:
  // `fd` -1: a private domain; `create` must be set. Else the domain of the
  // file that `fd` refers to. As the kernel: EINVAL (`fd` -1 without `create`;
  // or `exclusive`, and it exists), EAGAIN (no `create`, and it does not
  // exist), EBADF, EMFILE.
  int Open(const std::shared_ptr<Context>& context, int fd, bool create,
           bool exclusive, std::shared_ptr<XrcDomain>* out);

 private:
  using Inode = std::pair<dev_t, ino_t>;
  struct File {
    UniqueFd fd;  // keeps the inode number from being reused
    std::weak_ptr<XrcDomain> domain;
  };
  std::mutex mutex_;
  std::map<Inode, File> files_;  // guarded by mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_XRC_DOMAIN_H_
