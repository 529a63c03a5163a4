#include "rxe_user/ports/uring_receiver.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rxe_user {

absl::Status UringReceiver::Open(Uring::Requests requests, RingUse use) {
  use_ = use;
  arrivals_.reserve(Uring::kBuffers);
  used_.reserve(Uring::kBuffers);
  noted_.reserve(Uring::kMaxReceives);
  if (absl::Status status = ring_.Open(requests); !status.ok()) return status;
  static_assert(Uring::kBuffers * kDatagramBytes >= UdpReceiver::kMemoryBytes);
  return plain_.Open(ring_.memory());
}

void UringReceiver::AbandonInChild() {
  plain_.AbandonInChild();
  ring_.AbandonInChild();
  bell_.AbandonInChild();
}

std::vector<int> UringReceiver::Descriptors() const {
  std::vector<int> descriptors = sockets_.Descriptors();
  if (use_ == RingUse::kAlways) descriptors.push_back(ring_.fd());
  return descriptors;
}

std::span<const transport::GroBatch> UringReceiver::Receive(bool thorough) {
  arrivals_.clear();
  // Backwards, so that the buffer of the first datagram, which is in the cache,
  // is used next.
  while (!used_.empty()) {
    ring_.Release(used_.back());
    used_.pop_back();
  }
  more_ = false;
  plain_received_ = false;
  if (ring_.results() != 0) {
    // A thorough caller also wants datagrams that have arrived since.
    more_ = TakeResults() || thorough;
    if (!arrivals_.empty()) {
      sockets_.CountBusyRead();
      return arrivals_;
    }
    more_ = false;
  }
  if (!uses_ring()) return ReceiveByPlainCalls(thorough);
  const auto asked = std::exchange(asked_, std::nullopt);
  if (!thorough && asked && Clock::now() - *asked < kFresh) {
    sockets_.CountBusyRead();
    return arrivals_;
  }
  if (!thorough && bell_.IsArmed(sockets_)) {
    if (!bell_.HasRung()) return arrivals_;
    bell_.Disarm();
    ask_all_ = true;
  }
  sockets_.ReadUntilData(thorough || ask_all_,
                         [this](size_t index) { return Note(index); });
  if (arrivals_.empty()) ReceiveFromNoted();
  if (arrivals_.empty() && !ring_.works()) return ReceiveByPlainCalls(thorough);
  if (!arrivals_.empty()) {
    empty_polls_ = 0;
    arm_after_ = kEmptyPolls;
  } else {
    ask_all_ = false;
    if (!thorough && use_ == RingUse::kAlways) OnEmptyPoll();
  }
  return arrivals_;
}

std::span<const transport::GroBatch> UringReceiver::ReceiveByPlainCalls(
    bool thorough) {
  const std::span<const transport::GroBatch> batches = plain_.Receive(thorough);
  plain_received_ = !batches.empty();
  more_ = plain_.more();
  for (const transport::GroBatch& batch : batches) {
    NoteSize(batch.bytes.size());
  }
  return batches;
}

void UringReceiver::OnEmptyPoll() {
  const pthread_t self = ::pthread_self();
  if (!poller_ || ::pthread_equal(*poller_, self) == 0) {
    poller_ = self;
    empty_polls_ = idle_polls_ = 0;
  }
  if (++empty_polls_ < kEmptyPolls) return;
  if (!bell_.is_callers()) {
    if (++idle_polls_ < open_after_) return;
    idle_polls_ = 0;
    if (bell_.is_open()) open_after_ = std::min(open_after_, kNever / 16) * 16;
    if (!bell_.Open().ok()) open_after_ = kNever;
  } else if (empty_polls_ >= arm_after_) {
    empty_polls_ = 0;
    ++counters_.rx_calls;
    if (!bell_.Arm(sockets_)) {
      ask_all_ = true;
      arm_after_ = std::min(arm_after_ * 2, kMaxEmptyPolls);
    }
  }
}

bool UringReceiver::Note(size_t index) {
  if (sockets_[index].fd.load(std::memory_order_acquire) < 0) return false;
  noted_.push_back(index);
  return noted_.size() == Uring::kMaxReceives && ReceiveFromNoted();
}

