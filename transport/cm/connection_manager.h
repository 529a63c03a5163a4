// The communication manager (InfiniBand specification chapter 12): sets up and
// releases connections, and resolves service IDs, by MADs between queue pairs
// 1. The state machine is that of 12.9.
//
// No I/O and no clock. Methods come in four kinds: calls by the application,
// inputs (OnMad, OnTimer), outputs (PollTransmit, PollEvent, NextTimeout:
// drained after calls and inputs), and getters. One thread at a time. Not on
// the data path.
//
// Memory: Listen, Connect, Resolve and NotifyEstablished throw std::bad_alloc,
// without any change. No other call or input throws, since a connection
// allocates all its memory when it is created. Without memory a request is
// dropped, as if lost on the network. So is any input that needs more than a
// few outputs while they are not drained; an expired timeout then waits until
// they are.
//
// Trust: a message for a connection counts if it comes from the peer's address
// and carries both communication IDs, which are random. Other senders get at
// most one MAD of the same size in reply, at a limited rate.
#ifndef TRANSPORT_CM_CONNECTION_MANAGER_H_
#define TRANSPORT_CM_CONNECTION_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/cm/answer_limit.h"
#include "transport/cm/connection.h"
#include "transport/cm/listeners.h"
#include "transport/cm/reserved_queue.h"
#include "transport/cm/types.h"
#include "wire/cm.h"

namespace transport::cm {

class ConnectionManager {
 public:
  // `random` must outlive it.
  ConnectionManager(const Config& config, RandomSource* random);
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // --- Calls of the application: listeners.
  // kServiceInUse: another listener has the same service ID, mask and address.
  Result Listen(const ListenOptions& options, ListenerId* id);
  // Requests that it has delivered stay with the application.
  Result StopListening(ListenerId id);

  // --- Connections. Private data is padded with zeros to the message's field;
  // longer data is kInvalid.
  //
  // Active side: sends a REQ. kQpnInUse: the queue pair has a connection.
  Result Connect(const ConnectOptions& options, Time now, CmId* id);
  // Passive side, after kRequest: sends the REP. Fills in communication IDs
  // and, for XRC, the field of the queue pair (`rep.local_qpn`). `ece_options`:
  // see ConnectOptions.
  Result Accept(CmId id, const wire::CmRep& rep, Time now,
                uint32_t ece_options = 0);
  // After kRequest or kServiceRequest: the application has seen the request,
  // which frees its slot in the listener's backlog. May be called some time
  // after PollEvent.
  Result Seen(CmId id);
  // After kRequest or kReply.
  Result Reject(CmId id, const RejectOptions& options, Time now);
  // After kRequest or kReply: the answer will take up to `service_timeout`
  // (5-bit exponent). Sends an MRA. Without this call, one is sent when the
  // peer repeats the request.
  Result Delay(CmId id, uint8_t service_timeout);
  // Active side, after kReply: sends the RTU.
  Result Establish(CmId id, std::span<const uint8_t> private_data);
  // Passive side: data has arrived, so the connection is established although
  // the RTU was lost (12.9.6, COMM_EST).
  Result NotifyEstablished(CmId id);
  // If established: sends a DREQ. After the peer's DREQ: sends the DREP.
  Result Disconnect(CmId id, std::span<const uint8_t> private_data, Time now);
  // In any state: rejects, disconnects or abandons the connection. No more
  // events follow; those not yet polled are dropped. The connection manager
  // itself keeps what timewait needs.
  Result Destroy(CmId id, Time now);

  // Sends at once the requests that were held back until peers answer others.
  // For an application that is about to exit.
  void SendAllHeldBack(Time now);

  // --- Service ID resolution (12.11).
  Result Resolve(const ResolveOptions& options, Time now, CmId* id);
  // After kServiceRequest. Fills in request ID and service ID.
  Result AnswerService(CmId id, const wire::CmSidrRep& rep, Time now,
                       uint32_t ece_options = 0);

  // --- Inputs. `now` does not go backwards.
  void OnMad(const IncomingMad& mad, Time now);
  // The system reports that no process receives MADs at the peer: `mad` was not
  // delivered. A request is retransmitted soon, since a process may be about to
  // listen.
  void OnUndelivered(const OutgoingMad& mad, Time now);
  // Runs what is due by `now`. Early calls have no effect.
  void OnTimer(Time now);

  // --- Outputs.
  bool PollTransmit(OutgoingMad* out);
  bool PollEvent(Event* out);
  bool HasEvents() const { return !events_.empty(); }
  // Time of the next OnTimer call; kNever for none.
  Time NextTimeout() const;

