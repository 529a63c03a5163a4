// Sends Ethernet frames on an interface with a packet socket.
#ifndef RXE_USER_RAW_PACKET_FRAME_TRANSMITTER_H_
#define RXE_USER_RAW_PACKET_FRAME_TRANSMITTER_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "rxe_user/base/unique_fd.h"
#include "transport/base/frames.h"

namespace rxe_user {

// Frames are gathered, and many are sent with one call. A frame that the
// interface refuses for another reason than lack of buffers (it is down, or its
// MTU has just shrunk) is dropped, as by a NIC without a link.
class FrameTransmitter final : public transport::FrameSink {
 public:
  // EPERM: the process lacks CAP_NET_RAW.
  absl::Status Open(uint32_t ifindex);
  // The interface's MTU has changed. Thread: any.
  void ReadMtu();

  // --- transport::FrameSink
  size_t max_frame() const override {
    return mtu_.load(std::memory_order_relaxed) + wire::kEthernetHeaderSize;
  }
  uint8_t* Reserve(size_t bytes) override;
  void Commit() override;
  bool Flush() override;

  uint64_t dropped() const { return dropped_; }
  void AbandonInChild() { fd_.Reset(); }

 private:
  static constexpr size_t kFrames = 64;
  static constexpr size_t kBytes = 256 << 10;

  UniqueFd fd_;
  uint32_t ifindex_ = 0;
  std::atomic<uint32_t> mtu_ = 0;
  std::unique_ptr<uint8_t[]> memory_;
  size_t used_ = 0;      // bytes of memory_ in use, including reserved ones
  size_t reserved_ = 0;  // bytes of the last Reserve
  size_t count_ = 0;     // committed frames
  size_t sent_ = 0;      // those of them that were sent
  std::array<iovec, kFrames> vectors_;
  std::array<mmsghdr, kFrames> messages_;
  uint64_t dropped_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_FRAME_TRANSMITTER_H_
