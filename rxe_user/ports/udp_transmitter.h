// The transmitting half of the UDP port: the sending sockets, bursts in flight
// to the kernel, and retries where the system refuses them.
//
// All calls need the lane's lock.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/ports/mapped_memory.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/udp_socket.h"
#include "wire/icrc.h"

namespace rxe_user {

// Sends several messages at once.
class MessageSender {
 public:
  // A burst of `bytes` was queued.
  virtual void OnQueued(size_t bytes) = 0;
  // Whether bursts are sent by it now; else by plain calls.
  virtual bool sends() const = 0;

  struct Message {
    static constexpr int kNotTried = -1;

    int fd;
    const msghdr* message;
    int error;  // the result: 0, sent; errno; kNotTried
  };

  // Messages with the same `fd` are adjacent. They are sent in order, and none
  // after one that fails.
  virtual void Send(std::span<Message> messages) = 0;

 protected:
  ~MessageSender() = default;
};

class UdpTransmitter {
 public:
  explicit UdpTransmitter(PortCounters* counters) : counters_(*counters) {}
  ~UdpTransmitter();
  // Call once, before anything else.
  absl::Status Open();

  // As Port's. `receiver`: the socket of port 4791 to send from; -1: the
  // transmitter opens one.
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice, int receiver);
  absl::Status OpenSourcePort(const LocalAddress& local, uint16_t port);
  size_t CloseUnused(const Port::ForEachUsed& for_each_used);
  transport::Burst* Begin(const transport::Flow& flow);
  void Queue();
  void Flush();
  bool blocked() const { return blocked_; }
  // From now on, `sender` sends bursts while its sends() is true, except bursts
  // in parts. It outlives the transmitter.
  void SendThrough(MessageSender* sender) { sender_ = sender; }
  // From now on, bursts in succession have different hop marks (Burst).
  void MarkBursts() { marks_bursts_ = true; }
  void AbandonInChild();

 private:
  static constexpr size_t kBuffers = 8;
  static constexpr size_t kMaxSockets = 256;
  static constexpr uint32_t kSocketsPerAddress = 8;
  // The choice of a socket whose port the program chose: none of SourcePort's.
  static constexpr uint32_t kOfProgram = kSocketsPerAddress;

  struct Socket {
    int fd = -1;
    LocalAddress local;
    // The interface's address if `local` is a public one
    // (base/public_addresses.h); else `local`.
    wire::IpAddress bound;
    uint32_t choice = 0;
    uint16_t port = 0;
    // Set by the first send: the values of its address vector.
    std::optional<SendDefaults> defaults = {};
    bool used = false;  // scratch of CloseUnused
  };
  // A queued burst. Never moves, since messages point into it.
  struct Outgoing {
    std::span<uint8_t> buffer;
    transport::Burst burst{{}, 1};
    int fd = -1;
    size_t sent = 0;  // bytes sent, of a burst sent in parts
    // The result of sender_; kNotTried: it has not tried, or the result was
    // taken.
    int result = MessageSender::Message::kNotTried;
    msghdr message{};
    iovec vector{};
    SocketAddress to{};
    wire::IpAddress destination;
    std::optional<wire::IcrcFlow> icrc;  // a copy, since the flow may end
    alignas(cmsghdr) uint8_t control[kControlBytes];
  };

  // A destination to which a segmented send has failed. The cause may go away
  // (the interface's MTU was small for a while, the source address was gone),
  // so a segmented send is tried again after some bursts. Each failure doubles
  // their number.
  struct Unsegmented {
    uint32_t interval;  // bursts between tries
    uint32_t left;      // bursts until the next try
  };

  void AddSocket(int fd, const LocalAddress& local, uint16_t port,
                 uint32_t choice);
  Socket* FindSocket(const transport::AddressVector& av);
  void Prepare(Outgoing& outgoing, Socket& socket);
  // Sends the first of `indices`, all of one socket, in order. Returns the
  // number that the system accepted; if 0, see errno.
  size_t Send(std::span<const uint8_t> indices);
  size_t Call(int fd, std::span<mmsghdr> messages);
  // Sends, by sender_ and by one call, those of `indices` that may be sent now.
  void SendAll(std::span<const uint8_t> indices);
  // As Send, with the results of SendAll. Calls SendAll for the bursts that
  // have none.
  size_t TakeResults(std::span<const uint8_t> indices);
  bool MustGoInParts(const Outgoing& outgoing) const;
  // Sends the rest of a burst in parts. False if it must wait for buffer space.
  bool SendInParts(Outgoing& outgoing);
  // A send of `outgoing` failed because it was segmented. False: no memory to
  // record that.
  bool LowerSegmentLimit(const Outgoing& outgoing, int error);
  // Whether the parts of a burst with too many segments were sent. If not, the
  // number of segments was not the cause.
  void ResolveSegmentLimit(bool taken);
  // A segmented send of `outgoing` succeeded.
  void RaiseSegmentLimit(const Outgoing& outgoing);
  void CountBurst(const wire::IpAddress& destination);
  void CountDrop(const Outgoing& outgoing, int error);
  int SegmentLimit(const wire::IpAddress& destination) const;

  PortCounters& counters_;
  bool abandoned_ = false;

  std::array<Socket, kMaxSockets> sockets_;
  size_t socket_count_ = 0;

  MappedMemory memory_;
  std::array<Outgoing, kBuffers> outgoing_;
  std::vector<uint8_t> free_;    // indices; the last is used next
  std::vector<uint8_t> queued_;  // indices, in order
  size_t queued_bytes_ = 0;
  bool blocked_ = false;
  MessageSender* sender_ = nullptr;  // null: always sendmmsg(2)
  bool by_sender_ = false;           // the present Flush
  bool marks_bursts_ = false;
  uint8_t last_mark_ = 0;
  int max_segments_ = 1;
  // A send of more than kOldMaxSegments was refused, by an old kernel or by a
  // blackhole route. If its parts are refused too, it was the route. Until
  // their result is known, max_segments_ is the lower limit.
  bool segment_limit_uncertain_ = false;
  std::unordered_map<wire::IpAddress, Unsegmented> unsegmented_;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_TRANSMITTER_H_
