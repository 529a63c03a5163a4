// Ethernet frames between raw packet queue pairs and the device. Neither UDP
// nor a path is involved.
#ifndef TRANSPORT_BASE_FRAMES_H_
#define TRANSPORT_BASE_FRAMES_H_

#include <cstddef>
#include <cstdint>

#include "transport/base/types.h"
#include "wire/ethernet.h"

namespace transport {

// Where frames are sent. Called with the lane's lock held; nothing blocks.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // The longest frame that the interface takes now, header and payload, if it
  // has no VLAN tag; bytes, without the frame check sequence.
  virtual size_t max_frame() const = 0;
  // Room for a frame of `bytes`, at most max_frame() and a VLAN tag, to be
  // filled at once.
  // Null while the device takes no more: to be tried again a little later.
  virtual uint8_t* Reserve(size_t bytes) = 0;
  // The last Reserve is filled, and is to be sent.
  virtual void Commit() = 0;
  // Sends what was committed. False if the device has not taken all of it: to
  // be called again a little later.
  virtual bool Flush() = 0;
};

// A frame that has come.
struct ReceivedFrame {
  wire::EthernetFrame frame;
  // IPv4, with right checksums of the IP header and of TCP or UDP behind it.
  bool checksums_good = false;
  // This host has sent it on the interface, which other NICs would only show to
  // those who ask for it by its headers.
  bool is_outgoing = false;
};

inline constexpr size_t kManyFrames = ~size_t{0};

// Where the rules of a FlowTable send frames. Lane's lock held.
class FrameDestination {
 public:
  virtual ~FrameDestination() = default;
  // `tag`: of the rule that has matched; 0: none.
  virtual void OnFrame(const ReceivedFrame& received, uint32_t tag,
                       Time now) = 0;
  // How many frames it has receives for; kManyFrames if it does not matter.
  virtual size_t FrameRoom() const { return kManyFrames; }
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FRAMES_H_
