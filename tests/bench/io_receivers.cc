// The methods to receive datagrams (io_ways.h).
#include <errno.h>
#include <liburing.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bench/io_ways.h"

namespace io_ways {
namespace {

using reference::Die;

constexpr size_t kControl = 64;  // bytes of control messages
constexpr int kGroup = 0;        // of provided buffers
enum UserData : uint64_t { kReceive, kSend };

[[noreturn]] void DieOf(int error, const char* what) {
  errno = -error;
  Die(what);
}

template <typename First, typename Next>
size_t SegmentOf(size_t bytes, First first, Next next) {
  for (cmsghdr* h = first(); h != nullptr; h = next(h)) {
    if (h->cmsg_level != IPPROTO_UDP || h->cmsg_type != UDP_GRO) continue;
    int size;
    std::memcpy(&size, CMSG_DATA(h), sizeof(size));
    return static_cast<size_t>(size);
  }
  return bytes;
}

// Receives with calls that fill our own messages.
class ByMessages : public Receiver {
 protected:
  explicit ByMessages(int fd, bool epoll) : Receiver(fd) {
    for (size_t i = 0; i < kBuffers; ++i) {
      vectors_[i] = {memory_ + i * kBufferBytes, kBufferBytes};
    }
    if (!epoll) return;
    epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
  }
  void Reset(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      msghdr& m = messages_[i].msg_hdr;
      m = {};
      m.msg_name = &from_[i];
      m.msg_namelen = sizeof(from_[i]);
      m.msg_iov = &vectors_[i];
      m.msg_iovlen = 1;
      m.msg_control = control_[i];
      m.msg_controllen = kControl;
    }
  }
  void AwaitReadable() {
    epoll_event event;
    ++calls_;
    if (epoll_wait(epoll_fd_, &event, 1, -1) < 0) Die("epoll_wait");
  }
  std::span<const Arrival> Got(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      msghdr& m = messages_[i].msg_hdr;
      const size_t bytes = messages_[i].msg_len;
      arrivals_[i] = {memory_ + i * kBufferBytes, bytes,
                      SegmentOf(
                          bytes, [&] { return CMSG_FIRSTHDR(&m); },
                          [&](cmsghdr* h) { return CMSG_NXTHDR(&m, h); })};
    }
    return {arrivals_.data(), count};
  }

  int epoll_fd_ = -1;
  uint8_t* const memory_ = reference::SharedMemory(kBuffers * kBufferBytes);
  std::array<mmsghdr, kBuffers> messages_{};
  std::array<iovec, kBuffers> vectors_{};
  std::array<reference::SocketAddress, kBuffers> from_{};
  alignas(cmsghdr) uint8_t control_[kBuffers][kControl];
  std::array<Arrival, kBuffers> arrivals_;
};

class ByRecvmsg final : public ByMessages {
 public:
  ByRecvmsg(int fd, bool epoll) : ByMessages(fd, epoll) {}
  std::span<const Arrival> Receive(bool wait) override {
    const bool block = wait && epoll_fd_ < 0;
    if (wait && !block) AwaitReadable();
    Reset(1);
    ++calls_;
    const ssize_t n =
        recvmsg(fd_, &messages_[0].msg_hdr, block ? 0 : MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) Die("recvmsg");
    if (n < 0) return {};
    messages_[0].msg_len = static_cast<unsigned>(n);
    return Got(1);
  }
};

class ByRecvmmsg final : public ByMessages {
 public:
  explicit ByRecvmmsg(int fd) : ByMessages(fd, true) {}
  std::span<const Arrival> Receive(bool wait) override {
    if (wait) AwaitReadable();
    Reset(kBuffers);
    ++calls_;
    const int n =
        recvmmsg(fd_, messages_.data(), kBuffers, MSG_DONTWAIT, nullptr);
    if (n < 0 && errno != EAGAIN) Die("recvmmsg");
    return Got(n < 0 ? 0 : static_cast<size_t>(n));
  }
};

