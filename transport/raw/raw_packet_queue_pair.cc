#include "transport/raw/raw_packet_queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/local_buffer.h"
#include "transport/raw/work_queue.h"

namespace transport {
namespace {

constexpr WcResult kTooLong(WcStatus::kLocalLengthError,
                            Reason::kMessageTooLong);

}  // namespace

// kNone: no RoCE packet matches this transport.
RawPacketQueuePair::RawPacketQueuePair(Endpoint& endpoint,
                                       const QpConfig& config,
                                       const RawPacketConfig& raw,
                                       uint32_t max_tso_header)
    : QueuePair(endpoint, config, wire::Transport::kNone),
      raw_(raw),
      frames_(*raw.frames),
      headers_(config.capacity.max_send_wr, max_tso_header) {}

RawPacketQueuePair::~RawPacketQueuePair() { EnterReset(); }

// --- States.

void RawPacketQueuePair::StartSending(Time /*now*/) { sending_ = true; }

void RawPacketQueuePair::Drain(Time /*now*/) {
  draining_ = true;
  if (Drained()) core().NoteDrained();
}

void RawPacketQueuePair::Resume(Time now) {
  draining_ = false;
  sending_ = true;
  SendQueued(now);
  Flush(now);
}

void RawPacketQueuePair::StopSending() {
  sending_ = draining_ = false;
  segment_ = 0;
}

// --- Sending.

int RawPacketQueuePair::CheckServiceFields(const SendRequest& request) const {
  // With an RxHash it only receives.
  if (raw_.rx_hash != nullptr) return EINVAL;
  return request.opcode == SendOpcode::kTso ? headers_.Check(request) : 0;
}

void RawPacketQueuePair::StoreServiceFields(const SendRequest& request) {
  if (request.opcode != SendOpcode::kTso) return;
  headers_.Put(core().send_queue.tail() - 1, request);
}

// A VLAN tag does not count toward the interface's limit.
size_t RawPacketQueuePair::MaxFrame(const wire::EthernetFrame& frame) const {
  return frames_.max_frame() + (frame.has_vlan ? wire::kVlanTagSize : 0);
}

void RawPacketQueuePair::SendQueued(Time now) {
  // A message whose first segments were sent is always finished.
  while (sending_ && (!draining_ || segment_ != 0) &&
         !core().send_queue.empty()) {
    const Outcome outcome = SendNext(now);
    blocked_ |= outcome == Outcome::kBlocked;
    if (outcome != Outcome::kDone) return;
    if (draining_) core().NoteDrained();
    if (!core().send_cq_lost) continue;
    StopSending();
    core().Fail(Reason::kCqOverrun);
  }
}

RawPacketQueuePair::Outcome RawPacketQueuePair::SendNext(Time now) {
  const uint64_t index = core().send_queue.head();
  const SendWqe& wqe = core().send_queue.at(index);
  if (wqe.opcode == SendOpcode::kTso) return SendSegments(now);
  if (wqe.length < wire::kEthernetHeaderSize ||
      wqe.length > frames_.max_frame() + wire::kVlanTagSize) {
    return FailSend(kTooLong, now);
  }
  uint8_t* const out = frames_.Reserve(wqe.length);
  if (out == nullptr) return Outcome::kBlocked;
  const MemoryStatus status = CopyData(index, 0, out, wqe.length);
  if (status != MemoryStatus::kOk) {
    return FailSend({WcStatus::kLocalProtectionError, LocalReason(status)},
                    now);
  }
  wire::EthernetFrame frame;
  wire::ParseEthernet({out, wqe.length}, &frame);
  if (wqe.length > MaxFrame(frame)) {
    return FailSend(kTooLong, now);
  }
  if ((wqe.flags & kSendIpChecksum) != 0) wire::FillChecksums(frame, out);
  frames_.Commit();
  core().counters.tx_packets += 1;
  core().counters.tx_bytes += wqe.length;
  core().CompleteSend({}, now);
  return Outcome::kDone;
}

// Manual page ibv_wr_post(3), ibv_wr_send_tso: one message, as many segments as
// its payload needs, at least one.
RawPacketQueuePair::Outcome RawPacketQueuePair::SendSegments(Time now) {
  const uint64_t index = core().send_queue.head();
  const SendWqe& wqe = core().send_queue.at(index);
  const size_t mss = headers_.mss(index);
  const std::span<const uint8_t> header = headers_.header(index);
  wire::EthernetFrame frame;
  if (!wire::ParseEthernet(header, &frame) ||
      !wire::IsTcpHeader(frame, header)) {
    return FailSend({WcStatus::kLocalQpOperationError, Reason::kBadTsoHeader},
                    now);
  }
  const size_t segments = headers_.CountSegments(index, wqe.length);
  if (header.size() + std::min<size_t>(mss, wqe.length) > MaxFrame(frame)) {
    return FailSend(kTooLong, now);
  }
  for (; segment_ < segments; ++segment_) {
    const size_t offset = segment_ * mss;
    const size_t payload = std::min<size_t>(mss, wqe.length - offset);
    const size_t bytes = header.size() + payload;
    uint8_t* const out = frames_.Reserve(bytes);
    if (out == nullptr) return Outcome::kBlocked;
    std::memcpy(out, header.data(), header.size());
    const MemoryStatus status =
        CopyData(index, offset, out + header.size(), payload);
    if (status != MemoryStatus::kOk) {
      return FailSend({WcStatus::kLocalProtectionError, LocalReason(status)},
                      now);
    }
    wire::FinishTcpSegment(frame, {out, bytes}, static_cast<uint32_t>(offset),
                           static_cast<uint16_t>(segment_),
                           segment_ + 1 == segments);
    frames_.Commit();
    core().counters.tx_packets += 1;
    core().counters.tx_bytes += bytes;
  }
  segment_ = 0;
  core().CompleteSend({}, now);
  return Outcome::kDone;
}

MemoryStatus RawPacketQueuePair::CopyData(uint64_t index, uint64_t offset,
                                          uint8_t* to, size_t bytes) {
  if (bytes == 0) return MemoryStatus::kOk;
  if ((core().send_queue.at(index).flags & kSendInline) != 0) {
    std::memcpy(to, core().send_queue.inline_data(index) + offset, bytes);
    return MemoryStatus::kOk;
  }
  LocalBuffer buffer(*config().memory, config().pd, qpn(), kAccessLocalRead);
  buffer.Seek(core().send_queue.sges(index), offset);
  return buffer.Read(to, bytes);
}

RawPacketQueuePair::Outcome RawPacketQueuePair::FailSend(WcResult result,
                                                         Time now) {
  StopSending();
  core().CompleteSend(result, now);
  core().FailSends(result.reason);
  return Outcome::kFailed;
}

void RawPacketQueuePair::Flush(Time now) {
  if (frames_.Flush() || blocked_) return;
  blocked_ = true;
  endpoint().Update(this, now);
}

void RawPacketQueuePair::OnServiceTimer(Time now) {
  blocked_ = false;
  SendQueued(now);
  if (!frames_.Flush()) blocked_ = true;
}

Interests RawPacketQueuePair::TakeServiceInterests(Time now) {
  Interests want;
  if (blocked_) want.deadline = now + kRetry;
  return want;
}

// --- Receiving.

bool RawPacketQueuePair::TakesFrames() const {
  const QpState at = state();
  return at != QpState::kReset && at != QpState::kInit && at != QpState::kErr;
}

size_t RawPacketQueuePair::FrameRoom() const {
  const ReceiveQueue* const queue = core().receive_queue.get();
  return raw_.rx_hash == nullptr && queue != nullptr && TakesFrames()
             ? queue->size()
             : kManyFrames;
}

void RawPacketQueuePair::OnFrame(const ReceivedFrame& received, uint32_t tag,
                                 Time now) {
  if (const RxHash* const hash = raw_.rx_hash; hash != nullptr) {
    const size_t index =
        HashOf(*hash, received.frame) & (hash->table.size() - 1);
    hash->table[index]->OnFrame(received, tag, now);
    return;
  }
  if (!TakesFrames()) {
    ++core().counters.dropped_state;
    return;
  }
  if (!ReceiveFrame(received, tag, now, &core(), &receiver())) {
    core().Fail(core().refusal);
  }
  if (ActOnFindings(now)) endpoint().Update(this, now);
}

}  // namespace transport
