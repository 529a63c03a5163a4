// Receives an interface's Ethernet frames with a packet socket.
#ifndef RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_
#define RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "rxe_user/raw_packet/offload_header.h"
#include "transport/base/frames.h"

namespace rxe_user {

// Thread: one at a time.
class FrameReceiver {
 public:
  // The frame is valid during the call.
  using Deliver = absl::FunctionRef<void(const transport::ReceivedFrame&)>;

  FrameReceiver();

  // Sets the options of a packet socket before it is bound. False, with errno
  // set, if the system refuses.
  //
  // The kernel delivers TCP and UDP segments that it has merged (GRO) or not
  // split yet (GSO) as one frame. The options make it report their sizes.
  bool Prepare(int fd) const;

  // Delivers up to `max_count` received frames, from one system call, and each
  // segment of a merged frame separately. Returns the number of bytes.
  // `max_frame`: the interface's largest frame in bytes; longer ones are split
  // accordingly where the kernel (before Linux 6.2) does not report segment
  // sizes. `ignore_outgoing`: drops the host's own outgoing frames, as on
  // loopback, where each is also received.
  size_t Receive(int fd, size_t max_count, size_t max_frame,
                 bool ignore_outgoing, Deliver deliver);

 private:
  static constexpr size_t kFrames = 32;
  // Merged frames are received whole.
  static constexpr size_t kBytes = 68 << 10;

  struct Incoming {
    OffloadHeader offload;
    std::array<iovec, 2> vectors;
    sockaddr_ll from;
    alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(tpacket_auxdata))];
  };
  // Restores the frame as it was on the wire, with its VLAN tag and checksums,
  // which the kernel may have removed or not computed yet. `*payload`: the
  // payload of each segment into which to split it, in bytes; 0: it is not
  // merged.
  bool Restore(size_t index, size_t max_frame, transport::ReceivedFrame* out,
               size_t* payload);
  // Returns the number of bytes.
  size_t DeliverSegments(const transport::ReceivedFrame& whole, size_t payload,
                         Deliver deliver);

  const bool has_sizes_;  // an OffloadHeader precedes each frame
  std::unique_ptr<uint8_t[]> memory_;
  std::array<Incoming, kFrames> incoming_;
  std::array<mmsghdr, kFrames> messages_;
  std::unique_ptr<uint8_t[]> segment_;  // allocated at first use
};

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_
