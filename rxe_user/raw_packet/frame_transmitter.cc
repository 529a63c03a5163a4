#include "rxe_user/raw_packet/frame_transmitter.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rxe_user/base/errno_status.h"

namespace rxe_user {

absl::Status FrameTransmitter::Open(uint32_t ifindex) {
  // Protocol 0, so that it receives nothing.
  fd_.Reset(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_.valid()) {
    return ErrnoStatus(errno,
                       "a raw packet queue pair needs a packet socket "
                       "(CAP_NET_RAW)");
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(ifindex);
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) != 0) {
    return ErrnoStatus(errno, "binding a packet socket to the interface");
  }
  ifindex_ = ifindex;
  ReadMtu();
  memory_ = std::make_unique_for_overwrite<uint8_t[]>(kBytes);
  for (size_t i = 0; i < kFrames; ++i) {
    messages_[i] = {};
    messages_[i].msg_hdr.msg_iov = &vectors_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
  }
  return absl::OkStatus();
}

void FrameTransmitter::ReadMtu() {
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(ifindex_);
  if (::ioctl(fd_.get(), SIOCGIFNAME, &request) == 0 &&
      ::ioctl(fd_.get(), SIOCGIFMTU, &request) == 0) {
    mtu_.store(static_cast<uint32_t>(request.ifr_mtu),
               std::memory_order_relaxed);
  }
}

uint8_t* FrameTransmitter::Reserve(size_t bytes) {
  used_ -= reserved_;  // the last one was not committed
  reserved_ = 0;
  if (bytes > kBytes) return nullptr;
  if ((count_ == kFrames || used_ + bytes > kBytes) && !Flush()) {
    return nullptr;
  }
  reserved_ = bytes;
  used_ += bytes;
  return memory_.get() + used_ - bytes;
}

void FrameTransmitter::Commit() {
  vectors_[count_++] = {memory_.get() + used_ - reserved_, reserved_};
  reserved_ = 0;
}

// Called by syscall(2), as in UdpReceiver::Call.
bool FrameTransmitter::Flush() {
  while (sent_ < count_) {
    const long sent = ::syscall(SYS_sendmmsg, fd_.get(), &messages_[sent_],
                                count_ - sent_, MSG_DONTWAIT);
    if (sent > 0) {
      sent_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == ENOBUFS) {
      return false;
    } else if (errno != EINTR) {
      ++sent_;
      ++dropped_;
    }
  }
  count_ = sent_ = used_ = reserved_ = 0;
  return true;
}

}  // namespace rxe_user
