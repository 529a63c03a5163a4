// A queue pair: the parts shared by all transport services. Attributes, state
// machine, send and receive queue, admission of packets, congestion
// notification, events. Each service (rc/, uc/, ud/) derives from it;
// transport/queue_pairs.h creates one by type.
//
// No I/O, clocks or locks: see Endpoint. The calls are grouped below: getters,
// calls by the application, and calls by the endpoint (EndpointQp).
//
// The sinks and the memory that it calls may post to it and may destroy other
// queue pairs. They must not destroy it or call its other methods.
#ifndef TRANSPORT_QP_QUEUE_PAIR_H_
#define TRANSPORT_QP_QUEUE_PAIR_H_

#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "transport/base/burst.h"
#include "transport/base/counters.h"
#include "transport/base/flow.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/endpoint.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/qp/attributes.h"
#include "transport/qp/message_receiver.h"
#include "transport/qp/peer_port.h"
#include "transport/qp/qp_core.h"
#include "transport/qp/qp_type.h"

namespace transport {

class QueuePair : public EndpointQp {
 public:
  // Unregisters from its endpoint and its path.
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
  // (state_table.h) and all values, then changes all or nothing. Returns EINVAL
  // on error. ERR flushes both queues; RESET empties them without completions
  // and clears all state.
  int Modify(const QpAttributes& attributes, uint32_t mask, Time now);
  // After a failure of Modify or PostSend: the check that refused the call,
  // found by making the checks again. Empty if none refuses it now.
  std::string WhyModifyRefused(const QpAttributes& attributes,
                               uint32_t mask) const;
  std::string WhySendRefused(const SendRequest& request) const;

  // Sends from UDP source port `port` from now on (mlx5dv_modify_qp_udp_sport).
  // EOPNOTSUPP: there is no connection in RTS, or its peer is translated (NAT).
  int SetSourcePort(uint16_t port);

  // mlx5dv_dci_stream_id_reset(3): work requests of `stream` are executed
  // again. EINVAL: there is no such stream, it has not failed, or the state is
  // not RTS.
  virtual int ResetStream(uint16_t /*stream*/) { return EINVAL; }

  // mlx5dv_qp_cancel_posted_send_wrs(3): requests with `wr_id` that have not
  // begun become NOPs. `*count`: how many. EINVAL: not in SQD, or not RC.
  int CancelSends(uint64_t wr_id, int* count);

  // Manual page ibv_qp_attach_comp_cntr(3): `counter` counts the completions in
  // `kinds` (bits by CountedCompletion) until the queue pair is destroyed.
  // EINVAL (no kinds, or not in RESET or INIT), ENOTSUP (unknown kinds), EBUSY
  // (a kind has a counter).
  int AttachCounter(std::shared_ptr<CompletionCounter> counter, uint32_t kinds);

  // Queues a send work request. EINVAL (state, opcode, flags, lengths, too many
  // SGEs, inline too long), ENOMEM (queue full).
  int PostSend(const SendRequest& request, Time now);
  // For posting all or none of several requests: CheckSend returns what
  // PostSend would with an empty queue; SendRoom, how many requests fit.
  int CheckSend(const SendRequest& request) const;
  uint32_t SendRoom() const;
  // Queues a receive. EINVAL (also with an SRQ), ENOMEM. `now` is used in the
  // error state only, where the receive completes at once.
  int PostReceive(const ReceiveRequest& request, Time now);
  // An SRQ of this XRC target's domain is being destroyed; it is no longer
  // found.
  void ForgetSrq(const ReceiveSource* srq) { receiver_.ForgetSrq(srq); }
  // A CQ of this queue pair has overrun: enter ERR.
  void OnCqError(Time now);
  // A completion has failed by a fault on command: enter ERR.
  void FailOnCommand(Time now);

  // --- EndpointQp.
  bool OnPacket(const Received& received, Time now) final;
  bool WouldTake(const wire::PacketView& packet) const final;
  bool TakesDatagram(const wire::PacketView& packet) const final;
  uint32_t SharesBurstsTo() const final;
  const wire::IpAddress& peer_address() const final {
    return attributes().av.destination;
  }
  void SetVia(const Via& via) final;
  void OnTimer(Time now) final;
  void OnReceiveOverflow(Time now) final;
  Interests TakeInterests(Time now) final;
  Interests Transmit(Time now, const TransmitTurn& turn, Burst* burst) final;