  // --- Getters.
  // Absent for IDs that the application does not own.
  std::optional<State> state(CmId id) const;
  // Connections and resolutions in memory, including those in timewait and
  // those destroyed but not finished.
  size_t size() const { return connections_.size(); }
  size_t half_open() const { return half_open_; }
  // Connections that peers may consider established: from the REP until either
  // end disconnects. Excludes peers with translated addresses, to which other
  // processes cannot send.
  std::vector<ConnectedPeer> Connected() const;
  // Absent if `id` is not one of them.
  std::optional<ConnectedPeer> Connected(CmId id) const;
  // The peer's address of any connection in size(); absent for another ID.
  std::optional<wire::IpAddress> PeerOf(CmId id) const;
  // Whether size() counts any connection with this local address.
  bool Uses(const wire::IpAddress& local) const;
  const Counters& counters() const { return counters_; }

 private:
  // --- connection_manager.cc
  Connection* Find(CmId id) const;
  // Only connections that the application owns.
  Connection* FindOwned(CmId id) const;
  // Throws std::bad_alloc, without any change.
  Connection& New(const wire::IpAddress& local, const wire::IpAddress& remote,
                  Time now);
  void Remove(Connection& c);
  // Changes the state and the counts that depend on it.
  void Enter(Connection& c, State state);
  void SetDeadline(Connection& c, Time deadline);
  // From `at` on a newer request may replace `c`; kNever: none may.
  void SetYielding(Connection& c, Time at);
  // The connection that has been yielding for the longest time, of all or of a
  // peer; null if none yields.
  Connection* OldestYielding(Time now) const;
  Connection* OldestYielding(const wire::IpAddress& peer, Time now) const;
  void SetHalfOpen(Connection& c, bool half_open);
  void SetRemembered(Connection& c, bool remembered);
  // Enter the connection into an index. False if another one has that key.
  bool KeepRemoteId(Connection& c);
  bool KeepRemoteQp(Connection& c);
  // The QPN belongs to the device `c.local_ca_guid`.
  bool KeepLocalQpn(Connection& c, uint32_t qpn);
  void ForgetQps(Connection& c);
  void ForgetAll(Connection& c);
  // Requires a reserved event.
  void Emit(EventKind kind, const Connection& c, const wire::CmView* mad);
  // Keeps a connection that the application destroyed, up to the limit.
  void KeepDestroyed(Connection& c, Time now);
  // Enters kIdle and deletes the connection if it is not owned: `c` may be
  // gone.
  void End(Connection& c);
  // Keeps the answer to duplicates for `hold`.
  void EnterTimeWait(Connection& c, Time hold, Time now);
  // A refused or withdrawn request, kept for its duplicates within the limits;
  // else it ends.
  void EnterRemembered(Connection& c, Time hold, Time now);
  // A refused request: keeps its REJ.
  void EnterRefused(Connection& c, Time now);
  // A request that the peer withdrew before the application answered.
  void EnterWithdrawn(Connection& c, Time now);
  // The application has answered too late, or destroyed the request.
  void LeaveWithdrawn(Connection& c);

  // --- cm_send.cc
  // Without memory the message is lost and counted.
  void Queue(const wire::IpAddress& local, const wire::IpAddress& remote,
             const Via& via, const Mad& mad);
  void Queue(const Connection& c, const Mad& mad);
  // Stores the message for retransmission and duplicates.
  template <typename M>
  void Keep(Connection& c, const wire::CmTransaction& transaction,
            const M& message);
  // Stores and sends the message.
  template <typename M>
  void Send(Connection& c, const wire::CmTransaction& transaction,
            const M& message);
  void Retransmit(Connection& c);
  void SendMra(Connection& c);
  void SendRej(Connection& c, wire::CmAnswered answered,
               const RejectOptions& options);
  void KeepRej(Connection& c, wire::CmAnswered answered,
               const RejectOptions& options);
  // REJ with reason kTimeout and our CA GUID, by which the peer finds the
  // connection. It responds to no message (12.6.7.1), like the kernel's.
  void KeepTimeoutRej(Connection& c);
  void SendTimeoutRej(Connection& c);
  void SendDrep(Connection& c, std::span<const uint8_t> private_data);
  void SendDreq(Connection& c, std::span<const uint8_t> private_data, Time now);
  // Starts the retransmission timer of a message that needs an answer.
  void StartRetries(Connection& c, Time now);
  // Starts the timers of the first REP: when to remind, and when to yield.
  void AwaitRtu(Connection& c, Time now);
  // Rate limit of answers without a connection, by the address that they are
  // sent to: a translated request may name any other sender.
  bool MayAnswer(const IncomingMad& in, Time now);
  // Rate limit of retransmissions to a peer that has been silent since its
  // request, by the same address.
  bool MayRetransmit(const Connection& c, Time now);
  // False unless the last message was a REJ. It is sent again within the rate
  // limit.
  bool RepeatRej(Connection& c, const IncomingMad& in, Time now);
  void AnswerRej(const IncomingMad& in, const wire::CmView& mad,
                 wire::CmAnswered answered, wire::CmRejectReason reason,
                 Time now);
  void AnswerDrep(const IncomingMad& in, const wire::CmView& mad, Time now);

