// Ethernet frames between raw packet queue pairs and the device, without UDP
// and without a path.
#ifndef TRANSPORT_BASE_FRAMES_H_
#define TRANSPORT_BASE_FRAMES_H_

#include <cstddef>
#include <cstdint>

#include "transport/base/types.h"
#include "wire/ethernet.h"

namespace transport {

// Sends frames. Called with the lane's lock held; nothing blocks.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // The interface's current maximum frame, in bytes: header and payload,
  // without VLAN tag and frame check sequence.
  virtual size_t max_frame() const = 0;
  // Reserves `bytes` (at most max_frame() and a VLAN tag) for a frame, which
  // the caller writes at once. Null while the device is full: retry a little
  // later.
  virtual uint8_t* Reserve(size_t bytes) = 0;
  // Queues the frame of the last Reserve for sending.
  virtual void Commit() = 0;
  // Sends the committed frames. False if the device has not taken all of them:
  // call again a little later.
  virtual bool Flush() = 0;
};

// A received frame.
struct ReceivedFrame {
  wire::EthernetFrame frame;
  // IPv4, with good checksums of the IP header and of TCP or UDP.
  bool checksums_good = false;
  // Sent by this host on the interface. A NIC would show such frames only to
  // rules that match their headers.
  bool is_outgoing = false;
};

inline constexpr size_t kManyFrames = ~size_t{0};

// Receives the frames that match a rule of a FlowTable. Lane's lock held.
class FrameDestination {
 public:
  virtual ~FrameDestination() = default;
  // `tag`: of the matching rule; 0: none.
  virtual void OnFrame(const ReceivedFrame& received, uint32_t tag,
                       Time now) = 0;
  // Number of posted receives; kManyFrames if it does not limit.
  virtual size_t FrameRoom() const { return kManyFrames; }
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FRAMES_H_
