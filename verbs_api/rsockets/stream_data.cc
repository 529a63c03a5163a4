// Data transfer on a stream, and its end.
#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "verbs_api/rsockets/stream.h"

namespace rsockets {
namespace {

// The most bytes in one message: the peer can read them while more arrives.
constexpr uint32_t kMaxPerMessage = 1 << 16;

int ErrorOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return ETIMEDOUT;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return ECONNRESET;
    default:
      return EIO;
  }
}

}  // namespace

bool Stream::Progress() {
  bool any = false;
  if (opening()) any = TakeEvents();
  return PollEndpoint() || any;
}

bool Stream::PollEndpoint() {
  if (endpoint_ == nullptr || (!connected() && !opening())) return false;
  messages_.clear();
  const bool any = endpoint_->Poll(&messages_);
  if (any && state_ == StreamState::kAccepting &&
      endpoint_->heard_from_peer()) {
    // The RTU is lost or late.
    rdma_notify(id_, IBV_EVENT_COMM_EST);
    SetConnected();
  }
  for (const Message& message : messages_) {
    OnControl(static_cast<Control>(message.data));
  }
  if (connected()) {
    if (endpoint_->violated()) {
      Fail(EPROTO);
    } else if (endpoint_->failure() != IBV_WC_SUCCESS) {
      Fail(ErrorOf(endpoint_->failure()));
    } else if (!in_backlog_) {
      if (const int error = endpoint_->SendCredits()) Fail(error);
    }
  }
  return any;
}

void Stream::OnControl(Control control) {
  switch (control) {
    case Control::kDisconnect:
      return SetDisconnected();
    case Control::kShutdown:
      // Also with our half shut down: the peer's data may still arrive.
      readable_ = false;
      return;
    case Control::kKeepalive:
      return;
  }
}

void Stream::Arm() {
  if (endpoint_ != nullptr) endpoint_->Arm();
}

bool Stream::Drain() {
  bool any = false;
  if (keepalive_timer_.valid()) {
    uint64_t times;
    if (read(keepalive_timer_.get(), &times, sizeof(times)) > 0 &&
        connected() && endpoint_->SendKeepalive() != 0) {
      Fail(EIO);
    }
  }
  if (endpoint_ != nullptr) any = endpoint_->Drain();
  return TakeEvents() || any;
}

int Stream::SetKeepalive() {
  if (!keepalive_timer_.valid()) {
    keepalive_timer_.Reset(
        timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!keepalive_timer_.valid()) return -errno;
    if (const int error = Watch(keepalive_timer_.get())) return error;
  }
  itimerspec time = {};
  if (options_.keepalive) {
    time.it_value.tv_sec = time.it_interval.tv_sec = options_.keepalive_seconds;
  }
  return timerfd_settime(keepalive_timer_.get(), 0, &time, nullptr) == 0
             ? 0
             : -errno;
}

bool Stream::can_read() const {
  return (endpoint_ != nullptr && endpoint_->received().available() > 0) ||
         !readable_;
}

bool Stream::can_write() { return !writable_ || endpoint_->SendRoom() > 0; }

short Stream::Ready() {
  switch (state_) {
    case StreamState::kIdle:
    case StreamState::kBound:
      return POLLOUT | POLLHUP;
    case StreamState::kListening:
      return backlog_.waiting.empty() ? 0 : POLLIN | POLLRDNORM;
    case StreamState::kFailed:
      return POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLHUP |
             (error_ != 0 ? POLLERR : 0);
    case StreamState::kDisconnected:
      // Programs treat POLLHUP as the end of data, so it is not set while data
      // can be read.
      return POLLIN | POLLRDNORM | POLLRDHUP | POLLOUT | POLLWRNORM |
             (endpoint_->received().available() > 0 ? 0 : POLLHUP);
    case StreamState::kConnected:
      break;
    default:
      return 0;
  }
  short ready = 0;
  if (can_read()) ready |= POLLIN | POLLRDNORM;
  if (can_write()) ready |= POLLOUT | POLLWRNORM;
  if (!readable_) ready |= POLLRDHUP;
  if (!readable_ && !writable_ && endpoint_->received().available() == 0) {
    ready |= POLLHUP;
  }
  return ready;
}