class ByInlineRing final : public ByMessages {
 public:
  explicit ByInlineRing(int fd) : ByMessages(fd, true) {
    const int error = io_uring_queue_init(kBuffers, &ring_, 0);
    if (error != 0) DieOf(error, "io_uring_setup");
    if (io_uring_register_files(&ring_, &fd, 1) != 0) Die("register_files");
  }
  std::span<const Arrival> Receive(bool wait) override {
    if (wait) AwaitReadable();
    Reset(kBuffers);
    for (size_t i = 0; i < kBuffers; ++i) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      io_uring_prep_recvmsg(sqe, 0, &messages_[i].msg_hdr, MSG_DONTWAIT);
      sqe->flags |= IOSQE_FIXED_FILE;
      sqe->user_data = i;
    }
    ++calls_;
    (void)io_uring_submit_and_wait(&ring_, kBuffers);
    size_t got = 0;
    io_uring_cqe* cqe;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      if (cqe->res >= 0) {
        messages_[cqe->user_data].msg_len = static_cast<unsigned>(cqe->res);
        ++got;
      } else if (cqe->res != -EAGAIN) {
        DieOf(cqe->res, "recvmsg in a ring");
      }
      io_uring_cqe_seen(&ring_, cqe);
    }
    return Got(got);
  }

 private:
  io_uring ring_;
};

class ByMultishot final : public Receiver {
 public:
  ByMultishot(int fd, unsigned flags, bool ring_sends)
      : Receiver(fd), ring_sends_(ring_sends) {
    io_uring_params params{};
    params.flags = flags;
    params.sq_thread_idle = 1000;  // ms
    int error = io_uring_queue_init_params(4 * kBuffers, &ring_, &params);
    if (error != 0) DieOf(error, "io_uring_setup");
    kernel_polls_ = flags & IORING_SETUP_SQPOLL;
    deferred_ = flags & IORING_SETUP_DEFER_TASKRUN;
    io_uring_buf_reg reg{};
    reg.ring_addr = reinterpret_cast<uint64_t>(buffers_);
    reg.ring_entries = kBuffers;
    reg.bgid = kGroup;
    error = io_uring_register_buf_ring(&ring_, &reg, 0);
    if (error != 0) DieOf(error, "register_buf_ring");
    io_uring_buf_ring_init(buffers_);
    for (uint16_t i = 0; i < kBuffers; ++i) used_.push_back(i);
    message_.msg_namelen = sizeof(reference::SocketAddress);
    message_.msg_controllen = kControl;
  }
  std::span<const Arrival> Receive(bool wait) override {
    GiveBack();
    if (!armed_) Arm();
    Enter(wait);
    size_t got = 0;
    io_uring_cqe* cqe;
    while (got < kBuffers && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      if (cqe->user_data == kSend) DieOf(cqe->res, "sendmsg in a ring");
      if (!(cqe->flags & IORING_CQE_F_MORE)) armed_ = false;
      if (cqe->res >= 0) {
        arrivals_[got++] = Take(*cqe);
      } else if (cqe->res != -ENOBUFS) {
        DieOf(cqe->res, "multishot recvmsg");
      }
      io_uring_cqe_seen(&ring_, cqe);
    }
    return {arrivals_.data(), got};
  }
  void Send(const msghdr& message) override {
    if (!ring_sends_) return Receiver::Send(message);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_sendmsg(sqe, fd_, &message, 0);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    sqe->user_data = kSend;
    if (kernel_polls_) Submit();
  }

 private:
  static constexpr size_t kRoom = kBufferBytes + sizeof(io_uring_recvmsg_out) +
                                  sizeof(reference::SocketAddress) + kControl;

