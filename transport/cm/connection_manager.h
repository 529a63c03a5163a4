// The communication manager (InfiniBand specification chapter 12): connections
// are set up and released, and service IDs resolved, by MADs between queue
// pairs 1. The state machine is that of 12.9.
//
// It does no I/O and reads no clock. Methods come in four kinds: calls of the
// application, inputs (OnMad, OnTimer), outputs (PollTransmit, PollEvent,
// NextTimeout: drained after calls and inputs), and getters. One thread at a
// time. Nothing here is on the data path.
//
// Memory: Listen, Connect, Resolve and NotifyEstablished throw std::bad_alloc,
// and nothing has changed then. No other call or input throws: a connection
// asks for all its memory when it is made. A request that finds none is
// dropped, as if it were lost on the way, and so is what brings or would send
// more than few things while nobody takes the outputs; a time-out then waits
// until somebody does.
//
// Trust: what comes for a connection counts if it comes from the address of its
// peer and carries the communication IDs of both, which are random. What comes
// from others is answered with one MAD of the same size, and not often.
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
  // kServiceInUse: another one has the same service ID, mask and address.
  Result Listen(const ListenOptions& options, ListenerId* id);
  // What it has brought stays the application's.
  Result StopListening(ListenerId id);

  // --- Connections. Private data that is shorter than the message's is filled
  // up with zeros; what is longer is kInvalid.
  // Active side: sends a REQ. kQpnInUse: the queue pair is in a connection.
  Result Connect(const ConnectOptions& options, Time now, CmId* id);
  // Passive side, after kRequest: sends the REP; communication IDs are filled
  // in, and so is, for XRC, where the queue pair stands (`rep.local_qpn`).
  // `ece_options`: see ConnectOptions.
  Result Accept(CmId id, const wire::CmRep& rep, Time now,
                uint32_t ece_options = 0);
  // After kRequest or kServiceRequest: the application knows of the request,
  // which gives its place in the listener's backlog back. It may be a while
  // after PollEvent.
  Result Seen(CmId id);
  // After kRequest or kReply.
  Result Reject(CmId id, const RejectOptions& options, Time now);
  // After kRequest or kReply: the answer will take up to this long (5-bit
  // exponent). Sends an MRA; without, one is sent when the peer asks again.
  Result Delay(CmId id, uint8_t service_timeout, Time now);
  // Active side, after kReply: sends the RTU.
  Result Establish(CmId id, std::span<const uint8_t> private_data, Time now);
  // Passive side: data has come, so the peer is established though its RTU was
  // lost (12.9.6, COMM_EST).
  Result NotifyEstablished(CmId id);
  // When established sends a DREQ; after the peer's, the DREP.
  Result Disconnect(CmId id, std::span<const uint8_t> private_data, Time now);
  // In any state: rejects, disconnects or gives up what is under way. There
  // will be no more events for it, those that were not polled yet included;
  // what is kept for timewait is none of the application's business.
  Result Destroy(CmId id, Time now);

  // --- Service ID resolution (12.11).
  Result Resolve(const ResolveOptions& options, Time now, CmId* id);
  // After kServiceRequest; request ID and service ID are filled in.
  Result AnswerService(CmId id, const wire::CmSidrRep& rep, Time now,
                       uint32_t ece_options = 0);

  // --- Inputs. `now` does not go backwards.
  void OnMad(const IncomingMad& mad, Time now);
  // The system says that nobody takes what was sent to queue pair 1 of a peer:
  // `mad` is what was sent. A request is sent again soon: the peer may be about
  // to come.
  void OnUndelivered(const OutgoingMad& mad, Time now);
  // What is due by `now`. Early calls are harmless.
  void OnTimer(Time now);

  // --- Outputs.
  bool PollTransmit(OutgoingMad* out);
  bool PollEvent(Event* out);
  bool HasEvents() const { return !events_.empty(); }
  // When OnTimer is to be called next; kNever if not.
  Time NextTimeout() const;

  // --- Getters.
  // Absent for ids that are not the application's.
  std::optional<State> state(CmId id) const;
  // Connections and resolutions that take memory, those in timewait and those
  // that are destroyed but not over included.
  size_t size() const { return connections_.size(); }
  size_t half_open() const { return half_open_; }
  // What peers may take for connected: from the REP on, until either end
  // disconnects. Not those whose addresses something between translates: others
  // cannot send to them.
  std::vector<ConnectedPeer> Connected() const;
  // Absent if it is none of these.
  std::optional<ConnectedPeer> Connected(CmId id) const;
  // Whether any of those that size() counts is from there.
  bool Uses(const wire::IpAddress& local) const;
  const Counters& counters() const { return counters_; }

 private:
  // --- connection_manager.cc
  Connection* Find(CmId id) const;
  // Only the application's.
  Connection* FindOwned(CmId id) const;
  // Throws std::bad_alloc; nothing has changed then.
  Connection& New(const wire::IpAddress& local, const wire::IpAddress& remote,
                  Time now);
  void Remove(Connection& c);
  // Changes the state and what is counted by it.
  void Enter(Connection& c, State state);
  void SetDeadline(Connection& c, Time deadline);
  // From when on `c` makes room for newer requests; kNever: not at all.
  void SetYielding(Connection& c, Time at);
  // The one that has made room for the longest time, of all or of a peer; null:
  // none does.
  Connection* OldestYielding(Time now) const;
  Connection* OldestYielding(const wire::IpAddress& peer, Time now) const;
  void SetHalfOpen(Connection& c, bool half_open);
  void SetRemembered(Connection& c, bool remembered);
  // Where it is found by what the peer says. False if another one is.
  bool KeepRemoteId(Connection& c);
  bool KeepRemoteQp(Connection& c);
  bool KeepLocalQpn(Connection& c, uint32_t qpn);
  void ForgetQps(Connection& c);
  void ForgetAll(Connection& c);
  // There is room for it.
  void Emit(EventKind kind, const Connection& c, const wire::CmView* mad);
  // The application has destroyed it: it is kept as long as there is room.
  void KeepLeft(Connection& c, Time now);
  // To kIdle, and out of memory if nobody owns it: `c` may be gone.
  void End(Connection& c);
  // Keeps what duplicates are answered with, for `hold`.
  void EnterTimeWait(Connection& c, Time hold, Time now);
  // A request that will be no connection, kept for its duplicates if there is
  // room; else it ends.
  void EnterRemembered(Connection& c, Time hold, Time now);
  // One that was refused: its REJ is kept.
  void EnterRefused(Connection& c, Time now);
  // One that the peer has taken back before the application has answered.
  void EnterWithdrawn(Connection& c, Time now);
  // The application has answered, too late, or wants no answer.
  void LeaveWithdrawn(Connection& c);

  // --- cm_send.cc
  // Without memory it is lost, as on the way: counted.
  void Queue(const wire::IpAddress& local, const wire::IpAddress& remote,
             const Via& via, const Mad& mad);
  // For duplicates, and to be sent again.
  template <typename M>
  void Keep(Connection& c, const wire::CmTransaction& transaction,
            const M& message);
  // Sends, and keeps.
  template <typename M>
  void Send(Connection& c, const wire::CmTransaction& transaction,
            const M& message);
  void SendAgain(Connection& c);
  void SendMra(Connection& c);
  void SendRej(Connection& c, wire::CmAnswered answered,
               const RejectOptions& options);
  void KeepRej(Connection& c, wire::CmAnswered answered,
               const RejectOptions& options);
  // With reason kTimeout and the CA GUID by which the peer finds it. It answers
  // no message, so none is named as rejected (12.6.7.1), as by the kernel.
  void KeepTimeoutRej(Connection& c);
  void SendTimeoutRej(Connection& c);
  void SendDrep(Connection& c, std::span<const uint8_t> private_data);
  void SendDreq(Connection& c, std::span<const uint8_t> private_data, Time now);
  // After the first try of a message that wants an answer.
  void StartRetries(Connection& c, Time now);
  // After the first REP.
  void AwaitRtu(Connection& c, Time now);
  // Answers to what belongs to no connection: limited.
  bool MayAnswer(const wire::IpAddress& remote, Time now);
  // What was asked for once, sent to a peer that has been silent since.
  bool MayReplyAgain(const wire::IpAddress& remote, Time now);
  void AnswerRej(const IncomingMad& in, const wire::CmView& mad,
                 wire::CmAnswered answered, wire::CmRejectReason reason,
                 Time now);
  void AnswerDrep(const IncomingMad& in, const wire::CmView& mad, Time now);

  // --- cm_receive.cc
  // The connection that a message names; null (and counted) if it is not there
  // or not this peer's. kIdle counts as not there.
  Connection* FindFor(const IncomingMad& in, const wire::CmView& mad);
  void CountDuplicate(const wire::CmView& mad);
  void OnMessage(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnReq(const IncomingMad& in, const wire::CmView& mad, Time now);
  // The peer has forgotten it, and has its queue pair in a newer connection:
  // what it asks for is rejected, and this one ends as well (12.9.8.3.1). `id`
  // may be 0.
  void DisconnectStale(CmId id, Time now);
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
  // Whether one more request may be kept; gives up an older one if need be.
  bool HasRoom(Listener& listener, const wire::IpAddress& remote, Time now);

  // --- cm_sidr.cc
  void OnSidrReq(const IncomingMad& in, const wire::CmView& mad, Time now);
  void OnSidrRep(const IncomingMad& in, const wire::CmView& mad);
  void AnswerSidr(const IncomingMad& in, const wire::CmSidrReq& req,
                  uint64_t transaction_id, wire::CmSidrStatus status, Time now);
  void SendSidrRep(Connection& c, wire::CmSidrRep rep, Time now,
                   uint32_t ece_options = 0);

  // --- cm_turns.cc
  // The first try of what was kept and the peer is to answer, now or when it is
  // its turn.
  void SendInTurn(Connection& c, Time now);
  void SendFirst(Connection& c, Time now);
  // It was answered, or is over.
  void LeaveTurn(Connection& c);
  void SendHeldBack(Time now);
  // False if there is no room for what is to be sent.
  bool SendHeldBackFor(const wire::IpAddress& peer, Time now);
  // What has had its time makes room, and goes by its time-outs.
  void EndTurns(const wire::IpAddress& peer, Time now);
  // What the peer has not answered for the longest time; null: nothing.
  Connection* OldestTurn(const wire::IpAddress& peer) const;
  Time NextTurn() const;

  // --- cm_timer.cc
  void OnDeadline(Connection& c, Time now);
  void GiveUp(Connection& c, Time now);

  const Config config_;
  RandomSource* const random_;
  AnswerLimit answers_;
  AnswerLimit replies_again_;
  Listeners listeners_;
  std::map<CmId, std::unique_ptr<Connection>> connections_;
  std::map<wire::IpAddress, Peer> peers_;  // of all connections
  RemoteIndex by_remote_id_;
  RemoteIndex by_remote_qp_;
  LocalQpnIndex by_local_qpn_;
  SidrIndex by_sidr_;
  TimeIndex deadlines_;
  // Connections whose REP was sent, by when they yield; and those of each peer.
  TimeIndex yielding_;
  TurnIndex yielding_of_peer_;
  // What the application has destroyed, the oldest first.
  TimeIndex left_;
  size_t left_count_ = 0;
  // What peers are to answer, and what waits for that.
  TurnIndex unanswered_;
  TurnIndex held_back_;
  Time turns_ = 0;  // counts those held back
  size_t half_open_ = 0;
  size_t remembered_ = 0;
  ReservedQueue<OutgoingMad> outgoing_;
  ReservedQueue<Event> events_;
  Counters counters_;
};

// Copies private data or additional information into a message, zeros behind.
// False if it does not fit.
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
  c.has_sent = true;
  c.sent_attribute = M::kAttribute;
}

template <typename M>
void ConnectionManager::Send(Connection& c,
                             const wire::CmTransaction& transaction,
                             const M& message) {
  Keep(c, transaction, message);
  Queue(c.local, c.remote, c.via, c.sent);
}

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CONNECTION_MANAGER_H_
