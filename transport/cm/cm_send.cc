// Messages that the connection manager sends.
#include <algorithm>

#include "transport/cm/connection_manager.h"
#include "wire/bytes.h"

namespace transport::cm {
namespace {

const wire::IpAddress& GoesTo(const wire::IpAddress& remote, const Via& via) {
  return via.port != 0 ? via.address : remote;
}

}  // namespace

void ConnectionManager::Queue(const wire::IpAddress& local,
                              const wire::IpAddress& remote, const Via& via,
                              const Mad& mad) {
  if (!outgoing_.Reserve(1)) {
    ++counters_.no_memory;
    return;
  }
  outgoing_.Push() = {
      .local = local, .remote = remote, .bytes = mad, .via = via};
  ++counters_.sent;
  wire::CmView view;
  if (wire::CmView::Parse(mad, &view) == wire::CmParseError::kOk) {
    counters_.tx_msgs.Count(view.attribute());
  }
}

void ConnectionManager::Queue(const Connection& c, const Mad& mad) {
  Queue(c.local, c.remote, c.via, mad);
}

void ConnectionManager::Retransmit(Connection& c) {
  Queue(c, c.sent);
  ++counters_.retransmitted;
  counters_.tx_retries.Count(*c.sent_attribute);
}

void ConnectionManager::SendMra(Connection& c) {
  const bool to_req = c.state == State::kMraReqSent;
  Mad mad;
  wire::EmitCm({.id = c.transaction_id},
               wire::CmMra{.local_comm_id = c.id,
                           .remote_comm_id = c.remote_comm_id,
                           .answered = to_req ? wire::CmAnswered::kReq
                                              : wire::CmAnswered::kRep,
                           .service_timeout = c.service_timeout},
               mad);
  Queue(c, mad);
  c.mra_wait = wire::CmTimeNanos(c.service_timeout) + c.round_trip;
}

void ConnectionManager::SendRej(Connection& c, wire::CmAnswered answered,
                                const RejectOptions& options) {
  KeepRej(c, answered, options);
  Queue(c, c.sent);
}

void ConnectionManager::KeepRej(Connection& c, wire::CmAnswered answered,
                                const RejectOptions& options) {
  wire::CmRej rej = {
      .local_comm_id = c.id,
      .remote_comm_id = c.remote_comm_id,
      .answered = answered,
      .info_length = static_cast<uint8_t>(options.additional_info.size()),
      .reason = options.reason};
  FillData(options.additional_info, &rej.additional_info);
  FillData(options.private_data, &rej.private_data);
  Keep(c, {.id = c.transaction_id}, rej);
}

void ConnectionManager::SendTimeoutRej(Connection& c) {
  KeepTimeoutRej(c);
  Queue(c, c.sent);
}

void ConnectionManager::KeepTimeoutRej(Connection& c) {
  uint8_t guid[8];
  wire::StoreBe64(guid, c.local_ca_guid);
  KeepRej(c, wire::CmAnswered::kOther,
          {.reason = wire::CmRejectReason::kTimeout,
           .additional_info = guid,
           .private_data = {}});
}

void ConnectionManager::SendDrep(Connection& c,
                                 std::span<const uint8_t> private_data) {
  wire::CmDrep drep = {.local_comm_id = c.id,
                       .remote_comm_id = c.remote_comm_id};
  FillData(private_data, &drep.private_data);
  Send(c, {.id = c.mad_transaction_id}, drep);
}

void ConnectionManager::SendDreq(Connection& c,
                                 std::span<const uint8_t> private_data,
                                 Time now) {
  wire::CmDreq dreq = {.local_comm_id = c.id,
                       .remote_comm_id = c.remote_comm_id,
                       .remote_qpn = c.remote_qpn};
  FillData(private_data, &dreq.private_data);
  Enter(c, State::kDreqSent);
  Keep(c, {.id = uint64_t{random_->Next32()} << 32 | c.id}, dreq);
  SendInTurn(c, now);
}

void ConnectionManager::StartRetries(Connection& c, Time now) {
  c.retries_left = c.max_retries;
  SetDeadline(c, now + c.wait);
}

void ConnectionManager::AwaitRtu(Connection& c, Time now) {
  StartRetries(c, now);
  c.replied = now;
  SetYielding(c, now + 2 * std::min(c.wait, config_.reminder));
  if (c.wait <= config_.reminder) return;
  // A reminder does not count as a try, and does not move the deadline of the
  // first one.
  c.regular_deadline = c.deadline;
  SetDeadline(c, now + config_.reminder);
}

bool ConnectionManager::MayAnswer(const IncomingMad& in, Time now) {
  if (answers_.Allow(GoesTo(in.remote, in.via), now)) return true;
  ++counters_.answers_limited;
  return false;
}

bool ConnectionManager::RepeatRej(Connection& c, const IncomingMad& in,
                                  Time now) {
  if (c.sent_attribute != wire::CmAttribute::kRej) return false;
  if (MayAnswer(in, now)) Retransmit(c);
  return true;
}

bool ConnectionManager::MayRetransmit(const Connection& c, Time now) {
  if (retransmissions_.Allow(GoesTo(c.remote, c.via), now)) return true;
  ++counters_.answers_limited;
  return false;
}

void ConnectionManager::AnswerRej(const IncomingMad& in,
                                  const wire::CmView& mad,
                                  wire::CmAnswered answered,
                                  wire::CmRejectReason reason, Time now) {
  if (!MayAnswer(in, now)) return;
  // Our ID as the peer named it; a REQ names none.
  const bool is_req = mad.attribute() == wire::CmAttribute::kReq;
  Mad out;
  wire::EmitCm({.id = mad.transaction_id()},
               wire::CmRej{.local_comm_id = is_req ? 0 : mad.remote_comm_id(),
                           .remote_comm_id = mad.local_comm_id(),
                           .answered = answered,
                           .reason = reason},
               out);
  Queue(in.local, in.remote, in.via, out);
}

void ConnectionManager::AnswerDrep(const IncomingMad& in,
                                   const wire::CmView& mad, Time now) {
  if (!MayAnswer(in, now)) return;
  Mad out;
  wire::EmitCm({.id = mad.transaction_id()},
               wire::CmDrep{.local_comm_id = mad.remote_comm_id(),
                            .remote_comm_id = mad.local_comm_id()},
               out);
  Queue(in.local, in.remote, in.via, out);
}

}  // namespace transport::cm
