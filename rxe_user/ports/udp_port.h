// What the two backends have in common: sockets, control messages, sending, the
// policy for errors, and how many calls a round makes. A backend only executes
// arrays of receives.
//
// Locks: sockets are added under a mutex of their own, to tables that only
// grow, so a lane need not be locked (or may be) while an address is opened.
// Everything else is called under the lane's lock.
#ifndef RXE_USER_PORTS_UDP_PORT_H_
#define RXE_USER_PORTS_UDP_PORT_H_

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/prefaulted_buffer.h"
#include "rxe_user/ports/udp_socket.h"
#include "wire/icrc.h"

namespace rxe_user {

class UdpPort : public Port {
 public:
  ~UdpPort() override;

  absl::Status AddReceiver(const LocalAddress& local, int fd) override;
  bool HasReceiver(const wire::IpAddress& address) const override;
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice) override;
  std::vector<int> ReceiveDescriptors() const override;
  std::span<const transport::Train> Receive(bool thorough) override;
  bool more() const override { return more_; }
  uint64_t TakeOverflow() override;
  transport::Burst* NextBurst() override;
  void Queue() override;
  void Flush() override;
  bool blocked() const override { return blocked_; }
  const PortCounters& counters() const override { return counters_; }
  void AbandonInChild() override;

 protected:
  static constexpr size_t kSlots = 8;         // buffers, for each direction
  static constexpr size_t kMaxSockets = 256;  // the same

  // A receive. `result`: bytes, or a negative errno.
  struct Operation {
    msghdr* message = nullptr;
    int result = 0;
  };

  UdpPort() = default;
  // To be called once, before anything else.
  absl::Status Open();

  // Executes all, several of socket `fd`, without blocking and in order.
  // `index`: what RegisterReceiver returned for it.
  virtual void ReceiveSeveral(int fd, int index,
                              std::span<Operation> operations) = 0;
  // A receiver was added; returns its index in the backend's table, if any.
  virtual int RegisterReceiver(int fd) = 0;

  // As ReceiveSeveral, by recvmmsg(2).
  static void ReceiveByCall(int fd, std::span<Operation> operations);

  PortCounters counters_;

 private:
  static constexpr uint32_t kSendersPerAddress = 8;

  struct Receiver {
    int fd = -1;
    int index = -1;  // the backend's
    LocalAddress local;
    size_t ask = 1;         // how many datagrams to ask for at once
    bool had_more = false;  // the last call brought as many as it asked for
    uint32_t overflow = 0;
  };
  struct Sender {
    int fd = -1;
    LocalAddress local;
    uint32_t choice = 0;
    uint16_t port = 0;
    // From the first send on, whose they are. Under the lane's lock.
    std::optional<SendDefaults> defaults;
  };
  // A burst on its way. Messages point into their slot, so slots stay put.
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
  struct Incoming {
    std::span<uint8_t> buffer;
    msghdr message{};
    iovec vector{};
    SocketAddress from{};
    alignas(cmsghdr) uint8_t control[kControlBytes];
  };

  size_t ReceiveFrom(Receiver& receiver);
  bool Deliver(Receiver& receiver, const Incoming& incoming, int result);
  Sender* FindSender(const transport::AddressVector& av);
  void Prepare(Outgoing& slot, Sender& sender);
  // Sends the first of `slots`, all of one socket, in order. Returns how many
  // the system took; if none, errno says why.
  size_t Send(std::span<const uint8_t> slots);
  size_t SendMessages(int fd, std::span<mmsghdr> messages);
  bool MustGoInParts(const Outgoing& slot) const;
  // Sends what is left of one that must. False if it has to wait for more.
  bool SendInParts(Outgoing& slot);
  // A segmented send of the slot's has failed for being one.
  void LowerSegmentLimit(const Outgoing& slot, int error);
  void Free(uint8_t index);
  void CountDrop(int error);
  int SegmentLimit(const wire::IpAddress& destination) const;
  void SetMaxSegments(int max_segments);

  std::atomic<bool> abandoned_ = false;

  mutable std::mutex adding_;  // serialises growth of the two tables
  std::array<Receiver, kMaxSockets> receivers_;
  std::atomic<size_t> receiver_count_ = 0;
  std::array<Sender, kMaxSockets> senders_;
  std::atomic<size_t> sender_count_ = 0;

  PrefaultedBuffer receive_memory_;
  std::array<Incoming, kSlots> incoming_;
  std::vector<transport::Train> arrivals_;
  size_t hot_ = 0;  // the receiver that had something last
  uint32_t tick_ = 0;
  bool more_ = false;
  uint64_t new_overflow_ = 0;

  PrefaultedBuffer send_memory_;
  std::array<Outgoing, kSlots> outgoing_;
  std::vector<uint8_t> free_;    // slots; the last one is used next
  std::vector<uint8_t> queued_;  // slots, in order
  size_t queued_bytes_ = 0;
  bool blocked_ = false;
  int max_segments_ = 1;
  // Destinations to which segmented sends of more than this fail.
  absl::flat_hash_map<wire::IpAddress, int> segment_limits_;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_PORT_H_
