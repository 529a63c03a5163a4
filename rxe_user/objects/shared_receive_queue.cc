#include "rxe_user/objects/shared_receive_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rxe_user {

SharedReceiveQueue::SharedReceiveQueue(const Config& config)
    : config_(config),
      entries_(config.max_wr),
      sges_(size_t{config.max_wr} * config.max_sge) {
  ++config_.pd->users;
  if (config_.xrc == nullptr) return;
  do {
    number_ = config_.pd->context.NewSrqn();
  } while (number_ == 0 ||
           !config_.xrc->AddSrq(number_, {config_.pd->id, this, config_.cq},
                                config_.cq));
}

void SharedReceiveQueue::Retire() {
  if (config_.xrc != nullptr) config_.xrc->RemoveSrq(number_);
}

SharedReceiveQueue::~SharedReceiveQueue() { --config_.pd->users; }

int SharedReceiveQueue::Posting::Receive(
    const transport::ReceiveRequest& request) {
  SharedReceiveQueue& q = queue_;
  if (request.sges.size() > q.config_.max_sge) return EINVAL;
  if (q.count_ == q.entries_.size()) return ENOMEM;
  size_t tail = size_t{q.head_} + q.count_;
  if (tail >= q.entries_.size()) tail -= q.entries_.size();
  q.entries_[tail] = {request.wr_id,
                      static_cast<uint32_t>(request.sges.size())};
  std::copy(request.sges.begin(), request.sges.end(),
            q.sges_.begin() + tail * q.config_.max_sge);
  ++q.count_;
  return 0;
}

bool SharedReceiveQueue::Pop(transport::ReceiveWqe* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == 0) return false;
  const Entry& entry = entries_[head_];
  out->wr_id = entry.wr_id;
  out->pd = config_.pd->id;
  const transport::Sge* sges = sges_.data() + size_t{head_} * config_.max_sge;
  out->sges.assign(sges, sges + entry.num_sge);
  if (++head_ == entries_.size()) head_ = 0;
  --count_;
  if (count_ < limit_) {
    limit_ = 0;
    config_.async->Post({config_.limit_event, config_.element, 0, &account_});
  }
  return true;
}

int SharedReceiveQueue::Resize(uint32_t max_wr) {
  std::vector<Entry> entries(max_wr);
  std::vector<transport::Sge> sges(size_t{max_wr} * config_.max_sge);
  std::lock_guard<std::mutex> lock(mutex_);
  if (max_wr < count_ || max_wr < limit_) return EINVAL;
  for (uint32_t i = 0; i < count_; ++i) {
    const size_t from = (size_t{head_} + i) % entries_.size();
    entries[i] = entries_[from];
    std::copy_n(sges_.begin() + from * config_.max_sge, config_.max_sge,
                sges.begin() + size_t{i} * config_.max_sge);
  }
  entries_ = std::move(entries);
  sges_ = std::move(sges);
  head_ = 0;
  return 0;
}

int SharedReceiveQueue::SetLimit(uint32_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (limit > entries_.size()) return EINVAL;
  limit_ = limit;
  return 0;
}

uint32_t SharedReceiveQueue::max_wr() {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<uint32_t>(entries_.size());
}

uint32_t SharedReceiveQueue::limit() {
  std::lock_guard<std::mutex> lock(mutex_);
  return limit_;
}

uint32_t SharedReceiveQueue::WithdrawAsyncEvents() {
  return config_.async->Withdraw(&account_);
}

}  // namespace rxe_user