 protected:
  // Registers with `endpoint`, which outlives it. State RESET. `transport`: its
  // bits in BTH opcodes. `number`: its number on the wire, if that is not
  // `config.qpn`, which completions and memory windows name.
  QueuePair(Endpoint& endpoint, const QpConfig& config,
            wire::Transport transport, uint32_t number);
  QueuePair(Endpoint& endpoint, const QpConfig& config,
            wire::Transport transport)
      : QueuePair(endpoint, config, transport, config.qpn) {}
  // A derived class calls this in its destructor, while its virtual methods
  // work.
  void EnterReset();

  // --- The transport service. It reports fatal errors by QpCore::Fail, which
  // the queue pair checks after each of these calls. The defaults are those of
  // a service without the half in question.

  // To RTR, with attributes().rq_psn; to RTS, with attributes().sq_psn.
  virtual void StartReceiving() {}
  virtual void StartSending(Time /*now*/) {}
  // Drain: to SQD. Resume: from SQD or SQE to RTS. Drained: nothing that was
  // begun is outstanding.
  virtual void Drain(Time /*now*/) {}
  virtual void Resume(Time /*now*/) {}
  virtual bool Drained() const { return true; }
  // The first request that has not begun. In SQD.
  virtual uint64_t FirstUnbegun() const { return core_.send_queue.tail(); }
  // attributes().max_dest_rd_atomic has changed in a receiving state.
  virtual void ResizeReadResources() {}
  // The service has failed. True if only one of its streams has, and the
  // service continues: the queue pair stays in its state.
  virtual bool Survives(Time /*now*/) { return false; }
  // To ERR: stops sending requests; the caller then flushes them. Pending
  // responses, in particular a NAK, are still transmitted.
  virtual void OnError() = 0;
  // To RESET: clears all state. The queues are empty.
  virtual void OnReset() = 0;

  // Adds the service's PSNs to the report.
  virtual void ReportService(QpReport* /*report*/) const {}

  // For services that keep more of a request than the send queue does:
  // CheckServiceFields validates it (0 or EINVAL), PrepareServiceFields
  // allocates before it is queued (0 or ENOMEM), StoreServiceFields stores it
  // afterwards.
  virtual int CheckServiceFields(const SendRequest& /*request*/) const {
    return 0;
  }
  virtual int PrepareServiceFields(const SendRequest& /*request*/) { return 0; }
  virtual void StoreServiceFields(const SendRequest& /*request*/) {}
  // A work request was queued in RTS or SQD.
  virtual void OnPosted(Time /*now*/) {}
  // Handle a packet whose source and P_Key are good. True if its PSN is within
  // the window: a request that is expected or slightly ahead, or a response to
  // something outstanding. Only such packets may change connection state (port,
  // IP ID, congestion). UD sources are not authenticated. By default it counts
  // the packet as one of another type.
  virtual bool OnRequest(const Received& received, Time now);
  virtual bool OnResponse(const Received& received, Time now);
  // A CNP arrived.
  virtual void OnNotification(Time /*now*/) {}
  // Whether it accepts this packet, of its own service, from any address. UD
  // always does.
  virtual bool AcceptsAnySource(const wire::PacketView& /*packet*/) const {
    return false;
  }
  // Whether the packet is the next request, or a response to something
  // outstanding.
  virtual bool IsExpected(const wire::PacketView& /*packet*/) const {
    return false;
  }
  // Whether this is the first packet of a peer's connection, and no packet so
  // far was expected. It proves the peer's port, even if another port is
  // pinned.
  virtual bool IsBeginning(const wire::PacketView& /*packet*/) const {
    return false;
  }
  // May return true only if OnRequest or OnResponse would.
  virtual bool IsWithinWindow(const wire::PacketView& packet) const {
    return IsExpected(packet);
  }
  // attributes().av has changed while drained: there may be another peer.
  virtual void OnOtherPath() {}
  // Drops packets that were buffered out of order: they came from a port that
  // is not the peer's.
  virtual void ForgetOutOfOrder() {}
  virtual void OnServiceTimer(Time /*now*/) {}
  // Like TakeInterests, without the queue pair's own interests.
  virtual Interests TakeServiceInterests(Time /*now*/) { return {}; }
  // Adds packets to `burst`. Returns the same as TakeServiceInterests, except
  // on failure.
  virtual Interests TransmitService(Time now, const TransmitTurn& /*turn*/,
                                    Burst* /*burst*/) {
    return TakeServiceInterests(now);
  }

