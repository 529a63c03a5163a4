// The methods to send datagrams (io_ways.h).
#include <errno.h>
#include <liburing.h>
#include <netinet/udp.h>

#include <array>
#include <cstring>

#include "tests/bench/io_ways.h"

#ifndef IORING_SEND_ZC_REPORT_USAGE  // <linux/io_uring.h> since 6.2
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

namespace io_ways {
namespace {

using reference::Die;

[[noreturn]] void DieOf(int error, const char* what) {
  errno = -error;
  Die(what);
}

class WithBuffers : public Sender {
 protected:
  WithBuffers(int fd, const reference::Address& to) : fd_(fd), to_(to) {}

  msghdr& Prepare(size_t index, size_t bytes, size_t segment) {
    Message& m = messages_[index];
    m.vector = {Memory(index), bytes};
    m.header = {};
    m.header.msg_name = &to_.at;
    m.header.msg_namelen = to_.length;
    m.header.msg_iov = &m.vector;
    m.header.msg_iovlen = 1;
    if (segment < bytes) {
      m.header.msg_control = m.control;
      m.header.msg_controllen = sizeof(m.control);
      reference::WriteSegmentSize(segment, &m.header);
    }
    return m.header;
  }
  uint8_t* Memory(size_t index) { return memory_ + index * kBufferBytes; }

  const int fd_;

 private:
  struct Message {
    msghdr header;
    iovec vector;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))];
  };
  reference::Address to_;
  uint8_t* const memory_ = reference::SharedMemory(kBuffers * kBufferBytes);
  std::array<Message, kBuffers> messages_{};
};

class BySendmsg final : public WithBuffers {
 public:
  BySendmsg(int fd, const reference::Address& to) : WithBuffers(fd, to) {}
  uint8_t* Buffer() override { return Memory(0); }
  void Send(size_t bytes, size_t segment) override {
    ++calls_;
    if (sendmsg(fd_, &Prepare(0, bytes, segment), 0) < 0) Die("sendmsg");
  }
};

class ByRing final : public WithBuffers {
 public:
  ByRing(int fd, const reference::Address& to, bool zero_copy, bool registered)
      : WithBuffers(fd, to), zero_copy_(zero_copy), registered_(registered) {
    const unsigned flags =
        zero_copy ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN : 0;
    int error = io_uring_queue_init(2 * kBuffers, &ring_, flags);
    if (error != 0) DieOf(error, "io_uring_setup");
    if (registered) {
      const iovec all = {Memory(0), kBuffers * kBufferBytes};
      error = io_uring_register_buffers(&ring_, &all, 1);
      if (error != 0) DieOf(error, "register_buffers");
    }
    if (io_uring_register_files(&ring_, &fd, 1) != 0) Die("register_files");
    for (size_t i = 0; i < kBuffers; ++i) free_.push_back(i);
  }
  uint8_t* Buffer() override {
    while (free_.empty()) {
      ++calls_;
      (void)io_uring_submit_and_wait(&ring_, 1);
      Reap();
    }
    return Memory(free_.back());
  }
  void Send(size_t bytes, size_t segment) override {
    const size_t index = free_.back();
    free_.pop_back();
    const msghdr* message = &Prepare(index, bytes, segment);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (zero_copy_) {
      io_uring_prep_sendmsg_zc(sqe, 0, message, 0);
      sqe->ioprio = IORING_SEND_ZC_REPORT_USAGE;
      if (registered_) sqe->ioprio |= IORING_RECVSEND_FIXED_BUF;
      sqe->buf_index = 0;
    } else {
      io_uring_prep_sendmsg(sqe, 0, message, 0);
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = index;
    ++calls_;
    (void)io_uring_submit_and_get_events(&ring_);
    Reap();
  }

 private:
  // A buffer is free when its notification has arrived, if one follows.
  void Reap() {
    io_uring_cqe* cqe;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const bool notice = cqe->flags & IORING_CQE_F_NOTIF;
      if (!notice && cqe->res < 0) DieOf(cqe->res, "sendmsg in a ring");
      if (notice &&
          static_cast<unsigned>(cqe->res) & IORING_NOTIF_USAGE_ZC_COPIED) {
        ++copied_;
      }
      if (!(cqe->flags & IORING_CQE_F_MORE)) free_.push_back(cqe->user_data);
      io_uring_cqe_seen(&ring_, cqe);
    }
  }

  const bool zero_copy_;
  const bool registered_;
  io_uring ring_;
  std::vector<size_t> free_;
};

}  // namespace

const std::vector<std::string>& SenderWays() {
  static const std::vector<std::string> ways = {"sendmsg", "ring", "zc",
                                                "zc-registered"};
  return ways;
}

std::unique_ptr<Sender> MakeSender(const std::string& way, int fd,
                                   const reference::Address& to) {
  if (way == "sendmsg") return std::make_unique<BySendmsg>(fd, to);
  if (way == "ring") return std::make_unique<ByRing>(fd, to, false, false);
  if (way == "zc") return std::make_unique<ByRing>(fd, to, true, false);
  if (way == "zc-registered") {
    return std::make_unique<ByRing>(fd, to, true, true);
  }
  DieOf(-EINVAL, way.c_str());
}

}  // namespace io_ways
