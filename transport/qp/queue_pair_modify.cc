// ibv_modify_qp(3): makes all checks, then all changes; without memory, no
// change.
#include <cerrno>
#include <iterator>
#include <new>
#include <optional>

#include "transport/qp/queue_pair.h"
#include "transport/qp/state_table.h"
#include "wire/psn.h"

namespace transport {
namespace {

// The only P_Key and port of a device.
constexpr uint16_t kPkeyIndex = 0;
constexpr uint8_t kPort = 1;
constexpr uint8_t kMaxTimeout = 31;
constexpr uint8_t kMaxRetry = 7;
constexpr uint8_t kMaxRnrTimer = 31;
constexpr uint8_t kMaxPathMigState = 2;  // IBV_MIG_ARMED

bool IsMtu(uint32_t bytes) {
  switch (bytes) {
    case 256:
    case 512:
    case 1024:
    case 2048:
    case 4096:
      return true;
  }
  return false;
}

// The names of the attributes in `mask`, as in infiniband/verbs.h.
std::string NamesOf(uint32_t mask) {
  constexpr const char* kNames[] = {"STATE",
                                    "CUR_STATE",
                                    "EN_SQD_ASYNC_NOTIFY",
                                    "ACCESS_FLAGS",
                                    "PKEY_INDEX",
                                    "PORT",
                                    "QKEY",
                                    "AV",
                                    "PATH_MTU",
                                    "TIMEOUT",
                                    "RETRY_CNT",
                                    "RNR_RETRY",
                                    "RQ_PSN",
                                    "MAX_QP_RD_ATOMIC",
                                    "ALT_PATH",
                                    "MIN_RNR_TIMER",
                                    "SQ_PSN",
                                    "MAX_DEST_RD_ATOMIC",
                                    "PATH_MIG_STATE",
                                    "CAP",
                                    "DEST_QPN"};
  std::string names;
  for (size_t bit = 0; bit < std::size(kNames); ++bit) {
    if ((mask >> bit & 1) == 0) continue;
    names += std::string(names.empty() ? "" : ", ") + "IBV_QP_" + kNames[bit];
  }
  return names;
}

// RoCE needs a GID at both ends.
bool IsUsable(const AddressVector& av) {
  return !av.source.is_unspecified() && !av.destination.is_unspecified() &&
         !av.destination.is_multicast() &&
         av.source.is_v4() == av.destination.is_v4();
}

}  // namespace

uint32_t QueuePair::BadAttribute(const QpAttributes& a, uint32_t mask) const {
  const struct {
    uint32_t attribute;
    bool wrong;
  } values[] = {
      {kQpCurState, a.current_state != state()},
      {kQpPkeyIndex, a.pkey_index != kPkeyIndex},
      {kQpPort, a.port_num != kPort},
      {kQpAv, TraitsOf(config().type).av_is_peer && !IsUsable(a.av)},
      {kQpPathMtu, !IsMtu(a.path_mtu)},
      {kQpTimeout, a.timeout > kMaxTimeout},
      {kQpRetryCnt, a.retry_cnt > kMaxRetry},
      {kQpRnrRetry, a.rnr_retry > kMaxRetry},
      {kQpMinRnrTimer, a.min_rnr_timer > kMaxRnrTimer},
      {kQpDestQpn, a.dest_qpn > wire::kQpnMask},
      {kQpAltPath, a.alt_av == nullptr || a.alt_port_num != kPort ||
                       a.alt_timeout > kMaxTimeout ||
                       a.alt_pkey_index != kPkeyIndex},
      {kQpPathMigState, a.path_mig_state > kMaxPathMigState},
  };
  for (const auto& value : values) {
    if (value.wrong && (mask & value.attribute) != 0) return value.attribute;
  }
  return 0;
}

bool QueuePair::ChangesInFlight(uint32_t mask, QpState to) const {
  return state() == QpState::kSqd && to == QpState::kSqd &&
         (mask & ~uint32_t{kQpState}) != 0 && !Drained();
}

std::string QueuePair::WhyModifyRefused(const QpAttributes& a,
                                        uint32_t mask) const {
  const QpState from = state();
  const QpState to = (mask & kQpState) ? a.state : from;
  const std::string step = std::string(NameOf(from)) + " to " + NameOf(to);
  const Transition transition = FindTransition(config().type, from, to);
  if (!transition.allowed) return "IBV_QP_STATE: no transition from " + step;
  const uint32_t given = mask & ~uint32_t{kQpState};
  if (const uint32_t missing = transition.required & ~given; missing != 0) {
    return NamesOf(missing) + ": missing, required from " + step;
  }
  const uint32_t known = transition.required | transition.optional;
  if (const uint32_t extra = given & ~known; extra != 0) {
    return NamesOf(extra) + ": not permitted from " + step;
  }
  if (const uint32_t bad = BadAttribute(a, mask); bad != 0) {
    return NamesOf(bad) + ": the value is not valid";
  }
  if (ChangesInFlight(mask, to)) {
    return NamesOf(given) + ": the send queue is not drained yet";
  }
  return "";
}

void QueuePair::Assign(const QpAttributes& a, uint32_t mask) {
  QpAttributes& to = core_.attributes;
  if (mask & kQpAccessFlags) to.access_flags = a.access_flags;
  if (mask & kQpPkeyIndex) to.pkey_index = a.pkey_index;
  if (mask & kQpPort) to.port_num = a.port_num;
  if (mask & kQpQkey) to.qkey = a.qkey;
  if (mask & kQpAv) to.av = a.av;
  if (mask & kQpPathMtu) to.path_mtu = a.path_mtu;
  if (mask & kQpTimeout) to.timeout = a.timeout;
  if (mask & kQpRetryCnt) to.retry_cnt = a.retry_cnt;
  if (mask & kQpRnrRetry) to.rnr_retry = a.rnr_retry;
  // Programs pass random numbers; drivers use their low 24 bits.
  if (mask & kQpRqPsn) to.rq_psn = a.rq_psn & wire::kPsnMask;
  if (mask & kQpSqPsn) to.sq_psn = a.sq_psn & wire::kPsnMask;
  if (mask & kQpMaxQpRdAtomic) to.max_rd_atomic = a.max_rd_atomic;
  if (mask & kQpMinRnrTimer) to.min_rnr_timer = a.min_rnr_timer;
  if (mask & kQpMaxDestRdAtomic) to.max_dest_rd_atomic = a.max_dest_rd_atomic;
  if (mask & kQpPathMigState) to.path_mig_state = a.path_mig_state;
  if (mask & kQpDestQpn) to.dest_qpn = a.dest_qpn;
  if (mask & kQpAltPath) {
    to.alt_av = a.alt_av;
    to.alt_port_num = a.alt_port_num;
    to.alt_pkey_index = a.alt_pkey_index;
    to.alt_timeout = a.alt_timeout;
  }
}

int QueuePair::Modify(const QpAttributes& attributes, uint32_t mask, Time now) {
  const QpState from = state();
  const QpState to = (mask & kQpState) ? attributes.state : from;
  if (const int error = CheckTransition(config().type, from, to, mask)) {
    return error;
  }
  if (BadAttribute(attributes, mask) != 0 || ChangesInFlight(mask, to)) {
    return EINVAL;
  }

  const auto change = [&] {
    Assign(attributes, mask);
    if (to == QpState::kErr) {
      core_.NoteFirstError(Reason::kModifiedToError);
      return EnterError(now);
    }
    if (to == QpState::kReset) {
      SetState(to, now);
      return EnterReset();
    }
    SetState(to, now);
    if (to == QpState::kRts) core_.first_error = Reason::kNone;  // from SQE
    if ((mask & kQpAv) != 0 && TraitsOf(config().type).av_is_peer) {
      JoinPath();
      if (from == QpState::kSqd) OnOtherPath();
    }
    if ((mask & kQpMaxDestRdAtomic) != 0 && from != QpState::kInit) {
      ResizeReadResources();
    }
    if (from == QpState::kInit && to == QpState::kRtr) {
      StartReceiving();
    } else if (from == QpState::kRtr && to == QpState::kRts) {
      StartSending(now);
    } else if (from == QpState::kRts && to == QpState::kSqd) {
      core_.attributes.en_sqd_async_notify =
          (mask & kQpEnSqdAsyncNotify) != 0 && attributes.en_sqd_async_notify;
      Drain(now);
    } else if ((from == QpState::kSqd || from == QpState::kSqe) &&
               to == QpState::kRts) {
      Resume(now);
    }
    ActOnFindings(now);
  };
  const QpAttributes before = core_.attributes;
  const std::optional<Flow> flow_before = flow_;
  try {
    change();
  } catch (const std::bad_alloc&) {
    // Thrown for the path, or by the service's start.
    core_.attributes = before;
    flow_ = flow_before;
    if (!flow_.has_value()) LeavePath();
    throw;
  }
  endpoint_.Update(this, now);
  return 0;
}

void QueuePair::EnterReset() {
  core_.attributes = QpAttributes{};
  core_.send_queue.Clear();
  OnReset();
  core_.send_cq_lost = false;
  core_.first_error = core_.refusal = Reason::kNone;
  if (core_.receive_queue != nullptr) core_.receive_queue->Clear();
  receiver_.Reset();
  LeavePath();
  communication_established_ = false;
  last_wqe_reported_ = false;
  cnp_due_ = false;
}

void QueuePair::JoinPath() {
  peer_port_.Forget();
  AddressVector av = attributes().av;
  // Connected services are ECN-capable (RFC 3168), unless the program has set
  // the ECN bits: the network can mark their packets instead of dropping them.
  if ((av.traffic_class & kEcnBits) == 0 && !is_datagram()) {
    av.traffic_class |= kEcnCapable;
  }
  flow_.emplace(av);
  if (!is_datagram() && TraitsOf(config().type).av_is_peer) {
    flow_->peer_qpn = attributes().dest_qpn;
  }
  core_.path = endpoint_.Connect(this, &*flow_);
}

void QueuePair::LeavePath() {
  endpoint_.Disconnect(this);
  core_.path = nullptr;
  flow_.reset();
}

}  // namespace transport
