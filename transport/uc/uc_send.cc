// The UC requester (IBA vol. 1, 9.8.1).
#include <algorithm>

#include "transport/uc/uc_queue_pair.h"
#include "wire/psn.h"

namespace transport {

void UcQueuePair::StopSending() {
  sending_ = draining_ = drain_reported_ = false;
  position_ = 0;
  if (core().path != nullptr) flight_.Leave(core().path);
}

bool UcQueuePair::HasPackets() const {
  const SendQueue& queue = core().send_queue;
  return sending_ && !queue.empty() && !(draining_ && position_ == 0);
}

Interests UcQueuePair::TakeServiceInterests(Time now) {
  Interests want;
  if (core().path == nullptr) return want;
  const Path& path = *core().path;
  if (report_due_) want.wants = Interests::kAcks;
  want.deadline = flight_.Deadline(path);
  if (!HasPackets()) return want;
  if (flight_.closed_loop() ? flight_.open()
                            : path.MaySendUnacknowledged(now)) {
    want.wants |= Interests::kData;
  } else if (!flight_.closed_loop()) {
    want.deadline = path.paced_until();
  }
  return want;
}

Interests UcQueuePair::TransmitService(Time now, const TransmitTurn& turn,
                                       Burst* burst) {
  if (report_due_ && (turn.acks_only || report_first_)) TransmitReport(burst);
  const bool waits = !turn.acks_only && TransmitRequests(now, turn, burst);
  if (report_due_) report_first_ = !TransmitReport(burst);
  Interests want = TakeServiceInterests(now);
  if (waits && want.Has(Interests::kData)) want.wants |= Interests::kWindow;
  return want;
}

bool UcQueuePair::TransmitRequests(Time now, const TransmitTurn& turn,
                                   Burst* burst) {
  const bool paced = !flight_.closed_loop();
  if (paced && !core().path->MaySendUnacknowledged(now)) return false;
  const size_t before = burst->bytes().size();
  const int segments_before = burst->segments();
  Packetizer packetizer(core(), burst);
  // A turn ends at a message boundary, or with the burst.
  Sent sent = Sent::kPackets;
  while (sent == Sent::kPackets && HasPackets() &&
         (position_ != 0 || burst->bytes().size() < turn.bytes)) {
    sent = SendNext(now, turn, *burst, &packetizer);
  }
  if (paced) {
    core().path->OnSentUnacknowledged(
        burst->bytes().size() - before +
            static_cast<uint64_t>(burst->segments() - segments_before) *
                Path::kPacketOverhead,
        now);
  }
  return sent == Sent::kWindowFull;
}

UcQueuePair::Sent UcQueuePair::SendNext(Time now, const TransmitTurn& turn,
                                        const Burst& burst,
                                        Packetizer* packetizer) {
  SendQueue& queue = core().send_queue;
  Path* const path = core().path;
  const uint64_t index = queue.head();
  SendWqe& wqe = queue.at(index);
  const uint32_t mtu = core().attributes.path_mtu;
  if (position_ == 0) {
    wqe.packets = static_cast<uint32_t>(
        std::max<uint64_t>(1, (uint64_t{wqe.length} + mtu - 1) / mtu));
  }
  if (!packetizer->Begin(index, position_, 1, next_psn_)) {
    return Sent::kNothing;
  }
  const uint64_t cost = packetizer->payload() + Path::kPacketOverhead;
  const uint64_t allowed = flight_.PacketsAllowed(*path, cost);
  if (allowed == 0) return Sent::kWindowFull;
  uint64_t packets = 1;
  if (packetizer->middle()) {
    packets = std::min({uint64_t{wqe.packets} - 1 - position_,
                        uint64_t{packetizer->room()}, allowed,
                        flight_.PacketsToAsk(*path, cost, now)});
  }
  const bool ends_message = position_ + packets == wqe.packets;
  const bool more = allowed > packets && packetizer->room() > packets &&
                    (!ends_message ||
                     (queue.tail() - index > 1 && !draining_ &&
                      burst.bytes().size() + packetizer->size() < turn.bytes));
  bool asks = flight_.WantsAsk(*path, packets * cost, more, now);
  if (asks && packets > 1) {
    // The packet with the request is sent separately: its header differs.
    --packets;
    asks = false;
  }
  const MemoryStatus status =
      packetizer->Fill(static_cast<uint32_t>(packets), !asks);
  const bool filled = status == MemoryStatus::kOk;
  if (!filled) packets = packetizer->filled();
  if (packets != 0) flight_.OnSent(path, packets * cost, now);
  next_psn_ = wire::PsnAdd(next_psn_, static_cast<uint32_t>(packets));
  if (!filled) {
    FailSend({WcStatus::kLocalProtectionError, LocalReason(status)}, now);
    return Sent::kNothing;
  }
  if (asks) {
    packetizer->SetUcReportRequest();
    flight_.OnAsked(wire::PsnAdd(next_psn_, -1), now);
  }
  packetizer->Commit();
  position_ += static_cast<uint32_t>(packets);
  if (position_ == wqe.packets) {
    position_ = 0;
    core().CompleteSend({}, now);
    RunLocalWork(now);
  }
  return Sent::kPackets;
}

void UcQueuePair::FailSend(WcResult result, Time now) {
  StopSending();
  core().CompleteSend(result, now);
  core().FailSends(result.reason);
}

void UcQueuePair::RunLocalWork(Time now) {
  if (running_local_work_) return;  // posted by a sink during this loop
  running_local_work_ = true;
  SendQueue& queue = core().send_queue;
  while (sending_ && !draining_ && position_ == 0 && !queue.empty() &&
         queue.at(queue.head()).operation().kind == SendKind::kLocal) {
    const WcResult result = core().ExecuteLocal(queue.at(queue.head()));
    if (result.ok()) {
      core().CompleteSend(result, now);
    } else {
      FailSend(result, now);
    }
  }
  running_local_work_ = false;
  if (core().send_cq_lost && sending_) {
    StopSending();
    core().Fail(Reason::kCqOverrun);
  }
  if (Drained() && !drain_reported_) {
    drain_reported_ = true;
    // The next packets may take another path.
    flight_.Leave(core().path);
    core().NoteDrained();
  }
}

}  // namespace transport
