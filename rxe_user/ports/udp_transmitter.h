// The transmitting half of the UDP port: the sockets that only send, bursts on
// their way, and what is done where the system does not take them.
//
// Everything is called under the lane's lock.
#ifndef RXE_USER_PORTS_UDP_TRANSMITTER_H_
#define RXE_USER_PORTS_UDP_TRANSMITTER_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/prefaulted_buffer.h"
#include "rxe_user/ports/udp_socket.h"
#include "wire/icrc.h"

namespace rxe_user {

class UdpTransmitter {
 public:
  explicit UdpTransmitter(PortCounters* counters) : counters_(*counters) {}
  ~UdpTransmitter();
  // To be called once, before anything else.
  absl::Status Open();

  // As those of Port.
  // `receiver`: the socket of port 4791 that is to send; -1: one of its own is
  // made.
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice, int receiver);
  size_t CloseUnused(const Port::ForEachUsed& for_each_used);
  transport::Burst* Begin(const transport::Flow& flow);
  void Queue();
  void Flush();
  bool blocked() const { return blocked_; }
  void AbandonInChild();

 private:
  static constexpr size_t kBuffers = 8;
  static constexpr size_t kMaxSockets = 256;
  static constexpr uint32_t kSocketsPerAddress = 8;

  struct Socket {
    int fd = -1;
    LocalAddress local;
    // The interface's, where others know `local` in its place; else `local`.
    wire::IpAddress bound;
    uint32_t choice = 0;
    uint16_t port = 0;
    // From the first send on, whose they are.
    std::optional<SendDefaults> defaults;
    bool used = false;  // while CloseUnused looks
  };
  // A burst on its way. Messages point into it, so it stays put.
  struct Outgoing {
    std::span<uint8_t> buffer;
    transport::Burst burst{{}, 1};
    int fd = -1;
    size_t sent = 0;  // bytes, of one that goes in parts
    msghdr message{};
    iovec vector{};
    SocketAddress to{};
    wire::IpAddress destination;
    std::optional<wire::IcrcFlow> icrc;  // a copy: the flow may go away
    alignas(cmsghdr) uint8_t control[kControlBytes];
  };

  // A destination to which segmented sends have failed. The reason may be one
  // that goes away (the interface's MTU was less for a while, the source
  // address was gone), so after some bursts one is tried again, each time after
  // twice as many.
  struct Unsegmented {
    uint32_t interval;  // bursts between tries
    uint32_t left;      // until the next one
  };

  Socket* FindSocket(const transport::AddressVector& av);
  void Prepare(Outgoing& outgoing, Socket& socket);
  // Sends the first of `indices`, all of one socket, in order. Returns how many
  // the system took; if none, errno says why.
  size_t Send(std::span<const uint8_t> indices);
  size_t Call(int fd, std::span<mmsghdr> messages);
  bool MustGoInParts(const Outgoing& outgoing) const;
  // Sends what is left of one that must. False if it has to wait for more.
  bool SendInParts(Outgoing& outgoing);
  // A segmented send of it has failed for being one. False: there is no memory
  // to note that.
  bool LowerSegmentLimit(const Outgoing& outgoing, int error);
  // The parts of what had too many segments have been taken, or have not: then
  // that was not the reason.
  void EndDoubt(bool taken);
  // A segmented send of it was taken.
  void RaiseSegmentLimit(const Outgoing& outgoing);
  void CountBurst(const wire::IpAddress& destination);
  void CountDrop(const Outgoing& outgoing, int error);
  int SegmentLimit(const wire::IpAddress& destination) const;

  PortCounters& counters_;
  bool abandoned_ = false;

  std::array<Socket, kMaxSockets> sockets_;
  size_t socket_count_ = 0;

  PrefaultedBuffer memory_;
  std::array<Outgoing, kBuffers> outgoing_;
  std::vector<uint8_t> free_;    // indices; the last one is used next
  std::vector<uint8_t> queued_;  // indices, in order
  size_t queued_bytes_ = 0;
  bool blocked_ = false;
  int max_segments_ = 1;
  // A send of more than kOldMaxSegments was refused, as by an old kernel or by
  // a blackhole: its parts tell. Until then max_segments_ is the lesser one.
  bool doubts_segments_ = false;
  std::unordered_map<wire::IpAddress, Unsegmented, absl::Hash<wire::IpAddress>>
      unsegmented_;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_TRANSMITTER_H_
