// A queue pair: what all transport services have in common. Attributes and the
// state machine, send and receive queue, admission of packets, congestion
// notification, events. A service (rc/, uc/, ud/) derives from it;
// transport/queue_pairs.h makes one by type.
//
// Nothing here does I/O, reads a clock or takes a lock: see Endpoint. The calls
// come in three kinds, kept apart below: getters, calls by the application,
// and those of EndpointQp by the endpoint.
//
// The sinks and memory that it calls back may post to it and may destroy other
// queue pairs, but not the one that is calling, nor call its other methods.
#ifndef TRANSPORT_QP_QUEUE_PAIR_H_
#define TRANSPORT_QP_QUEUE_PAIR_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "transport/base/burst.h"
#include "transport/base/counters.h"
#include "transport/base/flow.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/endpoint/endpoint.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/endpoint/path.h"
#include "transport/qp/attributes.h"
#include "transport/qp/message_receiver.h"
#include "transport/qp/peer_port.h"
#include "transport/qp/qp_core.h"
#include "transport/qp/qp_type.h"

namespace transport {

class QueuePair : public EndpointQp {
 public:
  // Forgotten by its endpoint, and by its path, from here on.
  ~QueuePair() override;

  // --- Getters.
  const QpConfig& config() const { return core_.config; }
  QpState state() const { return core_.attributes.state; }
  const QpAttributes& attributes() const { return core_.attributes; }
  const QpCounters& counters() const { return core_.counters; }
  const Path* path() const { return core_.path; }  // null before RTR
  QpReport Report() const final;

  // --- Calls by the application. All return 0 or an errno value.

  // Manual page ibv_modify_qp(3): checks `mask` against the transition table
  // (state_table.h) and every value against its range, then changes all or
  // nothing. EINVAL. To ERR flushes both queues; to RESET empties them without
  // completions and forgets everything.
  int Modify(const QpAttributes& attributes, uint32_t mask, Time now);

  // Manual page ibv_qp_attach_comp_cntr(3): `counter` is told of the
  // completions in `kinds`, bits by CountedCompletion, as long as the queue
  // pair lives. EINVAL (no kinds, or not in RESET or INIT), ENOTSUP (kinds
  // that there are not), EBUSY (kinds that another counter has).
  int AttachCounter(std::shared_ptr<CompletionCounter> counter, uint32_t kinds);

  // Queues one send work request. EINVAL (state, opcode, flags, lengths, too
  // many SGEs, inline too long), ENOMEM (queue full).
  int PostSend(const SendRequest& request, Time now);
  // What PostSend would answer if there were room, and how many requests there
  // is room for: so that several are posted together or not at all.
  int CheckSend(const SendRequest& request) const;
  uint32_t SendRoom() const;
  // Queues one receive. EINVAL, ENOMEM; EINVAL when an SRQ is attached. `now`
  // counts in the error state only, where it completes at once.
  int PostReceive(const ReceiveRequest& request, Time now);
  // An SRQ of the domain of this XRC target goes, and is not found any more.
  void ForgetSrq(const ReceiveSource* srq) { receiver_.ForgetSrq(srq); }
  // A CQ of this queue pair has overrun or been lost: to the error state.
  void OnCqError(Time now);

  // --- EndpointQp.
  bool OnPacket(const Received& received, Time now) final;
  bool WouldTake(const wire::PacketView& packet) const final;
  bool TakesDatagram(const wire::PacketView& packet) const final;
  const wire::IpAddress& peer_address() const final {
    return attributes().av.destination;
  }
  void GoBy(const Via& via) final;
  void OnTimer(Time now) final;
  void OnReceiveOverflow(Time now) final;
  Interests TakeInterests(Time now) final;
  Interests Transmit(Time now, const TransmitTurn& turn, Burst* burst) final;

 protected:
  // Registers itself with `endpoint`, which outlives it. State RESET.
  // `transport`: what its packets carry in BTH.
  QueuePair(Endpoint& endpoint, const QpConfig& config,
            wire::Transport transport);
  // What the destructor of a service calls while it is still whole.
  void EnterReset();

  // --- The transport service. A part of it that cannot go on calls
  // QpCore::Fail; the queue pair looks at that after each of these.

  // To RTR, with attributes().rq_psn; to RTS, with attributes().sq_psn.
  virtual void StartReceiving() = 0;
  virtual void StartSending(Time now) = 0;
  // To SQD, and from there, or from SQE, to RTS. Drained: nothing that was
  // begun is outstanding.
  virtual void Drain(Time now) = 0;
  virtual void Resume(Time now) = 0;
  virtual bool Drained() const = 0;
  // attributes().max_dest_rd_atomic has changed while it receives.
  virtual void ResizeReadResources() {}
  // To ERR: sends no more requests. Its work requests are flushed next. What
  // the responder owes its peer, a NAK above all, is still transmitted.
  virtual void OnError() = 0;
  // To RESET: forgets everything; the queues are empty.
  virtual void OnReset() = 0;

  // Its part of the report: PSNs.
  virtual void ReportService(QpReport* report) const = 0;

