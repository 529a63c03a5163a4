#include "rxe_user/objects/shared_receive_queue.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <type_traits>

#include "rxe_user/observe/process_files.h"

namespace rxe_user {

namespace {

uint32_t NextId() {
  static std::atomic<uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

SharedReceiveQueue::SharedReceiveQueue(const Config& config)
    : config_(config), id_(NextId()), memory_(Allocate(config.max_wr)) {
  Use(config.max_wr);
  if (config_.xrc != nullptr) JoinXrcDomain();
  ++config_.pd->users;
}

void SharedReceiveQueue::JoinXrcDomain() {
  do {
    number_ = config_.pd->context.space().NewSrqn();
  } while (number_ == 0 ||
           !config_.xrc->AddSrq(number_, {config_.pd->id, this, config_.cq},
                                config_.cq));
}

QueueMemory SharedReceiveQueue::Allocate(uint32_t max_wr) const {
  static_assert(std::is_trivially_copyable_v<Entry> &&
                sizeof(Entry) % alignof(transport::Sge) == 0);
  const size_t size = max_wr * (sizeof(Entry) + size_t{config_.max_sge} *
                                                    sizeof(transport::Sge));
  QueueMemory memory = AllocateQueueMemory(config_.pd->allocator.get(), size,
                                           QueueKind::kSharedReceiveQueue);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void SharedReceiveQueue::Use(uint32_t max_wr) {
  entries_ = reinterpret_cast<Entry*>(memory_.get());
  sges_ = reinterpret_cast<transport::Sge*>(entries_ + max_wr);
  max_wr_ = max_wr;
}

void SharedReceiveQueue::Retire() {
  if (config_.xrc != nullptr) config_.xrc->RemoveSrq(number_);
}

SharedReceiveQueue::~SharedReceiveQueue() {
  if (Tracer* const tracer = CurrentTracer()) {
    tracer->OnDestroyed({trace::QueueKind::kShared, id_});
  }
  memory_.reset();  // while the allocator exists
  --config_.pd->users;
}

int SharedReceiveQueue::Posting::Receive(
    const transport::ReceiveRequest& request) {
  SharedReceiveQueue& q = queue_;
  if (request.sges.size() > q.config_.max_sge) return EINVAL;
  if (q.outstanding() >= q.max_wr_) return ENOMEM;
  size_t tail = size_t{q.head_} + q.count_;
  if (tail >= q.max_wr_) tail -= q.max_wr_;
  q.entries_[tail] = {request.wr_id,
                      static_cast<uint32_t>(request.sges.size())};
  std::copy(request.sges.begin(), request.sges.end(),
            q.sges_ + tail * q.config_.max_sge);
  ++q.count_;
  ++q.posted_;
  return 0;
}

bool SharedReceiveQueue::Pop(transport::ReceiveWqe* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == 0) return false;
  const Entry& entry = entries_[head_];
  const transport::Sge* sges = sges_ + size_t{head_} * config_.max_sge;
  if (!out->SetSges({sges, entry.num_sge})) return false;
  out->wr_id = entry.wr_id;
  out->pd = config_.pd->id;
  if (++head_ == max_wr_) head_ = 0;
  --count_;
  if (count_ < limit_) {
    limit_ = 0;
    config_.async->Post({config_.limit_event, config_.element, 0, &account_});
  }
  return true;
}

int SharedReceiveQueue::Resize(uint32_t max_wr) {
  QueueMemory memory = Allocate(max_wr);  // the old one after the swap
  std::lock_guard<std::mutex> lock(mutex_);
  if (max_wr < outstanding() || max_wr < limit_) return EINVAL;
  const Entry* const old_entries = entries_;
  const transport::Sge* const old_sges = sges_;
  const uint32_t old_max_wr = max_wr_;
  memory_.swap(memory);
  Use(max_wr);
  for (uint32_t i = 0; i < count_; ++i) {
    const size_t from = (size_t{head_} + i) % old_max_wr;
    entries_[i] = old_entries[from];
    std::copy_n(old_sges + from * config_.max_sge, config_.max_sge,
                sges_ + size_t{i} * config_.max_sge);
  }
  head_ = 0;
  return 0;
}

int SharedReceiveQueue::SetLimit(uint32_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (limit > max_wr_) return EINVAL;
  limit_ = limit;
  return 0;
}

void SharedReceiveQueue::Raise(int event) {
  config_.async->Post({event, config_.element, 0, &account_});
}

uint32_t SharedReceiveQueue::max_wr() {
  std::lock_guard<std::mutex> lock(mutex_);
  return max_wr_;
}

uint32_t SharedReceiveQueue::limit() {
  std::lock_guard<std::mutex> lock(mutex_);
  return limit_;
}

uint32_t SharedReceiveQueue::WithdrawAsyncEvents() {
  return config_.async->Withdraw(&account_);
}

}  // namespace rxe_user
