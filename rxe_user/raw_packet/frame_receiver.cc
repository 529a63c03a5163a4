#include "rxe_user/raw_packet/frame_receiver.h"

#include <linux/if_ether.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

#include "wire/bytes.h"
#include "wire/ip_numbers.h"

namespace rxe_user {
namespace {

// Space before each frame to insert a VLAN tag.
constexpr size_t kHeadroom = wire::kVlanTagSize;

// Before Linux 6.2, a socket that asks for segment sizes does not get merged
// UDP.
bool KernelTellsSizesOfAll() {
  utsname name;
  int major = 0;
  int minor = 0;
  return ::uname(&name) == 0 &&
         std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 2));
}

// The size of the headers up to and including TCP or UDP; 0: it is neither.
size_t HeaderSize(const wire::EthernetFrame& frame) {
  switch (frame.layer4) {
    case wire::Layer4::kTcp:
      return frame.transport + size_t{frame.transport_header()[12]} / 16 * 4;
    case wire::Layer4::kUdp:
      return frame.transport + wire::kUdpSize;
    case wire::Layer4::kOther:
      break;
  }
  return 0;
}

// The payload of each segment of `frame`; 0: the frame is not merged.
size_t PayloadOfSegments(const wire::EthernetFrame& frame,
                         const OffloadHeader& offload, size_t max_frame) {
  const size_t header = HeaderSize(frame);
  if (header >= frame.end) return 0;
  const uint8_t type = offload.gso_type & static_cast<uint8_t>(~kGsoEcn);
  const bool tcp = frame.layer4 == wire::Layer4::kTcp;
  if (type == kGsoTcp4 || type == kGsoTcp6) {
    return tcp ? offload.gso_size : 0;  // otherwise it is TCP inside a tunnel
  }
  if (type == kGsoUdp) {
    return frame.layer4 == wire::Layer4::kUdp ? offload.gso_size : 0;
  }
  const size_t longest = max_frame + (frame.has_vlan ? wire::kVlanTagSize : 0);
  return tcp && frame.bytes.size() > longest && longest > header
             ? longest - header
             : 0;
}

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
    : has_sizes_(KernelTellsSizesOfAll()),
      memory_(std::make_unique_for_overwrite<uint8_t[]>(kFrames * kBytes)) {
  for (size_t i = 0; i < kFrames; ++i) {
    Incoming& incoming = incoming_[i];
    incoming.offload = {};
    incoming.vectors = {
        iovec{&incoming.offload, sizeof(incoming.offload)},
        iovec{memory_.get() + i * kBytes + kHeadroom, kBytes - kHeadroom}};
    messages_[i] = {};
    messages_[i].msg_hdr.msg_iov = &incoming.vectors[has_sizes_ ? 0 : 1];
    messages_[i].msg_hdr.msg_iovlen = has_sizes_ ? 2 : 1;
    messages_[i].msg_hdr.msg_name = &incoming.from;
    messages_[i].msg_hdr.msg_control = incoming.control;
  }
}

bool FrameReceiver::Prepare(int fd) const {
  constexpr int kOn = 1;
  return ::setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &kOn, sizeof(kOn)) == 0 &&
         (!has_sizes_ || ::setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &kOn,
                                      sizeof(kOn)) == 0);
}

// Called by syscall(2), as in UdpReceiver::Call.
size_t FrameReceiver::Receive(int fd, size_t max_count, size_t max_frame,
                              bool ignore_outgoing, Deliver deliver) {
  for (mmsghdr& message : messages_) {
    message.msg_hdr.msg_namelen = sizeof(sockaddr_ll);
    message.msg_hdr.msg_controllen = sizeof(Incoming::control);
  }
  const long got =
      ::syscall(SYS_recvmmsg, fd, messages_.data(),
                std::min(max_count, kFrames), MSG_DONTWAIT, nullptr);
  size_t bytes = 0;
  for (long i = 0; i < got; ++i) {
    const auto index = static_cast<size_t>(i);
    transport::ReceivedFrame frame;
    frame.is_outgoing = incoming_[index].from.sll_pkttype == PACKET_OUTGOING;
    if (frame.is_outgoing && ignore_outgoing) continue;
    size_t payload = 0;
    if (!Restore(index, max_frame, &frame, &payload)) continue;
    if (payload != 0) {
      bytes += DeliverSegments(frame, payload, deliver);
    } else {
      deliver(frame);
      bytes += frame.frame.bytes.size();
    }
  }
  return bytes;
}

bool FrameReceiver::Restore(size_t index, size_t max_frame,
                            transport::ReceivedFrame* out, size_t* payload) {
  const mmsghdr& message = messages_[index];
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) return false;
  const tpacket_auxdata data = AuxiliaryData(message.msg_hdr);
  auto* begin = static_cast<uint8_t*>(incoming_[index].vectors[1].iov_base);
  size_t bytes = message.msg_len;
  if (has_sizes_) bytes -= std::min(bytes, sizeof(OffloadHeader));
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
  *payload = PayloadOfSegments(out->frame, incoming_[index].offload, max_frame);
  if (*payload != 0) return true;
  if ((data.tp_status & TP_STATUS_CSUMNOTREADY) != 0) {
    wire::FillChecksums(out->frame, begin);
  }
  out->checksums_good = wire::Ipv4ChecksumsAreGood(out->frame);
  return true;
}

size_t FrameReceiver::DeliverSegments(const transport::ReceivedFrame& whole,
                                      size_t payload, Deliver deliver) {
  if (segment_ == nullptr) {
    segment_ = std::make_unique_for_overwrite<uint8_t[]>(kBytes);
  }
  const wire::EthernetFrame& frame = whole.frame;
  const size_t header = HeaderSize(frame);
  size_t sum = 0;
  uint16_t number = 0;
  for (size_t at = header; at < frame.end; at += payload, ++number) {
    const size_t end = std::min(at + payload, frame.end);
    const std::span<uint8_t> bytes(segment_.get(), header + end - at);
    std::memcpy(bytes.data(), frame.bytes.data(), header);
    std::memcpy(bytes.data() + header, frame.bytes.data() + at, end - at);
    if (frame.layer4 == wire::Layer4::kTcp) {
      wire::FinishTcpSegment(frame, bytes, static_cast<uint32_t>(at - header),
                             number, end == frame.end);
    } else {
      wire::FinishUdpSegment(frame, bytes, number);
    }
    transport::ReceivedFrame segment;
    if (!wire::ParseEthernet(bytes, &segment.frame)) break;
    segment.checksums_good = wire::Ipv4ChecksumsAreGood(segment.frame);
    segment.is_outgoing = whole.is_outgoing;
    deliver(segment);
    sum += bytes.size();
  }
  return sum;
}

}  // namespace rxe_user
