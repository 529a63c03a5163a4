// The responder of an unreliable connection (IBA vol. 1, 9.8.2, 9.8.3): what it
// cannot take it drops without a word.
#include "transport/uc/uc_queue_pair.h"
#include "wire/psn.h"

namespace transport {

void UcQueuePair::Drop() {
  receiver().Abandon();
  dropping_ = true;
}

bool UcQueuePair::IsExpected(const wire::PacketView& packet) const {
  const int32_t distance = wire::PsnDiff(packet.bth().psn, expected_psn_);
  return packet.info().is_request && distance >= 0 && distance < kAheadPsns;
}

bool UcQueuePair::OnRequest(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  const uint32_t psn = packet.bth().psn;
  const int32_t distance = wire::PsnDiff(psn, expected_psn_);
  if (distance < 0 && distance >= -kLatePsns) {
    ++core().counters.duplicates;
    return false;
  }
  expected_psn_ = wire::PsnAdd(psn, 1);
  if (distance != 0) {
    ++core().counters.out_of_order;
    Drop();
  }
  const bool starts = packet.info().starts_message;
  // One that begins a message ends the one before it, which has not come whole.
  if (starts) {
    receiver().Abandon();
    dropping_ = false;
  }
  if (dropping_) {
    ++core().counters.dropped_message;
    return true;
  }
  switch (receiver().Receive(packet, KindOf(packet.operation()), now)) {
    case ReceiveOutcome::kPlaced:
    case ReceiveOutcome::kCompleted:
    case ReceiveOutcome::kCqLost:  // the queue pair has failed
      break;
    case ReceiveOutcome::kNoReceive:
    case ReceiveOutcome::kInvalidRequest:
    case ReceiveOutcome::kAccessDenied:
    case ReceiveOutcome::kReceiveTooShort:
    case ReceiveOutcome::kAccessFailed:
      ++core().counters.dropped_message;
      Drop();
      break;
    case ReceiveOutcome::kReceiveNotWritable:
      receiver().FailReceive(WcStatus::kLocalProtectionError, now);
      core().Fail();
      break;
  }
  return true;
}

}  // namespace transport
