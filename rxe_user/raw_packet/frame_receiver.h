// Receives the Ethernet frames of an interface, by a packet socket.
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
  // The frame is there during the call.
  using Deliver = absl::FunctionRef<void(const transport::ReceivedFrame&)>;

  FrameReceiver();

  // To be called for each packet socket, before it is bound. False, with errno:
  // the system refuses.
  //
  // The kernel hands over segments of TCP and UDP that it has merged (GRO), or
  // not made yet (GSO), as one frame: this has it tell their sizes.
  bool Prepare(int fd) const;

  // Delivers up to `most` frames that the kernel has, but no more than one call
  // takes, and each segment of merged ones by itself. Returns their bytes.
  // `max_frame`: what the interface takes, bytes: what is longer is cut for it
  // where the kernel (Linux before 6.2) does not tell. `ignore_outgoing`: those
  // that the host sends are not wanted, as on loopback, where each of them is
  // received as well.
  size_t Receive(int fd, size_t most, size_t max_frame, bool ignore_outgoing,
                 Deliver deliver);

 private:
  static constexpr size_t kFrames = 32;
  // Merged ones come whole.
  static constexpr size_t kBytes = 68 << 10;

  struct Incoming {
    OffloadHeader offload;
    std::array<iovec, 2> vectors;
    sockaddr_ll from;
    alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(tpacket_auxdata))];
  };
  // The frame as it was on the wire: with its VLAN tag and its checksums, which
  // the kernel may have put aside or not made yet. `*payload`: of each segment
  // that it is to be cut into, bytes; 0: it is one.
  bool Restore(size_t index, size_t max_frame, transport::ReceivedFrame* out,
               size_t* payload);
  // Returns their bytes.
  size_t DeliverSegments(const transport::ReceivedFrame& whole, size_t payload,
                         Deliver deliver);

  const bool has_sizes_;  // before each frame there is an OffloadHeader
  std::unique_ptr<uint8_t[]> memory_;
  std::array<Incoming, kFrames> incoming_;
  std::array<mmsghdr, kFrames> messages_;
  std::unique_ptr<uint8_t[]> segment_;  // made when it is needed first
};

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_
