#include "rxe_user/objects/xrc_domain.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/queue_pair.h"

namespace rxe_user {

bool XrcDomain::AddSrq(uint32_t srqn, const transport::XrcSrq& srq,
                       CompletionQueue* cq) {
  std::lock_guard<std::mutex> lock(targets_mutex_);
  {
    std::unique_lock<std::shared_mutex> srqs_lock(srqs_mutex_);
    if (!srqs_.emplace(srqn, Srq{srq, cq}).second) return false;
  }
  cq->AttachSrq();
  for (const Target& target : targets_) cq->AddLane(target.qp->lane_index());
  return true;
}

void XrcDomain::RemoveSrq(uint32_t srqn) {
  std::lock_guard<std::mutex> lock(targets_mutex_);
  Srq gone;
  {
    std::unique_lock<std::shared_mutex> srqs_lock(srqs_mutex_);
    const auto it = srqs_.find(srqn);
    gone = it->second;
    srqs_.erase(it);
  }
  for (const Target& target : targets_) {
    target.qp->ForgetSrq(gone.srq.receives);
    gone.cq->RemoveLane(target.qp->lane_index());
  }
  gone.cq->ForgetSlots(gone.srq.receives->TakenSlot().queue);
  gone.cq->DetachSrq();
}

void XrcDomain::AddTarget(const std::shared_ptr<QueuePair>& target) {
  std::lock_guard<std::mutex> lock(targets_mutex_);
  targets_.push_back({target.get(), target});
  for (const auto& [srqn, srq] : srqs_) srq.cq->AddLane(target->lane_index());
}

void XrcDomain::RemoveTarget(QueuePair* target) {
  std::lock_guard<std::mutex> lock(targets_mutex_);
  const auto it = std::ranges::find(targets_, target, &Target::qp);
  if (it == targets_.end()) return;
  targets_.erase(it);
  for (const auto& [srqn, srq] : srqs_) {
    srq.cq->RemoveLane(target->lane_index());
  }
}

std::shared_ptr<QueuePair> XrcDomain::FindTarget(uint32_t qpn) {
  std::lock_guard<std::mutex> lock(targets_mutex_);
  for (const Target& target : targets_) {
    if (target.qp->qpn() == qpn) return target.shared.lock();
  }
  return nullptr;
}

bool XrcDomain::FindSrq(uint32_t srqn, transport::XrcSrq* out) {
  std::shared_lock<std::shared_mutex> lock(srqs_mutex_);
  const auto it = srqs_.find(srqn);
  if (it == srqs_.end()) return false;
  *out = it->second.srq;
  return true;
}

int XrcDomainTable::Open(const std::shared_ptr<Context>& context, int fd,
                         bool create, bool exclusive,
                         std::shared_ptr<XrcDomain>* out) {
  if (fd == -1) {
    if (!create) return EINVAL;
    *out = std::make_shared<XrcDomain>(context);
    return 0;
  }
  struct stat its;
  if (fstat(fd, &its) != 0) return EBADF;
  const Inode inode = {its.st_dev, its.st_ino};
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = files_.find(inode);
  if (it != files_.end()) *out = it->second.domain.lock();
  if (*out != nullptr) {
    if (!exclusive) return 0;
    out->reset();
    return EINVAL;
  }
  if (!create) return EAGAIN;
  std::erase_if(files_,
                [](const auto& file) { return file.second.domain.expired(); });
  UniqueFd keeps(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!keeps.valid()) return errno;
  *out = std::make_shared<XrcDomain>(context);
  files_[inode] = {std::move(keeps), *out};
  return 0;
}

}  // namespace rxe_user
