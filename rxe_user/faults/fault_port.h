// A port that applies fault rules (docs/faults-on-command.md), in front of the
// real port. Processes with faults off do not have it. Rules may be added and
// removed, so each received batch and each burst checks whether a rule is about
// it.
//
// A packet that a rule hits travels alone, and the others keep their order.
// Where a packet's place in its burst or GRO batch changes, its IP
// identification does, too, so its ICRC is computed anew.
#ifndef RXE_USER_FAULTS_FAULT_PORT_H_
#define RXE_USER_FAULTS_FAULT_PORT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/ports/port.h"
#include "transport/base/flow.h"
#include "transport/endpoint/packet_observer.h"
#include "transport/faults/injector.h"

namespace rxe_user {

class FaultPort final : public Port, private transport::PacketObserver {
 public:
  // ns of CLOCK_MONOTONIC, or a test's clock.
  using Clock = transport::Time (*)();

  // The limits of the packets that delay, reorder and stall hold, in both
  // directions together. Further packets are dropped.
  static constexpr size_t kMaxHeld = 16384;  // packets
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;
  // How long reorder waits for the packets that will overtake.
  static constexpr transport::Time kReorderWait = 10 * transport::kMillisecond;

  // `faults` outlives the port. Errors: what the system refused.
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      std::unique_ptr<Port> inner, ProcessFaults* faults, Clock clock);
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      std::unique_ptr<Port> inner, ProcessFaults* faults);

  // Sends the held packets of the program, since the network would deliver
  // them, too. Held packets of peers are lost.
  ~FaultPort() override;

  // --- Port. The other functions are the inner port's.

  absl::Status AddReceiver(const LocalAddress& local, int fd) override {
    return inner_->AddReceiver(local, fd);
  }
  bool HasReceiver(const wire::IpAddress& address) const override {
    return inner_->HasReceiver(address);
  }
  void RemoveReceiver(const wire::IpAddress& address) override {
    inner_->RemoveReceiver(address);
  }
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice) override {
    return inner_->SourcePort(local, choice);
  }
  absl::Status OpenSourcePort(const LocalAddress& local,
                              uint16_t port) override {
    return inner_->OpenSourcePort(local, port);
  }
  size_t CloseUnusedSenders(const ForEachUsed& for_each_used) override;
  // Includes a timer, which is readable when a held packet is due.
  std::vector<int> ReceiveDescriptors() const override;
  std::span<const transport::GroBatch> Receive(bool thorough) override;
  bool more() const override { return inner_->more(); }
  uint64_t TakeOverflow() override { return inner_->TakeOverflow(); }
  void SetWaitedOn(bool waited_on) override { inner_->SetWaitedOn(waited_on); }
  transport::Burst* Begin(const transport::Flow& flow) override;
  void Queue() override;
  void Flush() override;
  bool blocked() const override {
    return inner_->blocked() || !pending_.empty();
  }
  bool must_retry() const override { return blocked(); }
  const PortCounters& counters() const override { return inner_->counters(); }
  void AbandonInChild() override;
  transport::PacketObserver* Watch(transport::PacketObserver* observer,
                                   Recorder* recorder) override;

 private:
  // Untouched packets of a GRO batch that stay together.
  struct PlainPackets {
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> icrcs;  // as they arrived
  };
  // What observers are told of a received packet of which a copy was delivered.
  // Observers see packets as they arrived, so that a recording matches the
  // sender's.
  struct Delivered {
    std::span<uint8_t> bytes;
    uint32_t icrc = 0;                                   // as it arrived
    transport::faults::PacketBit flipped = {.mask = 0};  // by kCorrupt
    std::optional<transport::ObservedFault> fault;
  };

  // A packet that is held, or that travels alone. Its ICRC is for IP
  // identification 0.
  struct LonePacket {
    std::vector<uint8_t> bytes;
    uint32_t qpn = 0;
    // Transmitted: its flow. Received: its addresses.
    std::optional<transport::Flow> flow;
    uint8_t hop_mark = 0;  // transmitted: of its burst
    transport::GroBatch arrival;
    // Received: what the observer is told. Transmitted packets were shown when
    // they were held.
    Delivered shown;
    uint32_t behind = 0;         // packets that must still overtake it
    transport::Time latest = 0;  // it leaves at this time in any case

    bool is_transmitted() const { return flow.has_value(); }
  };

  FaultPort(std::unique_ptr<Port> inner, ProcessFaults* faults, Clock clock);

  void OnPacket(const transport::ObservedPacket& packet) override;
  void OnOverflow(uint64_t packets) override {
    if (observer_ != nullptr) observer_->OnOverflow(packets);
  }

  transport::faults::Fate Decide(bool transmitted, uint32_t qpn,
                                 std::span<const uint8_t> bytes,
                                 const wire::IpAddress& peer,
                                 wire::PacketView* packet, transport::Time now);
  // Adds the fault to the flight recorder.
  void Note(const transport::faults::Fate& fate, uint32_t qpn, uint32_t psn,
            transport::Time now);

  // --- Receive.
  // Sets packets_ and fates_ to those of the batch. True if a rule hits one.
  bool DecideAll(const transport::GroBatch& batch, transport::Time now);
  void Filter(const transport::GroBatch& batch, transport::Time now);
  void DeliverPlain(const transport::GroBatch& batch, PlainPackets* plain);
  void Deliver(LonePacket packet);
  static void Restore(const Delivered& shown, std::span<uint8_t> bytes);
  void ShowDelivered(const transport::ObservedPacket& packet,
                     const Delivered& delivered);
  // A packet of the batch that is delivered later or not at all.
  static transport::ObservedPacket Arrived(
      const transport::GroBatch& batch, std::span<const uint8_t> bytes,
      const transport::ObservedFault& fault, transport::Time now);

  // --- Transmit.
  void SendPlain(std::span<const uint8_t> bytes);
  void EndInnerBurst();
  void SendAlone(LonePacket packet);
  bool TrySendAlone(const LonePacket& packet);
  void SendPending();
  void ShowSent(std::span<const uint8_t> bytes, uint16_t index,
                uint8_t traffic_class, const transport::ObservedFault* fault);

  // --- Held packets.
  bool holds_some() const {
    return is_stalled_ || !delayed_.empty() || !behind_.empty() ||
           !stalled_.empty();
  }
  // Whether one more packet may be held. If not, counts it for `rule`; the
  // caller drops it.
  bool HasRoom(size_t bytes, const transport::faults::Rule& rule);
  // Holds the packet as `fate` says; drops it if there is no room.
  void Hold(LonePacket packet, const transport::faults::Fate& fate,
            transport::Time now);
  void Leave(LonePacket packet);
  // Shows a received packet that was held and is lost, since the link is down.
  // A packet to send was shown when it was held.
  void ShowLost(const LonePacket& packet);
  // Detects a stall, including one that another lane's packet began. From then
  // on, packets that wait for the socket wait for the end of the stall.
  void CheckStall(transport::Time now);
  void HoldForStall(LonePacket packet);
  // Releases the packets that a stall held, if it is over.
  void EndStall(transport::Time now);
  // Those of `behind_` for which `leaves(packet)` leave.
  template <typename Leaves>
  void LeaveBehind(Leaves&& leaves);
  // A packet of the queue pair has passed. Held packets that it was to overtake
  // may leave.
  void Overtake(bool transmitted, uint32_t qpn);
  void ReleaseDue(transport::Time now);
  void SetTimer();

  const std::unique_ptr<Port> inner_;
  ProcessFaults& faults_;
  const Clock clock_;
  // Rules are about the packets of the last burst that was begun, or packets
  // are still held.
  bool transmits_ = false;
  transport::PacketObserver* observer_ = nullptr;
  Recorder* recorder_ = nullptr;

  // --- Receive. Valid until the next Receive.
  std::vector<transport::GroBatch> out_;
  std::deque<std::vector<uint8_t>> copies_;
  std::unordered_map<const uint8_t*, Delivered> delivered_;
  std::vector<transport::faults::Fate> fates_;
  std::vector<wire::PacketView> packets_;

  // --- Transmit.
  std::vector<uint8_t> buffer_;
  std::optional<transport::Burst> burst_;
  transport::ObservedPacket sent_;           // of the burst, without bytes
  std::vector<uint32_t> sent_qpns_;          // of its packets
  transport::Burst* inner_burst_ = nullptr;  // begun
  std::deque<LonePacket> pending_;           // sends are blocked

  std::multimap<transport::Time, LonePacket> delayed_;
  std::list<LonePacket> behind_;
  // All packets of both directions since the stall began. Packets are added
  // until Receive notices that it is over, so that none overtakes them.
  std::deque<LonePacket> stalled_;
  FaultStall stall_;
  bool is_stalled_ = false;
  size_t held_bytes_ = 0;
  UniqueFd timer_;
  transport::Time timer_at_ = transport::kNever;
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULT_PORT_H_
