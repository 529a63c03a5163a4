// Receives the Ethernet frames of an interface, by a packet socket.
#ifndef RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_
#define RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/frames.h"

namespace rxe_user {

class FrameReceiver {
 public:
  FrameReceiver();

  // Brings up to `most` frames, but no more than one call takes. They stay
  // valid until the next call. `ignore_outgoing`: those that the host sends are
  // not wanted, as on loopback, where each of them is received as well.
  std::span<const transport::ReceivedFrame> Receive(int fd, size_t most,
                                                    bool ignore_outgoing);

 private:
  static constexpr size_t kFrames = 32;
  // Merged ones come whole.
  static constexpr size_t kBytes = 68 << 10;

  struct Incoming {
    iovec vector;
    sockaddr_ll from;
    alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(tpacket_auxdata))];
  };
  // The frame as it was on the wire: with its VLAN tag and its checksums, which
  // the kernel may have put aside or not made yet.
  bool Restore(size_t index, transport::ReceivedFrame* out);

  std::unique_ptr<uint8_t[]> memory_;
  std::array<Incoming, kFrames> incoming_;
  std::array<mmsghdr, kFrames> messages_;
  std::array<transport::ReceivedFrame, kFrames> frames_;
};

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_FRAME_RECEIVER_H_
