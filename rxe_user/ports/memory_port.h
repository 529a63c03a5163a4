// A port in front of the UDP port. It sends flows to processes of the same user
// on the same host through shared memory (docs/design/progress.md, "Same
// host"). Lanes have it unless RXE_USER_SAME_HOST=udp.
//
// Packets are the same as by UDP, except that their ICRC is neither computed
// nor checked. Connected flows are sent by memory. Datagrams are sent by UDP,
// since their flows have no single peer.
#ifndef RXE_USER_PORTS_MEMORY_PORT_H_
#define RXE_USER_PORTS_MEMORY_PORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/mapped_memory.h"
#include "rxe_user/ports/memory_links.h"
#include "rxe_user/ports/memory_ring.h"
#include "rxe_user/ports/port.h"

namespace rxe_user {

class MemoryPort final : public Port, private MemoryLinkUser {
 public:
  // ns of CLOCK_MONOTONIC, or a test's clock.
  using Clock = transport::Time (*)();
  // How long the reader of a full ring may take to read. After that, bursts are
  // dropped, as a socket with a full buffer drops them, so that a stopped
  // process looks the same as by UDP.
  static constexpr transport::Time kPatience = 50 * transport::kMillisecond;
  // Bursts to a peer by UDP before the lane asks it for a ring. A ring takes
  // time and memory, and many processes exchange only a few messages.
  static constexpr uint32_t kFirstTry = 8;
  // Time between the last packet by UDP and the first one by memory. By then
  // the kernel has put all packets by UDP into the receiving socket.
  static constexpr transport::Time kPause = transport::kMillisecond;
  // A ring by which nothing has been sent for this long, or up to twice as
  // long, is given up: both lanes have a limit of rings, and other peers may
  // want one.
  static constexpr transport::Time kUnused =
      MemoryLinks::kAskUnused / std::chrono::nanoseconds(1);