  // Services whose requests have more than the send queue keeps: what else is
  // wrong with one (0 or EINVAL); that it is about to be queued, for what takes
  // memory (0 or ENOMEM); and that it has just been.
  virtual int CheckParticulars(const SendRequest& /*request*/) const {
    return 0;
  }
  virtual int PrepareParticulars(const SendRequest& /*request*/) { return 0; }
  virtual void TakeParticulars(const SendRequest& /*request*/) {}
  // A work request has been queued, in RTS or SQD.
  virtual void OnPosted(Time now) = 0;
  // Packets whose source and P_Key have been checked. True if their PSN is
  // within the window: a request that is expected or a little ahead, a response
  // to something outstanding. Only of such a packet anything is learned that
  // goes beyond its own answer. A datagram's source is anybody.
  virtual bool OnRequest(const Received& received, Time now) = 0;
  virtual bool OnResponse(const Received& received, Time now) = 0;
  // A CNP: the peer asks for less.
  virtual void OnNotification(Time /*now*/) {}
  // Whether the peer would send this now: the request that is next, or a
  // response to something outstanding.
  virtual bool IsExpected(const wire::PacketView& packet) const = 0;
  // Expected, and what the peer begins with, when nothing that has come so far
  // was: whoever sent that, from what port ever, this is the peer's.
  virtual bool IsBeginning(const wire::PacketView& /*packet*/) const {
    return false;
  }
  // True only if OnRequest or OnResponse would return true.
  virtual bool IsWithinWindow(const wire::PacketView& packet) const {
    return IsExpected(packet);
  }
  // attributes().av has changed while it was drained: the peer may be another
  // one.
  virtual void OnOtherPath() {}
  // The port that packets beyond a gap came from is not the peer's.
  virtual void ForgetOutOfOrder() {}
  virtual void OnServiceTimer(Time now) = 0;
  // As TakeInterests, but for what the queue pair knows itself.
  virtual Interests TakeServiceInterests(Time now) = 0;
  // Adds packets to `burst`. Returns as TakeServiceInterests, unless it fails.
  virtual Interests TransmitService(Time now, const TransmitTurn& turn,
                                    Burst* burst) = 0;

  // After calls of the service: what it has found. True if it has failed: the
  // state is another one.
  bool ActOnFindings(Time now) {
    return core_.has_findings && ActOnFindingsNow(now);
  }

  // Requests are sent in these states.
  bool sends() const {
    return state() == QpState::kRts || state() == QpState::kSqd;
  }
  bool has_particulars() const {
    return TraitsOf(config().type).has_request_fields();
  }
  // Without a connection: packets come from everywhere.
  bool is_datagram() const { return core_.transport == wire::Transport::kUd; }
  Endpoint& endpoint() { return endpoint_; }
  QpCore& core() { return core_; }
  const QpCore& core() const { return core_; }
  MessageReceiver& receiver() { return receiver_; }

 private:
  // At most one congestion notification packet per queue pair in this time.
  static constexpr Time kCnpInterval = Path::kNotificationInterval;

  bool ActOnFindingsNow(Time now);
  bool Offers(SendOpcode opcode) const;
  // What the queue pair itself wants.
  void AddInterests(Interests* want) {
    if (cnp_due_) want->wants |= Interests::kAcks;
    if (received_data_) want->wants |= Interests::kReceivedData;
    received_data_ = false;
    core_.attributes.sq_draining = state() == QpState::kSqd && !Drained();
  }
  // Flushes both queues and raises `event`, if any. Harmless when there
  // already.
  void EnterError(Time now, std::optional<QpEvent> event = std::nullopt);
  void RaiseEvent(QpEvent event);
  void FlushSends(Time now);
  // With an SRQ, or SRQs (XRC target), raises kLastWqeReached, once.
  void FlushReceives(Time now);

  // Modify, in parts (queue_pair_modify.cc).
  int CheckValues(const QpAttributes& attributes, uint32_t mask,
                  QpState to) const;
  void Assign(const QpAttributes& attributes, uint32_t mask);
  // Takes attributes().av: flow and path.
  void JoinPath();
  void LeavePath();

  // What PostSend and CheckSend answer that no send queue knows. 0 or EINVAL.
  int CheckRequest(const SendRequest& request) const;
  bool Admit(const Received& received, Time now);
  // The state takes it, and its P_Key is that of the partition.
  bool StateTakes(const wire::PacketView& packet) const;
  static bool PkeyMatches(const wire::PacketView& packet) {
    return packet.bth().pkey == wire::kDefaultPkey ||
           wire::PkeysMatch(packet.bth().pkey, wire::kDefaultPkey);
  }
  // From another port than the one that is known to be the peer's.
  bool AdmitPort(const Received& received, Time now);
  void NoteCongestion(const Received& received, Time now);
  // A CNP is due to the peer, at most one in kCnpInterval: whether it is.
  // `pkey`: that of the packet that was marked (A17.9.3).
  bool RequestCnp(uint16_t pkey, Time now);
  void TransmitCnp(Burst* burst);

  Endpoint& endpoint_;
  QpCore core_;
  MessageReceiver receiver_;
  std::optional<Flow> flow_;  // to the peer, from RTR on
  PeerPort peer_port_;
  Time last_cnp_ = std::numeric_limits<Time>::min() / 2;
  uint16_t cnp_pkey_ = wire::kDefaultPkey;  // of the one that is due
  bool cnp_due_ = false;
  bool communication_established_ = false;
  bool last_wqe_reported_ = false;
  bool flushing_sends_ = false;
  bool received_data_ = false;  // since the last TakeInterests
};

}  // namespace transport

#endif  // TRANSPORT_QP_QUEUE_PAIR_H_