  // In TransmitService, for ACKs only: lets the other half of the application's
  // connections transmit its answers first (Endpoint::TransmitAnswers).
  void TransmitAnswers(Time now, Burst* burst);

  // Derives flow and path from attributes().av. May throw std::bad_alloc, but
  // not if that path has a member already.
  void JoinPath();

  // Handles what the service reported in QpCore. True if the state has changed.
  bool ActOnFindings(Time now) {
    return core_.has_findings && ActOnFindingsNow(now);
  }

  // Whether requests are sent in this state.
  bool sends() const {
    return state() == QpState::kRts || state() == QpState::kSqd;
  }
  bool has_service_fields() const {
    return TraitsOf(config().type).has_request_fields();
  }
  // Without a connection: any source may send.
  bool is_datagram() const { return core_.transport == wire::Transport::kUd; }
  Endpoint& endpoint() { return endpoint_; }
  QpCore& core() { return core_; }
  const QpCore& core() const { return core_; }
  MessageReceiver& receiver() { return receiver_; }

 private:
  // At most one CNP per queue pair in this time.
  static constexpr Time kCnpInterval = Path::kNotificationInterval;

  bool ActOnFindingsNow(Time now);
  bool Offers(SendOpcode opcode) const;
  // Adds the queue pair's own interests.
  void AddInterests(Interests* want) {
    if (cnp_due_) want->wants |= Interests::kAcks;
    if (received_data_) want->wants |= Interests::kReceivedData;
    received_data_ = false;
    core_.attributes.sq_draining = state() == QpState::kSqd && !Drained();
  }
  void SetState(QpState to, Time now);
  // Flushes both queues and raises `event`, if any. No effect in ERR.
  void EnterError(Time now, std::optional<QpEvent> event = std::nullopt);
  void RaiseEvent(QpEvent event);
  void FlushSends(Time now);
  // Also raises kLastWqeReached, once, if it uses an SRQ (or is an XRC target).
  void FlushReceives(Time now);

  // Steps of Modify (queue_pair_modify.cc).
  // The attribute (QpAttrMask) whose value is refused; 0: none.
  uint32_t BadAttribute(const QpAttributes& attributes, uint32_t mask) const;
  // Attributes may not change while requests are in flight (IBA vol. 1,
  // 10.3.1.6).
  bool ChangesInFlight(uint32_t mask, QpState to) const;
  void Assign(const QpAttributes& attributes, uint32_t mask);
  void LeavePath();

  // Checks of PostSend and CheckSend that the send queue cannot make. 0 or
  // EINVAL.
  int CheckRequest(const SendRequest& request) const;
  bool Admit(const Received& received, Time now);
  // Whether the state permits the packet.
  bool StateTakes(const wire::PacketView& packet) const;
  static bool PkeyMatches(const wire::PacketView& packet) {
    return packet.pkey() == wire::kDefaultPkey ||
           wire::PkeysMatch(packet.pkey(), wire::kDefaultPkey);
  }
  // Handles a packet that is not from a peer's address.
  bool AdmitElsewhere(const wire::PacketView& packet);
  // Handles a packet whose port is not the pinned one.
  bool AdmitPort(const Received& received, Time now);
  void NoteCongestion(const Received& received, Time now);
  // Marks a CNP to the peer as due, at most one per kCnpInterval; true if it
  // did. `pkey`: that of the marked packet (A17.9.3).
  bool RequestCnp(uint16_t pkey, Time now);
  void TransmitCnp(Burst* burst);

  Endpoint& endpoint_;
  QpCore core_;
  MessageReceiver receiver_;
  std::optional<Flow> flow_;    // to the peer, from RTR on
  bool received_data_ = false;  // since the last TakeInterests
  bool cnp_due_ : 1 = false;
  bool communication_established_ : 1 = false;
  bool last_wqe_reported_ : 1 = false;
  bool flushing_sends_ : 1 = false;
  uint16_t cnp_pkey_ = wire::kDefaultPkey;  // P_Key of the due CNP
  Time last_cnp_ = std::numeric_limits<Time>::min() / 2;
  // Last, so that members of derived classes use its padding.
  [[no_unique_address]] PeerPort peer_port_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_QUEUE_PAIR_H_
