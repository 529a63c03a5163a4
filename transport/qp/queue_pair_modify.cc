// ibv_modify_qp(3): makes all checks, then all changes; without memory, no
// change.
#include <cerrno>
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

// RoCE needs a GID at both ends.
bool IsUsable(const AddressVector& av) {
  return !av.source.is_unspecified() && !av.destination.is_unspecified() &&
         !av.destination.is_multicast() &&
         av.source.is_v4() == av.destination.is_v4();
}

}  // namespace

int QueuePair::CheckValues(const QpAttributes& a, uint32_t mask,
                           QpState to) const {
  const auto bad = [mask](uint32_t bits, bool wrong) {
    return (mask & bits) != 0 && wrong;
  };
  if (bad(kQpCurState, a.current_state != state()) ||
      bad(kQpPkeyIndex, a.pkey_index != kPkeyIndex) ||
      bad(kQpPort, a.port_num != kPort) ||
      bad(kQpAv, TraitsOf(config().type).av_is_peer && !IsUsable(a.av)) ||
      bad(kQpPathMtu, !IsMtu(a.path_mtu)) ||
      bad(kQpTimeout, a.timeout > kMaxTimeout) ||
      bad(kQpRetryCnt, a.retry_cnt > kMaxRetry) ||
      bad(kQpRnrRetry, a.rnr_retry > kMaxRetry) ||
      bad(kQpMinRnrTimer, a.min_rnr_timer > kMaxRnrTimer) ||
      bad(kQpDestQpn, a.dest_qpn > wire::kQpnMask) ||
      bad(kQpAltPath, a.alt_av == nullptr || a.alt_port_num != kPort ||
                          a.alt_timeout > kMaxTimeout ||
                          a.alt_pkey_index != kPkeyIndex) ||
      bad(kQpPathMigState, a.path_mig_state > kMaxPathMigState)) {
    return EINVAL;
  }
  // Attributes may not change while requests are in flight (IBA vol. 1,
  // 10.3.1.6).
  if (state() == QpState::kSqd && to == QpState::kSqd &&
      (mask & ~uint32_t{kQpState}) != 0 && !Drained()) {
    return EINVAL;
  }
  return 0;
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
  if (const int error = CheckValues(attributes, mask, to)) return error;

  const auto change = [&] {
    Assign(attributes, mask);
    if (to == QpState::kErr) return EnterError(now);
    if (to == QpState::kReset) return EnterReset();
    core_.attributes.state = to;
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
  core_.path = endpoint_.Connect(this, &*flow_);
}

void QueuePair::LeavePath() {
  endpoint_.Disconnect(this);
  core_.path = nullptr;
  flow_.reset();
}

}  // namespace transport
