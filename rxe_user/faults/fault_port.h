// A port that follows fault rules (docs/faults-on-command.md), in front of the
// real one. Processes with faults off do not have it. Rules may come and go:
// each batch that is received and each burst looks whether there are some for
// it.
//
// A packet that is hit travels alone, so that the others keep their order and
// their ICRCs: those of a burst or GRO batch are made anew where a packet's
// place in it, and so its IP identification, changes.
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

  // What delay, reorder and stall may hold, of both directions together. Beyond
  // it they drop.
  static constexpr size_t kMostHeld = 16384;  // packets
  static constexpr size_t kMostHeldBytes = size_t{64} << 20;
  // How long reorder waits for the packets that are to overtake.
  static constexpr transport::Time kReorderWait = 10 * transport::kMillisecond;

  // `faults` outlives the port. Errors: what the system refused.
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      std::unique_ptr<Port> inner, ProcessFaults* faults, Clock clock);
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      std::unique_ptr<Port> inner, ProcessFaults* faults);

  // Sends what it holds: the network would deliver it, too.
  ~FaultPort() override;

  // --- Port. What is not here is the inner port's.

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
  // And a timer, which is readable when a held packet is due.
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
  struct Run {
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> icrcs;  // as they arrived
  };
  // What observers are told of a received packet of which a copy was delivered.
  // They see packets as they arrived, so that a recording fits the sender's.
  struct Delivered {
    std::span<uint8_t> bytes;
    uint32_t icrc = 0;                               // as it arrived
    transport::faults::Place flipped = {.mask = 0};  // by kCorrupt
    std::optional<transport::ObservedFault> fault;
  };

  // A packet that is held, or that travels alone. Its ICRC is that of the IP
  // identification 0.
  struct Alone {
    std::vector<uint8_t> bytes;
    uint32_t qpn = 0;
    // Transmitted: its flow. Received: its addresses.
    std::optional<transport::Flow> flow;
    uint8_t hop_mark = 0;  // transmitted: of its burst
    transport::GroBatch arrival;
    // Received: what the observer is told. Transmitted packets were shown when
    // they were held.
    Delivered shown;
    uint32_t behind = 0;         // packets that are still to overtake it
    transport::Time latest = 0;  // it leaves then in any case

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
  // Tells the flight recorder.
  void Note(const transport::faults::Fate& fate, uint32_t qpn, uint32_t psn,
            transport::Time now);

  // --- Receive.
  void Filter(const transport::GroBatch& batch, transport::Time now);
  void EndRun(const transport::GroBatch& batch, Run* run);
  void Deliver(Alone packet);
  void ShowDelivered(const transport::ObservedPacket& packet,
                     const Delivered& delivered);
  // A packet of the batch that is not delivered, or not now.
  static transport::ObservedPacket Arrived(
      const transport::GroBatch& batch, std::span<const uint8_t> bytes,
      const transport::ObservedFault& fault, transport::Time now);

  // --- Transmit.
  void SendPlain(std::span<const uint8_t> bytes);
  void EndInnerBurst();
  void SendAlone(Alone packet);
  bool TrySendAlone(const Alone& packet);
  void SendPending();
  void ShowSent(std::span<const uint8_t> bytes, uint16_t index,
                uint8_t traffic_class, const transport::ObservedFault* fault);

  // --- Held packets.
  bool holds_some() const {
    return is_stalled_ || !delayed_.empty() || !behind_.empty() ||
           !stalled_.empty();
  }
  // Whether one more packet may be held. If not, it is dropped, and counted for
  // `rule`.
  bool HasRoom(size_t bytes, const transport::faults::Rule& rule);
  // Holds the packet as `fate` says; drops it if there is no room.
  void Hold(Alone packet, const transport::faults::Fate& fate,
            transport::Time now);
  void Leave(Alone packet);
  // A received packet that was held, and is lost: the link is down. One to be
  // sent was shown when it was held.
  void ShowLost(const Alone& packet);
  // Learns of stalls, those of other lanes too. What waits for the socket waits
  // for the end of the stall then.
  void CheckStall(transport::Time now);
  void HoldForStall(Alone packet);
  // Lets go what a stall held, if it is over.
  void EndStall(transport::Time now);
  // A packet of the queue pair has passed: those that were to be behind it may
  // leave.
  void Overtake(bool transmitted, uint32_t qpn);
  void ReleaseDue(transport::Time now);
  void SetTimer();

  const std::unique_ptr<Port> inner_;
  ProcessFaults& faults_;
  const Clock clock_;
  // Rules concern the packets of the burst that was begun last, or some are
  // still held.
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
  std::deque<Alone> pending_;                // sends are blocked

  std::multimap<transport::Time, Alone> delayed_;
  std::list<Alone> behind_;
  // All packets of both directions since the stall began, until Receive finds
  // that it is over: the later ones must not overtake them.
  std::deque<Alone> stalled_;
  FaultStall stall_;
  bool is_stalled_ = false;
  size_t held_bytes_ = 0;
  UniqueFd timer_;
  transport::Time timer_at_ = transport::kNever;
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULT_PORT_H_
