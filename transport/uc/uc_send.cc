// The requester of an unreliable connection (IBA vol. 1, 9.8.1).
#include <algorithm>

#include "transport/uc/uc_queue_pair.h"
#include "wire/psn.h"

namespace transport {

void UcQueuePair::StopSending() {
  sending_ = draining_ = drain_reported_ = false;
  position_ = 0;
}

bool UcQueuePair::HasPackets() const {
  const SendQueue& queue = core().send_queue;
  return sending_ && !queue.empty() && !(draining_ && position_ == 0);
}

Interests UcQueuePair::TakeServiceInterests(Time now) {
  Interests want;
  if (!HasPackets()) return want;
  if (core().path->MaySendUnacknowledged(now)) {
    want.wants = Interests::kData;
  } else {
    want.deadline = core().path->paced_until();
  }
  return want;
}

Interests UcQueuePair::TransmitService(Time now, const TransmitTurn& turn,
                                       Burst* burst) {
  if (!turn.acks_only && core().path->MaySendUnacknowledged(now)) {
    Packetizer packetizer(core(), burst);
    // A turn ends with a message, or with the burst.
    while (HasPackets() &&
           (position_ != 0 || burst->bytes().size() < turn.bytes) &&
           SendNext(now, &packetizer)) {
    }
    core().path->OnSentUnacknowledged(
        burst->bytes().size() + burst->segments() * Path::kPacketOverhead, now);
  }
  return TakeServiceInterests(now);
}

bool UcQueuePair::SendNext(Time now, Packetizer* packetizer) {
  SendQueue& queue = core().send_queue;
  const uint64_t index = queue.head();
  SendWqe& wqe = queue.at(index);
  const uint32_t mtu = core().attributes.path_mtu;
  if (position_ == 0) {
    wqe.packets = static_cast<uint32_t>(
        std::max<uint64_t>(1, (uint64_t{wqe.length} + mtu - 1) / mtu));
  }
  if (!packetizer->Begin(index, position_, 1, next_psn_)) return false;
  uint32_t packets = 1;
  if (packetizer->middle()) {
    packets = static_cast<uint32_t>(
        std::min<uint64_t>(wqe.packets - 1 - position_, packetizer->room()));
  }
  if (packetizer->Fill(packets, true) != MemoryStatus::kOk) {
    next_psn_ = wire::PsnAdd(next_psn_, packetizer->filled());
    FailSend(WcStatus::kLocalProtectionError, now);
    return false;
  }
  packetizer->Commit();
  next_psn_ = wire::PsnAdd(next_psn_, packets);
  position_ += packets;
  if (position_ == wqe.packets) {
    position_ = 0;
    core().CompleteSend(WcStatus::kSuccess, now);
    RunLocalWork(now);
  }
  return true;
}

void UcQueuePair::FailSend(WcStatus status, Time now) {
  StopSending();
  core().CompleteSend(status, now);
  core().FailSends();
}

void UcQueuePair::RunLocalWork(Time now) {
  if (running_local_work_) return;  // posted by the sink that is told of one
  running_local_work_ = true;
  SendQueue& queue = core().send_queue;
  while (sending_ && !draining_ && position_ == 0 && !queue.empty() &&
         queue.at(queue.head()).operation().kind == SendKind::kLocal) {
    if (core().ExecuteLocal(queue.at(queue.head())) == MemoryStatus::kOk) {
      core().CompleteSend(WcStatus::kSuccess, now);
    } else {
      FailSend(WcStatus::kMwBindError, now);
    }
  }
  running_local_work_ = false;
  if (core().send_cq_lost && sending_) {
    StopSending();
    core().Fail();
  }
  if (Drained() && !drain_reported_) {
    drain_reported_ = true;
    core().NoteDrained();
  }
}

}  // namespace transport
