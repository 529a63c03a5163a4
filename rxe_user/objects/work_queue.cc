#include "rxe_user/objects/work_queue.h"

#include <cerrno>

#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/objects/limits.h"

namespace rxe_user {
namespace {

transport::QpConfig Inner(const RecvWorkQueue::Config& config,
                          uint32_t number) {
  transport::QpConfig inner;
  inner.type = transport::QpType::kRawPacket;
  inner.qpn = number;
  inner.pd = config.pd->id;
  inner.capacity.max_recv_wr = config.max_wr;
  inner.capacity.max_recv_sge = config.max_sge;
  inner.memory = &config.pd->context.space().memory();
  inner.recv_cq = config.cq;
  return inner;
}

}  // namespace

RecvWorkQueue::RecvWorkQueue(const Config& config, uint32_t number)
    : config_(config),
      lane_index_(engine().LaneOf(number)),
      lane_(engine().lane(lane_index_)),
      queue_(Inner(config, number)) {
  queue_.OnFailure([this] {
    config_.async->Post({config_.fatal_event, config_.element, 0, &account_});
  });
  ++config_.pd->users;
  config_.cq->AttachSrq();
  config_.cq->AddLane(lane_index_);
}

RecvWorkQueue::~RecvWorkQueue() {
  const uint32_t number = queue_.number();
  {
    // No packets can reach it: no table refers to it.
    Lane::Guard guard(lane_);
    config_.cq->Forget(number);
  }
  config_.cq->RemoveLane(lane_index_);
  config_.cq->DetachSrq();
  engine().ReleaseQpn(number);
  --config_.pd->users;
}

int RecvWorkQueue::Create(const Config& config,
                          std::unique_ptr<RecvWorkQueue>* out) {
  if (config.max_wr > kMaxQpWr || config.max_sge > kMaxSge) return EINVAL;
  PrepareGuardedAccess();
  Engine& engine = config.pd->context.engine();
  absl::StatusOr<uint32_t> number = engine.AllocateRawQpn();
  if (!number.ok()) return ReportedErrno(number.status());
  try {
    out->reset(new RecvWorkQueue(config, *number));
  } catch (...) {
    engine.ReleaseQpn(*number);
    throw;
  }
  return 0;
}

transport::WqState RecvWorkQueue::state() {
  Lane::Guard guard(lane_);
  return queue_.state();
}

int RecvWorkQueue::Modify(transport::WqState to) {
  Lane::Guard guard(lane_);
  const int error = queue_.Modify(to, Lane::Now());
  if (error == 0 && to == transport::WqState::kReset) {
    config_.cq->Forget(queue_.number());
  }
  return error;
}

}  // namespace rxe_user