  void GiveBack() {
    for (size_t i = 0; i < used_.size(); ++i) {
      io_uring_buf_ring_add(buffers_, memory_ + used_[i] * kRoom, kRoom,
                            used_[i], io_uring_buf_ring_mask(kBuffers),
                            static_cast<int>(i));
    }
    io_uring_buf_ring_advance(buffers_, static_cast<int>(used_.size()));
    used_.clear();
  }
  void Arm() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_recvmsg_multishot(sqe, fd_, &message_, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = kGroup;
    sqe->user_data = kReceive;
    armed_ = true;
    Submit();
  }
  void Submit() {
    if (!kernel_polls_) ++calls_;
    (void)io_uring_submit(&ring_);
  }
  void Enter(bool wait) {
    const bool nothing = io_uring_cq_ready(&ring_) == 0;
    const bool pending = io_uring_sq_ready(&ring_) != 0 && !kernel_polls_;
    if (wait && (nothing || pending)) {
      ++calls_;
      (void)io_uring_submit_and_wait(&ring_, 1);
    } else if (pending) {
      Submit();
    } else if (deferred_ && nothing) {
      ++calls_;
      (void)io_uring_get_events(&ring_);
    }
  }
  Arrival Take(const io_uring_cqe& cqe) {
    const auto id = static_cast<uint16_t>(cqe.flags >> IORING_CQE_BUFFER_SHIFT);
    used_.push_back(id);
    io_uring_recvmsg_out* out =
        io_uring_recvmsg_validate(memory_ + id * kRoom, cqe.res, &message_);
    if (out == nullptr) DieOf(-EBADMSG, "multishot recvmsg");
    const size_t bytes =
        io_uring_recvmsg_payload_length(out, cqe.res, &message_);
    return {
        static_cast<const uint8_t*>(io_uring_recvmsg_payload(out, &message_)),
        bytes,
        SegmentOf(
            bytes,
            [&] { return io_uring_recvmsg_cmsg_firsthdr(out, &message_); },
            [&](cmsghdr* h) {
              return io_uring_recvmsg_cmsg_nexthdr(out, &message_, h);
            })};
  }

  const bool ring_sends_;
  bool kernel_polls_ = false;
  bool deferred_ = false;
  bool armed_ = false;
  io_uring ring_;
  msghdr message_{};  // sizes only
  io_uring_buf_ring* const buffers_ = reinterpret_cast<io_uring_buf_ring*>(
      reference::SharedMemory(kBuffers * sizeof(io_uring_buf)));
  uint8_t* const memory_ = reference::SharedMemory(kBuffers * kRoom);
  std::vector<uint16_t> used_;
  std::array<Arrival, kBuffers> arrivals_;
};

}  // namespace

void Receiver::Send(const msghdr& message) {
  ++calls_;
  if (sendmsg(fd_, &message, 0) < 0) Die("sendmsg");
}

const std::vector<std::string>& ReceiverWays() {
  static const std::vector<std::string> ways = {
      "recvmsg",   "epoll-recvmsg",  "epoll-recvmmsg",   "epoll-ring",
      "multishot", "multishot-send", "multishot-shared", "sqpoll"};
  return ways;
}

std::unique_ptr<Receiver> MakeReceiver(const std::string& way, int fd) {
  constexpr unsigned kOneThread =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  if (way == "recvmsg") return std::make_unique<ByRecvmsg>(fd, false);
  if (way == "epoll-recvmsg") return std::make_unique<ByRecvmsg>(fd, true);
  if (way == "epoll-recvmmsg") return std::make_unique<ByRecvmmsg>(fd);
  if (way == "epoll-ring") return std::make_unique<ByInlineRing>(fd);
  if (way == "multishot") {
    return std::make_unique<ByMultishot>(fd, kOneThread, false);
  }
  if (way == "multishot-send") {
    return std::make_unique<ByMultishot>(fd, kOneThread, true);
  }
  if (way == "multishot-shared") {
    return std::make_unique<ByMultishot>(fd, 0, false);
  }
  if (way == "sqpoll") {
    return std::make_unique<ByMultishot>(fd, IORING_SETUP_SQPOLL, true);
  }
  DieOf(-EINVAL, way.c_str());
}

}  // namespace io_ways
