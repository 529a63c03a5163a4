// A queue pair of the device: the transport's queue pair, its number, its lane,
// and the objects that it uses.
#ifndef RXE_USER_OBJECTS_QUEUE_PAIR_H_
#define RXE_USER_OBJECTS_QUEUE_PAIR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rxe_user/engine/lane.h"
#include "rxe_user/faults/fault_targets.h"
#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/queue_memory.h"
#include "rxe_user/objects/shared_receive_queue.h"
#include "rxe_user/observe/tracer.h"
#include "transport/queue_pairs.h"
#include "transport/raw/raw_packet_queue_pair.h"
#include "transport/raw/rx_hash.h"

namespace rxe_user {

// Thread: any. The transport's queue pair is guarded by its lane's lock.
//
// An idle connection has to be small: members that only some services need are
// in ServiceState.
class QueuePair final : public transport::EventSink, private FaultedQueuePair {
  // Create alone can construct one.
  struct Passkey {
    explicit Passkey() = default;
  };

 public:
  struct Config {
    transport::QpType type = transport::QpType::kRc;
    ProtectionDomain* pd = nullptr;      // null: XRC target
    CompletionQueue* send_cq = nullptr;  // null: XRC target, or rx_hash
    CompletionQueue* recv_cq = nullptr;  // the same
    SharedReceiveQueue* srq = nullptr;   // may be null
    XrcDomain* xrc = nullptr;            // XRC target only
    // kDct only: connects must name it.
    uint64_t dct_access_key = 0;
    // kRc only: transport::QpConfig::stops_at_data_errors.
    bool stops_at_data_errors = false;
    // kDci only: transport::QpConfig::dci_errored_streams.
    uint16_t dci_errored_streams = 0;
    // Raw packet queue pairs that receive into work queues. The work queues
    // outlive it; it has no completion queues then.
    std::shared_ptr<const transport::RxHash> rx_hash;
    uint32_t max_tso_header = 0;  // bytes; UD and raw packets only
    transport::QpCapacity capacity;
    bool signal_all = false;
    // Where its events go; null: XRC target (see Listen).
    EventQueue* async = nullptr;
    void* element = nullptr;          // what events name
    EventAccount* account = nullptr;  // of events; outlives the queue pair
  };

  // Everything that `wanted` points to outlives the queue pair. A DCI (kDci)
  // has no receives, so `recv_cq` may be null and `srq` is ignored; a DCT
  // (kDct) has no sends, so `send_cq` may be null. Its number is valid from
  // creation on.
  //
  // 0; EINVAL (capacity beyond limits.h; a DCI with receives, a DCT without SRQ
  // or receive completion queue); EOPNOTSUPP (type); ENOMEM; AllocateQpn's
  // error, which a line on stderr explains.
  static int Create(const Config& wanted, std::shared_ptr<QueuePair>* out);
  // Ends all traffic. Nothing completes any more, and completions that were not
  // polled are dropped, as by most hardware.
  ~QueuePair() override;

  QueuePair(Passkey, const Config& config, uint32_t qpn, QueueMemory queues);

  uint32_t qpn() const { return qpn_; }
  int lane_index() const { return lane_index_; }
  // The type at creation.
  transport::QpType type() const { return type_; }
  ProtectionDomain* pd() const { return pd_; }
  const transport::QpCapacity& capacity() const {
    return transport_->config().capacity;
  }
  bool signal_all() const { return signal_all_; }
  // Bytes; 0: no segmentation.
  uint32_t max_tso_header() const {
    return service_state_ != nullptr ? service_state_->max_tso_header : 0;
  }

  // ibv_modify_qp(3). The caller sets `destination`, `gid_index` and the GRH's
  // fields of the address vectors; this sets the rest. A transition to RESET
  // also drops completions that were not polled. 0 or errno.
  int Modify(const transport::QpAttributes& attributes, uint32_t mask);
  // After a failure of Modify: the check that refused it; empty: not known.
  std::string WhyModifyRefused(const transport::QpAttributes& wanted,
                               uint32_t mask);
  transport::QpAttributes Query();
  transport::QpReport Report();
  // mlx5dv_modify_qp_udp_sport(3). 0; EINVAL (port 0); EOPNOTSUPP (as
  // transport::QueuePair); EADDRINUSE, EACCES.
  int SetSourcePort(uint16_t port);
  // mlx5dv_dci_stream_id_reset(3). 0 or errno, as transport::QueuePair.
  int ResetStream(uint16_t stream);
  // transport::QueuePair::CancelSends.
  int CancelSends(uint64_t wr_id, int* count);
  // ibv_qp_attach_comp_cntr(3): `kinds` by transport::CountedCompletion. 0 or
  // errno, as transport::QueuePair.
  int AttachCounter(std::shared_ptr<transport::CompletionCounter> counter,
                    uint32_t kinds);

  // --- Raw packets: ibv_create_flow(3).

  // Where flow rules deliver frames; null for other types.
  transport::FrameDestination* frame_destination() { return raw(); }
  // Flow rules that deliver to it. AddFlow and RemoveFlow: raw packets only.
  int flows() const {
    return service_state_ != nullptr ? service_state_->flows.load() : 0;
  }
  void AddFlow() { ++service_state_->flows; }
  void RemoveFlow() { --service_state_->flows; }

  // --- Multicast: ibv_attach_mcast(3). 0; EINVAL (the type cannot join,
  // `group` is not a multicast address, or it is not attached); the error of
  // joining. Attaching twice is the same as once.
  int AttachMulticast(const wire::IpAddress& group);
  int DetachMulticast(const wire::IpAddress& group);
  bool AttachedToAny();

