#include "rxe_user/raw_packet/frame_receiver.h"

#include <linux/if_ether.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"

namespace rxe_user {
namespace {

// Before each frame, for a VLAN tag that is put back.
constexpr size_t kHeadroom = wire::kVlanTagSize;

tpacket_auxdata AuxiliaryData(const msghdr& message) {
  tpacket_auxdata data{};
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message),
                       const_cast<cmsghdr*>(c))) {
    if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
      std::memcpy(&data, CMSG_DATA(c), sizeof(data));
    }
  }
  return data;
}

}  // namespace

FrameReceiver::FrameReceiver()
    : memory_(std::make_unique_for_overwrite<uint8_t[]>(kFrames * kBytes)) {
  for (size_t i = 0; i < kFrames; ++i) {
    Incoming& incoming = incoming_[i];
    incoming.vector = {memory_.get() + i * kBytes + kHeadroom,
                       kBytes - kHeadroom};
    messages_[i] = {};
    messages_[i].msg_hdr.msg_iov = &incoming.vector;
    messages_[i].msg_hdr.msg_iovlen = 1;
    messages_[i].msg_hdr.msg_name = &incoming.from;
    messages_[i].msg_hdr.msg_control = incoming.control;
  }
}

// By syscall(2): as UdpReceiver::Call.
std::span<const transport::ReceivedFrame> FrameReceiver::Receive(
    int fd, size_t most, bool ignore_outgoing) {
  for (mmsghdr& message : messages_) {
    message.msg_hdr.msg_namelen = sizeof(sockaddr_ll);
    message.msg_hdr.msg_controllen = sizeof(Incoming::control);
  }
  const long got = ::syscall(SYS_recvmmsg, fd, messages_.data(),
                             std::min(most, kFrames), MSG_DONTWAIT, nullptr);
  size_t count = 0;
  for (long i = 0; i < got; ++i) {
    const auto index = static_cast<size_t>(i);
    const bool outgoing = incoming_[index].from.sll_pkttype == PACKET_OUTGOING;
    if (outgoing && ignore_outgoing) continue;
    if (!Restore(index, &frames_[count])) continue;
    frames_[count++].is_outgoing = outgoing;
  }
  return {frames_.data(), count};
}

bool FrameReceiver::Restore(size_t index, transport::ReceivedFrame* out) {
  const mmsghdr& message = messages_[index];
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) return false;
  const tpacket_auxdata data = AuxiliaryData(message.msg_hdr);
  auto* begin = static_cast<uint8_t*>(incoming_[index].vector.iov_base);
  size_t bytes = message.msg_len;
  if ((data.tp_status & TP_STATUS_VLAN_VALID) != 0 && bytes >= 12) {
    constexpr size_t kMacs = 12;
    const bool has_type = (data.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    std::memmove(begin - kHeadroom, begin, kMacs);
    begin -= kHeadroom;
    bytes += kHeadroom;
    wire::StoreBe16(begin + kMacs,
                    has_type ? data.tp_vlan_tpid : uint16_t{ETH_P_8021Q});
    wire::StoreBe16(begin + kMacs + 2, data.tp_vlan_tci);
  }
  if (!wire::ParseEthernet({begin, bytes}, &out->frame)) return false;
  if ((data.tp_status & TP_STATUS_CSUMNOTREADY) != 0) {
    wire::FillChecksums(out->frame, begin);
  }
  out->checksums_good = wire::Ipv4ChecksumsAreGood(out->frame);
  return true;
}

}  // namespace rxe_user
