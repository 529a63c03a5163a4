// The raw packet queue pairs' access to a device's interface: sends frames, and
// receives those that match a flow rule (ibv_create_flow(3)).
//
// The system still gets every frame: a rule receives a copy. Frames that the
// host itself sends on the interface are matched as well, as if a NIC looped
// them back.
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
  // EPERM: the process lacks CAP_NET_RAW.
  static absl::StatusOr<std::unique_ptr<RawPort>> Open(const Device& device);

  // Lane locked, except for ReadMtu.
  FrameTransmitter& transmitter() { return transmitter_; }

  // --- Rules. Lane not locked, one call at a time. The socket exists while
  // there are rules.

  // Creates the socket if there is none, and makes the interface receive what
  // `rule` needs. `*fresh`: the descriptor of a new socket, or -1. The caller
  // then adds the rule to flows(), with the lane locked.
  absl::Status Prepare(const transport::FlowRule& rule, int* fresh);
  // The rule has been removed. Returns the descriptor on which the caller must
  // stop waiting before it calls Close, or -1 if other rules remain.
  int Retire(const transport::FlowRule& rule);
  void Close() { socket_.Reset(); }

  // --- Lane locked.
  transport::FlowTable& flows() { return flows_; }
  // Delivers the frames received by one system call. Returns the number of
  // bytes. `patient`: the program will probably post receives soon. Frames
  // without a receive are then left in the socket for a while, since some
  // programs poll and post fewer receives at a time than frames arrive.
  size_t Receive(transport::Time now, bool patient);

  // The descriptor on which to wait; -1: none. Thread: any.
  int descriptor() const { return fd_.load(std::memory_order_acquire); }

  void AbandonInChild();

 private:
  static constexpr transport::Time kPatience = 100 * transport::kMillisecond;

  explicit RawPort(const Device& device)
      : ifindex_(device.ifindex),
        mac_(device.mac),
        loopback_(device.loopback) {}
  absl::Status OpenSocket();
  // Joins or leaves a membership of the interface.
  absl::Status SetMembership(const transport::FlowRule& rule, int option);

  const uint32_t ifindex_;
  const std::array<uint8_t, 6> mac_;
  const bool loopback_;
  FrameTransmitter transmitter_;
  transport::FlowTable flows_;
  std::unique_ptr<FrameReceiver> receiver_;
  transport::Time starved_since_ = 0;  // 0: there are receives

  UniqueFd socket_;
  int rules_ = 0;
  std::atomic<int> fd_ = -1;
};

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_RAW_PORT_H_