bool UringReceiver::ReceiveFromNoted() {
  // Most errors are reported once, and datagrams may be queued behind them.
  bool again = !noted_.empty();
  for (int i = 0; i < 2 && again; ++i) {
    for (const size_t index : noted_) Prepare(index, noted_.size() - 1);
    ++counters_.rx_calls;
    if (ring_.Submit() == 0) {
      ++counters_.rx_errors;
      break;
    }
    more_ = TakeResults();
    again = more_ && arrivals_.empty();
  }
  more_ = more_ && !arrivals_.empty();
  noted_.clear();
  return !arrivals_.empty();
}

void UringReceiver::Prepare(size_t index, size_t others) {
  const ReceiveSockets::Socket& socket = sockets_[index];
  ring_.Provide(socket.ask + 1 + others);
  ring_.PrepareReceive(socket.fd.load(std::memory_order_acquire),
                       TagOf(index, socket));
}

ReceiveSockets::Socket* UringReceiver::SocketOf(uint64_t tag) {
  const size_t index = IndexOf(tag);
  ReceiveSockets::Socket& socket = sockets_[index];
  return TagOf(index, socket) == tag ? &socket : nullptr;
}

bool UringReceiver::TakeResults() {
  bool more = false;
  for (size_t left = ring_.results(); left != 0; --left) {
    const Uring::Result result = ring_.Take();
    if (result.tag >= kSendTags) continue;
    ReceiveSockets::Socket* const socket = SocketOf(result.tag);
    Taken& taken = taken_[IndexOf(result.tag)];
    if (socket == nullptr || result.error != 0 || !result.buffer) {
      if (result.buffer) ring_.Release(*result.buffer);
    } else {
      ++taken.datagrams;
      taken.bytes += Deliver(*socket, *result.buffer, result.bytes);
    }
    if (!result.last) continue;
    CountError(result);
    const Taken whole = std::exchange(taken, {});
    if (socket == nullptr) continue;
    const bool full = result.error != EAGAIN;
    more = more || full;
    // Other receives may have used all buffers.
    if (result.error == ENOBUFS && whole.datagrams == 0) continue;
    ReceiveSockets::ChooseAsk(*socket, whole.datagrams, whole.bytes,
                              full && whole.datagrams != 0);
  }
  return more;
}

size_t UringReceiver::Deliver(ReceiveSockets::Socket& socket, uint16_t buffer,
                              size_t bytes) {
  const std::optional<Uring::Datagram> datagram = ring_.Read(buffer, bytes);
  if (datagram.has_value() &&
      sockets_.Deliver(socket, datagram->bytes, datagram->message,
                       *datagram->from, &arrivals_)) {
    used_.push_back(buffer);
    NoteSize(datagram->bytes.size());
    return datagram->bytes.size();
  }
  ring_.Release(buffer);
  return 0;
}

void UringReceiver::PrepareReceive() {
  asked_.reset();
  if (use_ == RingUse::kForBulk) return;
  if (waited_on_ || sockets_.others_are_next() || NothingHasRung()) return;
  const size_t index = sockets_.hot();
  const int fd = sockets_[index].fd.load(std::memory_order_acquire);
  if (fd >= 0 && ring_.results() == 0) Prepare(index, 0);
}

void UringReceiver::DropEmptyResults() {
  const size_t count = ring_.results();
  for (size_t i = 0; i < count; ++i) {
    const Uring::Result result = ring_.Peek(i);
    if (result.tag < kSendTags && result.error == 0) return;
  }
  for (size_t i = 0; i < count; ++i) {
    const Uring::Result result = ring_.Take();
    if (result.buffer) ring_.Release(*result.buffer);
    CountError(result);
    if (result.tag < kSendTags && result.error == EAGAIN) asked_ = Clock::now();
  }
}

void UringReceiver::CountError(const Uring::Result& result) {
  if (result.tag < kSendTags && result.error != 0 && result.error != EAGAIN &&
      result.error != ENOBUFS) {
    ++counters_.rx_errors;
  }
}

int64_t UringReceiver::KernelTimeOf(std::span<const uint8_t> bytes) const {
  if (plain_received_) return plain_.KernelTimeOf(bytes);
  const uint8_t* const control = ring_.ControlOf(bytes);
  return control != nullptr ? KernelTimeIn(control) : 0;
}

}  // namespace rxe_user