int Stream::WriteError() const {
  if (data_error_ != 0) return -data_error_;
  switch (state_) {
    case StreamState::kConnected:
      return -EPIPE;
    case StreamState::kFailed:
    case StreamState::kDisconnected:
      return announced_close_ ? -EPIPE : -ECONNRESET;
    default:
      return -ENOTCONN;
  }
}

Stream::Turn::~Turn() {
  if (stream_ == nullptr) return;
  stream_->sending_ = false;
  if (stream_->turns_wanted_ > 0) stream_->WakeAll(nullptr);
}

int Stream::Turn::Take(Stream* stream, std::unique_lock<std::mutex>& lock,
                       bool nonblocking, const Deadline& deadline) {
  if (stream->sending_) {
    ++stream->turns_wanted_;
    const int error = stream->Await(lock, nonblocking, deadline,
                                    [&] { return !stream->sending_; });
    --stream->turns_wanted_;
    if (error != 0) return error;
  }
  stream->sending_ = true;
  stream_ = stream;
  return 0;
}

int Stream::SendSome(std::unique_lock<std::mutex>& lock, IovCursor& data,
                     bool nonblocking, const Deadline& deadline) {
  // Polling completions is not needed, unless the send queue or credits are
  // short.
  if (!writable_ || endpoint_->SendRoom() == 0) {
    if (const int error =
            Await(lock, nonblocking, deadline, [&] { return can_write(); })) {
      return error;
    }
  }
  if (!writable_) {
    const int error = WriteError();
    data_error_ = 0;
    return error;
  }
  const size_t length =
      std::min<size_t>({data.left(), endpoint_->SendRoom(), kMaxPerMessage});
  if (const int error =
          endpoint_->SendData(data, static_cast<uint32_t>(length))) {
    Fail(error);
    return -error;
  }
  return 0;
}

int Stream::BeginWrite(std::unique_lock<std::mutex>& lock, bool nonblocking,
                       const Deadline& deadline, Turn& turn) {
  if (const int error = AwaitConnected(lock, nonblocking, deadline)) {
    return error;
  }
  if (endpoint_ == nullptr) return WriteError();
  if (const int error = turn.Take(this, lock, nonblocking, deadline)) {
    return error;
  }
  return mappings_pending_ ? SendMappings(lock, nonblocking, deadline) : 0;
}

