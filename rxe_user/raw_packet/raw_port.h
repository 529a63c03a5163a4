// How raw packet queue pairs of a device reach its interface: frames out, and
// those of what comes in that a rule (ibv_create_flow(3)) is there for.
//
// The interface goes on to serve the system: what a rule takes is a copy, and
// the kernel has its own. Frames that the host sends on the interface are
// looked at, too, as those are that a NIC loops back.
#ifndef RXE_USER_RAW_PACKET_RAW_PORT_H_
#define RXE_USER_RAW_PACKET_RAW_PORT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/devices/device.h"
#include "rxe_user/raw_packet/frame_receiver.h"
#include "rxe_user/raw_packet/frame_transmitter.h"
#include "transport/raw/flow_table.h"

namespace rxe_user {

class RawPort {
 public:
  // EPERM: the process may not (CAP_NET_RAW).
  static absl::StatusOr<std::unique_ptr<RawPort>> Open(const Device& device);

  // Lane's lock held, but for ReadMtu.
  FrameTransmitter& transmitter() { return transmitter_; }

  // --- Rules. Lane not locked, one call at a time. There is a socket as long
  // as there are rules.

  // Makes the socket if there is none, and has the interface take in what
  // `rule` asks for. `*fresh`: the descriptor of a new socket, or -1. Then the
  // caller adds the rule (flows()), with the lane locked.
  absl::Status Prepare(const transport::FlowRule& rule, int* fresh);
  // The rule has been removed. Returns the descriptor that the caller is to
  // forget before it calls Close, or -1: there are others.
  int Retire(const transport::FlowRule& rule);
  void Close() { socket_.Reset(); }

  // --- Lane's lock held.
  transport::FlowTable& flows() { return flows_; }
  // Delivers what has come; one call. Returns bytes. `patient`: the program is
  // about to post receives. What it has none for is left in the socket, for a
  // while: programs post those that they have polled, but some of them take
  // fewer at a time than come meanwhile.
  size_t Receive(transport::Time now, bool patient);

  // What to wait on; -1: nothing. Thread: any.
  int descriptor() const { return fd_.load(std::memory_order_acquire); }

  void AbandonInChild();

 private:
  static constexpr transport::Time kPatience = 100 * transport::kMillisecond;

  explicit RawPort(const Device& device)
      : ifindex_(device.ifindex),
        mac_(device.mac),
        loopback_(device.loopback) {}
  absl::Status OpenSocket();
  // Joins or leaves.
  absl::Status SetMembership(const transport::FlowRule& rule, int option);

  const uint32_t ifindex_;
  const std::array<uint8_t, 6> mac_;
  const bool loopback_;
  FrameTransmitter transmitter_;
  transport::FlowTable flows_;
  std::unique_ptr<FrameReceiver> receiver_;
  transport::Time starved_since_ = 0;  // 0: it is not

  UniqueFd socket_;
  int rules_ = 0;
  std::atomic<int> fd_ = -1;
};

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_RAW_PORT_H_