  // Errors: what the system refused.
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      std::unique_ptr<Port> inner, MemoryLinks::SelfTraffic self_traffic);
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      std::unique_ptr<Port> inner, Clock clock,
      MemoryLinks::SelfTraffic self_traffic);
  ~MemoryPort() override;

  // --- Port. The other functions are the inner port's.

  absl::Status AddReceiver(const LocalAddress& local, int fd) override;
  bool HasReceiver(const wire::IpAddress& address) const override {
    return inner_->HasReceiver(address);
  }
  void RemoveReceiver(const wire::IpAddress& address) override;
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice) override {
    return inner_->SourcePort(local, choice);
  }
  absl::Status OpenSourcePort(const LocalAddress& local,
                              uint16_t port) override {
    return inner_->OpenSourcePort(local, port);
  }
  size_t CloseUnusedSenders(const ForEachUsed& for_each_used) override {
    return inner_->CloseUnusedSenders(for_each_used);
  }
  // Includes the eventfd by which other lanes wake this one.
  std::vector<int> ReceiveDescriptors() const override;
  void AddSlot(uint16_t slot) override { links_->AddSlot(slot); }
  std::span<const transport::GroBatch> Receive(bool thorough) override;
  bool more() const override { return more_; }
  uint64_t TakeOverflow() override { return inner_->TakeOverflow(); }
  void PrepareWait() override;
  void SetWaitedOn(bool waited_on) override { inner_->SetWaitedOn(waited_on); }
  transport::Burst* Begin(const transport::Flow& flow) override;
  bool only_that_flow() const override { return only_that_flow_; }
  void Queue() override;
  void Flush() override { inner_->Flush(); }
  bool blocked() const override { return inner_->blocked(); }
  bool must_retry() const override {
    return inner_->blocked() || !waiting_.empty() || room_;
  }
  void WatchRoom(std::function<void()> on_room) override {
    on_room_ = std::move(on_room);
  }
  // By UDP, which refuses no flow alone.
  Port& ForLastPackets() override { return inner_->ForLastPackets(); }
  ControlTask* control_task() override { return links_.get(); }
  bool UsesMemory(const wire::IpAddress& source,
                  const wire::IpAddress& destination,
                  uint32_t peer_qpn) const override;
  const PortCounters& counters() const override;
  transport::PacketObserver* Watch(transport::PacketObserver* observer,
                                   Recorder* recorder) override {
    return inner_->Watch(observer, recorder);
  }
  void AbandonInChild() override;

 private:
  // A receiving lane, which may be on another host.
  struct Peer {
    // kPausing: there is a ring, and nothing is sent until `opens_at`.
    enum class State : uint8_t { kUdp, kAsked, kPausing, kOpen };
    State state = State::kUdp;
    bool waits = false;  // a flow was refused: the ring is full, or kPausing
    uint32_t left = kFirstTry;  // kUdp: bursts until the next try for a ring
    uint32_t interval = 0;      // bursts between such tries
    std::optional<RingWriter> ring;
    Outgoing link;
    transport::Time opens_at = 0;
    transport::Time opens_by = 0;  // the latest opens_at
    // The reader's position when the ring was found full, and when that was.
    uint64_t full_at = ~uint64_t{0};
    transport::Time full_since = 0;
    // The ring's tail when it was last found to have moved, and when that was.
    uint64_t used_to = 0;
    transport::Time used_at = 0;
  };
  struct Reader {
    std::optional<RingReader> ring;
    wire::IpAddress source;
    wire::IpAddress destination;
    // Read the sockets before the ring until they are empty or sockets_read_
    // reaches this: they may have earlier packets of the same flows. 0: no
    // more.
    uint64_t sockets_first = 0;
  };
  struct Hash {
    size_t operator()(const MemoryRoute& route) const;
  };
  using Peers = std::unordered_map<MemoryRoute, Peer, Hash>;

  MemoryPort(std::unique_ptr<Port> inner, Clock clock,
             MemoryLinks::SelfTraffic self_traffic);
  absl::Status Open();

  // --- MemoryLinkUser.
  void OnOutgoing(const MemoryRoute& route, const Outgoing& link) override;
  void OnOutgoingEnd(const MemoryRoute& route, int number) override;
  bool GivesUp(const MemoryRoute& route, int number) override;
  void OnIncoming(int bit, const wire::IpAddress& source,
                  const wire::IpAddress& destination,
                  RingMemory* ring) override;
  void OnIncomingEnd(int bit) override;

  // The peer of a flow; null: it goes by UDP.
  Peer* Find(const transport::Flow& flow);
  // Flows to a lane that was asked for a ring wait for the answer.
  bool waits_for_answer() const {
    return self_traffic_ == MemoryLinks::SelfTraffic::kRingsAtOnce;
  }
  // Begins a burst by UDP; asks for a ring now and then.
  transport::Burst* BeginUdp(Peer& peer, const transport::Flow& flow);
  transport::Burst* BeginFull(Peer& peer, const transport::Flow& flow);
  // Whether the pause before the first packet by memory is over.
  bool HasPaused(Peer& peer);
  void Refuse(Peer& peer);
  // From now on, packets to the peer go by UDP.
  static void End(Peer& peer);
  // Whether a flow that was refused may be sent now.
  bool MaySend(Peer& peer);
  // Calls on_room_ if a flow that was refused may be sent now.
  void CheckRoom();
  // Makes room in peers_. Called rarely, since a forgotten peer is asked for a
  // ring again.
  void ForgetPeers();
  std::span<const transport::GroBatch> ReceiveSockets(bool thorough);
  std::span<const transport::GroBatch> ReceiveMemory();
  void ReadRing(int bit, size_t* used);
  // The packets of the sockets that come before the ring of `reader`; empty: no
  // more.
  std::span<const transport::GroBatch> ReceiveBefore(Reader& reader);
  static void Signal(int fd);

  const std::unique_ptr<Port> inner_;
  const Clock clock_;
  const MemoryLinks::SelfTraffic self_traffic_;
  std::function<void()> on_room_ = [] {};
  PortCounters own_;            // of memory alone
  mutable PortCounters total_;  // the result of counters()
  std::unique_ptr<MemoryLinks> links_;

  // --- Receive.
  UniqueFd wake_;
  MappedMemory doorbell_memory_;
  UniqueFd doorbell_file_;
  Doorbell* doorbell_ = nullptr;
  std::array<Reader, Doorbell::kRings> readers_;
  int reader_count_ = 0;
  bool had_readers_ = false;   // since the lane was opened
  uint64_t unread_ = 0;        // bits of rings that may have more
  uint64_t sockets_read_ = 0;  // bytes, as SO_RCVBUF counts them
  uint64_t sleeps_ = 0;        // number of the last Doorbell::Sleep
  int next_ = 0;               // the ring to read first
  MappedMemory buffer_;
  std::vector<transport::GroBatch> batches_;
  uint32_t skipped_ = 0;  // calls in a row that did not ask the sockets
  uint32_t quiet_ = 0;    // calls in a row that found nothing there
  bool more_ = false;

  // --- Transmit.
  Peers peers_;
  Peers::value_type* last_ = nullptr;  // last result of Find
  std::vector<Peer*> waiting_;         // those with `waits`
  bool room_ = false;                  // on_room_ is to be called
  uint32_t unknown_ = 0;               // bursts to peers not in full peers_
  bool only_that_flow_ = false;
  // The burst of the last Begin is in the ring of `to_`, or dropped (`drops_`).
  // If neither, it is UDP's.
  Peer* to_ = nullptr;
  bool drops_ = false;
  transport::Burst burst_{{}, 1};
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_MEMORY_PORT_H_