  // --- cm_receive.cc
  // The connection that a message names; null, and counted, if there is none,
  // it is kIdle, or it belongs to another peer.
  Connection* FindFor(const IncomingMad& in, const wire::CmView& mad);
  void OnMessage(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnReq(const IncomingMad& in, const wire::CmView& mad, Time now);
  // The peer has forgotten this connection and uses its queue pair in a newer
  // one: the new request is rejected and this connection ends too (12.9.8.3.1).
  // `in` is the message that shows it; it must come from the address of the
  // connection's peer. `id` may be 0.
  void DisconnectStale(CmId id, const IncomingMad& in, Time now);
  void OnDuplicateReq(Connection& c, const IncomingMad& in,
                      const wire::CmView& mad, const wire::CmReq& req,
                      Time now);
  void OnNewReq(const IncomingMad& in, const wire::CmView& mad,
                const wire::CmReq& req, Time now);
  void OnMra(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnRej(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnRep(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnFirstRep(Connection& c, const IncomingMad& in, const wire::CmView& mad,
                  Time now);
  void OnRtu(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnDreq(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnDrep(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnLap(const IncomingMad& in, const wire::CmView& mad);
  // Whether another request may be stored; drops an older one if necessary.
  bool HasRoom(Listener& listener, const wire::IpAddress& remote, Time now);

  // --- cm_sidr.cc
  void OnSidrReq(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnSidrRep(const IncomingMad& in, const wire::CmView& mad);
  void AnswerSidr(const IncomingMad& in, const wire::CmSidrReq& req,
                  uint64_t transaction_id, wire::CmSidrStatus status, Time now);
  void SendSidrRep(Connection& c, wire::CmSidrRep rep, Time now,
                   uint32_t ece_options = 0);

  // --- cm_turns.cc
  // Sends the first copy of a stored message that needs an answer, now or when
  // the peer's quota permits.
  void SendInTurn(Connection& c, Time now);
  void SendFirst(Connection& c, Time now);
  // The message was answered, or its connection has ended.
  void LeaveTurn(Connection& c);
  void SendHeldBack(Time now);
  // False if there is no memory for the messages.
  bool SendHeldBackFor(const wire::IpAddress& peer, Time now);
  // Requests that have been unanswered for long enough no longer count in the
  // quota; their timeouts continue to run.
  void EndTurns(const wire::IpAddress& peer, Time now);
  // The request to `peer` that is unanswered for the longest time; null: none.
  Connection* OldestTurn(const wire::IpAddress& peer) const;
  Time NextTurn() const;

  // --- cm_timer.cc
  void OnDeadline(Connection& c, Time now);
  void GiveUp(Connection& c, Time now);

  const Config config_;
  RandomSource* const random_;
  AnswerLimit answers_;
  AnswerLimit retransmissions_;
  Listeners listeners_;
  std::map<CmId, std::unique_ptr<Connection>> connections_;
  std::map<wire::IpAddress, Peer> peers_;  // of all connections
  RemoteIndex by_remote_id_;
  RemoteIndex by_remote_qp_;
  LocalQpnIndex by_local_qpn_;
  SidrIndex by_sidr_;
  TimeIndex deadlines_;
  // Connections whose REP was sent, by yields_at: all, and those of each peer.
  TimeIndex yielding_;
  TurnIndex yielding_of_peer_;
  // Connections that the application destroyed, oldest first.
  TimeIndex destroyed_;
  size_t destroyed_count_ = 0;
  // Requests that peers have not answered, and requests held back because of
  // them.
  TurnIndex unanswered_;
  TurnIndex held_back_;
  Time turns_ = 0;  // sequence number of those held back
  size_t half_open_ = 0;
  size_t remembered_ = 0;
  ReservedQueue<OutgoingMad> outgoing_;
  ReservedQueue<Event> events_;
  Counters counters_;
};

// Copies private data or additional information into a message and pads it with
// zeros. False if it does not fit.
template <size_t kSize>
bool FillData(std::span<const uint8_t> from, std::array<uint8_t, kSize>* to) {
  if (from.size() > kSize) return false;
  to->fill(0);
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = from[i];
  return true;
}

template <typename M>
void ConnectionManager::Keep(Connection& c,
                             const wire::CmTransaction& transaction,
                             const M& message) {
  wire::EmitCm(transaction, message, c.sent);
  c.sent_attribute = M::kAttribute;
}

template <typename M>
void ConnectionManager::Send(Connection& c,
                             const wire::CmTransaction& transaction,
                             const M& message) {
  Keep(c, transaction, message);
  Queue(c, c.sent);
}

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CONNECTION_MANAGER_H_