  // --- XRC targets: several handles may share one.
  struct Listener {
    EventQueue* async = nullptr;
    void* element = nullptr;
    EventAccount* account = nullptr;
  };
  // Events go to each listener. Throws bad_alloc.
  void Listen(const Listener& listener);
  void StopListening(const EventAccount* account);
  // An SRQ of the domain is about to be destroyed. The domain no longer finds
  // it.
  void ForgetSrq(const transport::ReceiveSource* srq);

  // The CQ has overrun. No lane's lock held.
  void OnCqError();
  // --- Faults on command. Take the lane's lock.
  // To the error state, if a completion has failed.
  void FailOnCommand();
  void RevealLate();

  // Posts work requests while it holds the lane's lock. The destructor
  // transmits them.
  class Posting {
   public:
    explicit Posting(QueuePair& qp);
    ~Posting();
    Posting(const Posting&) = delete;
    Posting& operator=(const Posting&) = delete;

    // 0 or errno, as transport::QueuePair; EFAULT: inline data is not readable;
    // the error of choosing a UDP source port for a datagram.
    int Send(const transport::SendRequest& request);
    // All of them or none.
    int SendAll(std::span<const transport::SendRequest> requests);
    int Receive(const transport::ReceiveRequest& request);
    // After a failure of Send: the check that refused it; empty: not known.
    std::string WhySendRefused(const transport::SendRequest& request) const {
      return qp_.transport_->WhySendRefused(request);
    }

   private:
    int SendComplete(const transport::SendRequest& request);
    int SendInline(const transport::SendRequest& request);
    int SendSegmented(const transport::SendRequest& request);
    // The time of the first post that needs one. Receives do not: reading the
    // clock is a large part of their cost.
    transport::Time Now();

    QueuePair& qp_;
    Lane::Guard guard_;
    std::optional<transport::Time> now_;
    PostedWork sends_;
  };

  // --- transport::EventSink; called with the lane's lock held.
  void OnQpEvent(transport::QueuePair& qp, transport::QpEvent event) override;
  void OnRareEvent(const transport::RareEvent& event) override;
  std::optional<uint8_t> Refuse(
      const transport::RequestToExecute& request) override;

 private:
  // Members that only datagrams, raw packets and XRC targets need.
  struct ServiceState {
    // The result of the last ChoosePort; port 0: none.
    struct ChosenPort {
      wire::IpAddress source;
      uint32_t flow_label = 0;
      uint32_t remote_qpn = 0;
      uint16_t port = 0;
      uint64_t epoch = 0;  // Engine::SourcePortEpoch
    };

    XrcDomain* xrc = nullptr;
    std::shared_ptr<const transport::RxHash> rx_hash;
    uint32_t max_tso_header = 0;
    std::atomic<int> flows{0};
    // --- Guarded by the lane's lock.
    transport::RawPacketQueuePair* raw = nullptr;  // transport_, if it is one
    ChosenPort chosen_port;
    std::vector<Listener> listeners;
  };

  // In front of the completion queues, if the process is recorded.
  struct Traced {
    TracedCompletions sends;
    TracedCompletions receives;
  };

  // In front of these, if fault rules apply to completions.
  struct Faulted;

  // --- FaultedQueuePair
  void OnEventOnCommand(const transport::faults::Rule& rule,
                        bool received) override;
  void OnTransferFault(const transport::faults::Rule& rule, bool received,
                       uint32_t number) override;

  // To every receiver of this queue pair's events.
  void PostEvent(int type);
  // A rule has hit a completion. The lane's lock is held.
  void OnCompletionFault(const transport::faults::Rule& rule,
                         const transport::Completion& completion);
  // For the flight recorder and the recording. The lane's lock is held.
  void Record(const transport::RareEvent& event);
  void Record(transport::RareEventKind kind, uint32_t value);  // now
  bool has_cqs() const { return send_cq_ != nullptr; }
  XrcDomain* xrc() const {
    return service_state_ != nullptr ? service_state_->xrc : nullptr;
  }
  transport::RawPacketQueuePair* raw() const {
    return service_state_ != nullptr ? service_state_->raw : nullptr;
  }
  // Registers with the completion queues. Throws bad_alloc, and then neither
  // they nor the lane know the queue pair.
  void AttachToCqs();
  // The lane's lock is held.
  void ForgetCompletions();
  // Sets the UDP source port of packets to `remote_qpn`. Queue pairs of kinds
  // that are in one lane share it, so that their ACKs and requests share
  // bursts. Lane locked. 0 or errno.
  int ResolvePort(uint32_t remote_qpn, transport::AddressVector* av);
  // Completes the address of a datagram to `remote_qpn`. 0 or errno.
  int ChoosePort(uint32_t remote_qpn, transport::AddressVector* av);

  Context& context() {
    return pd_ != nullptr ? pd_->context : xrc()->context();
  }

  // As Config.
  ProtectionDomain* const pd_;
  CompletionQueue* const send_cq_;
  CompletionQueue* const recv_cq_;
  SharedReceiveQueue* const srq_;
  EventQueue* const async_;
  void* const element_;
  EventAccount* const account_;

  const uint32_t qpn_;
  const uint16_t lane_index_;
  const transport::QpType type_;
  const bool signal_all_;
  Lane& lane_;
  const std::unique_ptr<ServiceState> service_state_;  // null: none
  std::unique_ptr<Traced> traced_;                     // null: not recorded
  std::unique_ptr<Faulted> faulted_;                   // null: no such rules
  // Memory of the queues, from the application's allocator; null: the
  // transport's own.
  QueueMemory queues_;
  // Guarded by the lane's lock. Null during destruction.
  std::unique_ptr<transport::QueuePair> transport_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_QUEUE_PAIR_H_