ssize_t Stream::Send(IovCursor data, int flags, const sockaddr*, socklen_t) {
  if ((flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  std::unique_lock<std::mutex> lock(mutex_);
  const bool at_once = nonblocking(flags);
  const Deadline deadline = After(options_.send_timeout);
  Turn turn;
  if (const int error = BeginWrite(lock, at_once, deadline, turn)) return error;
  const size_t length = data.left();
  while (data.left() > 0) {
    if (const int error = SendSome(lock, data, at_once, deadline)) {
      return data.left() < length ? static_cast<ssize_t>(length - data.left())
                                  : error;
    }
  }
  return static_cast<ssize_t>(length);
}

size_t Stream::Read(IovCursor& data, bool peek) {
  ReceiveWindow& received = endpoint_->received();
  size_t done = 0;
  while (data.left() > 0 && received.available() > (peek ? done : 0)) {
    const ReceiveWindow::Piece piece =
        received.At(peek ? static_cast<uint32_t>(done) : 0);
    const auto part =
        static_cast<uint32_t>(std::min<size_t>(piece.length, data.left()));
    data.CopyFrom(endpoint_->receive_buffer() + piece.offset, part);
    if (!peek) received.Consume(part);
    done += part;
  }
  return done;
}

ssize_t Stream::Receive(IovCursor data, int flags, sockaddr*,
                        socklen_t* from_length) {
  if ((flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  if ((flags & MSG_ERRQUEUE) != 0) return -EAGAIN;  // there is no error queue
  if (from_length != nullptr) *from_length = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  const bool at_once = nonblocking(flags);
  const Deadline deadline = After(options_.receive_timeout);
  if (const int error = AwaitConnected(lock, at_once, deadline)) return error;
  if (endpoint_ == nullptr) return WriteError();
  const bool peek = (flags & MSG_PEEK) != 0;
  size_t done = 0;
  while (data.left() > 0) {
    if (endpoint_->received().available() == 0) {
      if (const int error =
              Await(lock, at_once, deadline, [&] { return can_read(); })) {
        return done > 0 ? static_cast<ssize_t>(done) : error;
      }
    }
    const size_t part = Read(data, peek);
    done += part;
    if (!peek && connected() && endpoint_->SendCredits() != 0) Fail(EIO);
    // The end of the stream, or as much as was requested.
    if (part == 0 || peek || (flags & MSG_WAITALL) == 0) break;
  }
  if (done == 0 && data_error_ != 0) return -std::exchange(data_error_, 0);
  return static_cast<ssize_t>(done);
}

template <typename Done>
int Stream::AwaitPatiently(std::unique_lock<std::mutex>& lock,
                           const Deadline& deadline, Done done) {
  constexpr int kRetryMs = 1;
  for (;;) {
    const int error = Await(lock, false, deadline, done);
    if (error == -EINTR) continue;
    if (error != -EMFILE) return error;
    if (deadline.has_value() && Clock::now() >= *deadline) return -EAGAIN;
    lock.unlock();
    poll(nullptr, 0, kRetryMs);
    lock.lock();
    if (!closed_) DrainAndProgress();
  }
}

int Stream::SendControl(std::unique_lock<std::mutex>& lock, Control control,
                        const Deadline& deadline) {
  if (const int error = AwaitPatiently(lock, deadline, [&] {
        return !connected() || endpoint_->CanSendControl();
      })) {
    return error;
  }
  if (!connected()) return 0;
  if (control == Control::kDisconnect) announced_close_ = true;
  if (const int error = endpoint_->SendControl(control)) {
    Fail(error);
    return -error;
  }
  return 0;
}

int Stream::Shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return -EINVAL;
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ == StreamState::kListening) {
    // A listener has nothing to send.
    return how == SHUT_WR ? 0 : StopListening(lock);
  }
  if (const int error = AwaitConnected(lock, nonblocking(0), std::nullopt)) {
    return error;
  }
  if (state_ == StreamState::kDisconnected) return 0;
  if (!connected()) return -ENOTCONN;
  MakeProgress();
  const bool was_writable = writable_;
  if (how != SHUT_WR) readable_ = false;
  if (how != SHUT_RD) writable_ = false;
  // If nothing was sent, a repeated call must send it.
  absl::Cleanup undo = [&] {
    if (connected()) writable_ = was_writable;
  };
  int error = 0;
  if (!readable_ && !writable_) {
    error = SendControl(lock, Control::kDisconnect, std::nullopt);
  } else if (was_writable && !writable_) {
    error = SendControl(lock, Control::kShutdown, std::nullopt);
  }
  if (error == 0) std::move(undo).Cancel();
  WakeAll(nullptr);
  return error;
}

void Stream::CloseConnection(std::unique_lock<std::mutex>& lock,
                             Clock::time_point begin) {
  const linger& lingering = options_.lingering;
  const Deadline deadline =
      begin + (lingering.l_onoff != 0
                   ? std::chrono::seconds(std::max(lingering.l_linger, 0))
                   : kCloseTimeout);
  MakeProgress();
  if (connected() && !announced_close_) {
    SendControl(lock, Control::kDisconnect, deadline);
  }
  AwaitPatiently(lock, deadline,
                 [&] { return !connected() || endpoint_->all_sent(); });
}

void Stream::AnnounceClose() {
  std::unique_lock<std::mutex> lock(mutex_);
  MakeProgress();
  if (connected() && !announced_close_ && endpoint_->CanSendControl()) {
    SendControl(lock, Control::kDisconnect, Clock::now());
  }
}

void Stream::Close(Clock::time_point begin) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (connected()) CloseConnection(lock, begin);
  if (endpoint_ != nullptr && state_ >= StreamState::kConnecting) {
    rdma_disconnect(id_);
  }
  closed_ = true;
  watch_.End();
  WakeAll(nullptr);
  DropBacklog(lock);
  // The connection thread must not use the socket afterwards.
  ConnectionThread::Get().AwaitEnd(this);
}

}  // namespace rsockets
