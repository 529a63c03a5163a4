// The life of a link: creation, connection, end; and its completions.
#include "tests/soak/link.h"

#include <arpa/inet.h>
#include <errno.h>

#include <cstring>

#include "tests/soak/pattern.h"

namespace soak {
namespace {

constexpr uint32_t kSendQueue = 32;
constexpr uint32_t kPsn = 0xfffff0;  // wraps around soon
constexpr uint32_t kInline = 64;

ibv_mr* Register(ibv_pd* pd, const Memory& memory, int access) {
  ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                          static_cast<unsigned>(access));
  if (mr == nullptr) Die("ibv_reg_mr", errno);
  return mr;
}

}  // namespace

Link::Link(const LinkOptions& options, Device* device, int gid_index,
           uint64_t key, Report report)
    : options_(options),
      device_(device),
      gid_index_(gid_index),
      key_(key),
      report_(std::move(report)),
      random_(key),
      local_(kLargeOps * kMaxBytes + (kOps - kLargeOps) * kSmallBytes),
      receives_(kReceives * kReceiveBytes) {
  target_mr_ = Register(device_->pd(), target_,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  local_mr_ = Register(device_->pd(), local_, IBV_ACCESS_LOCAL_WRITE);
  receives_mr_ = Register(device_->pd(), receives_, IBV_ACCESS_LOCAL_WRITE);
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = device_->cq();
  attr.srq = options_.shared_receives ? device_->srq() : nullptr;
  const uint32_t receives = options_.shared_receives ? 0 : kReceives;
  attr.cap = {kSendQueue, receives, 1, 1, kInline};
  attr.qp_type = options_.reliable ? IBV_QPT_RC : IBV_QPT_UC;
  attr.sq_sig_all = 1;
  qp_ = ibv_create_qp(device_->pd(), &attr);
  if (qp_ == nullptr) Die("ibv_create_qp", errno);
}

Link::~Link() {
  int error = ibv_destroy_qp(qp_);
  for (ibv_mr* mr : {target_mr_, local_mr_, receives_mr_}) {
    if (error == 0) error = ibv_dereg_mr(mr);
  }
  if (error != 0) Die("a link's objects are busy", error);
}

nlohmann::json Link::Introduction() const {
  return {{"qpn", qp_->qp_num},
          {"target", target_.address()},
          {"target_rkey", target_mr_->rkey},
          {"readable", reinterpret_cast<uint64_t>(device_->readable()->addr)},
          {"readable_rkey", device_->readable()->rkey},
          {"key", key_}};
}

int Link::Connect(const std::string& remote, const nlohmann::json& peer,
                  uint64_t peer_readable_key) {
  peer_key_ = peer["key"];
  peer_target_ = peer["target"];
  peer_target_rkey_ = peer["target_rkey"];
  peer_readable_ = peer["readable"];
  peer_readable_rkey_ = peer["readable_rkey"];
  peer_readable_key_ = peer_readable_key;

  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (options_.reliable) {
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  }
  int error = ibv_modify_qp(
      qp_, &attr,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return error;
  if (!options_.shared_receives) {
    for (size_t i = 0; i < kReceives; ++i) PostReceive(i);
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = options_.mtu;
  attr.dest_qp_num = peer["qpn"];
  attr.rq_psn = kPsn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = GidOf(remote);
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
  attr.ah_attr.grh.hop_limit = 64;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
             IBV_QP_RQ_PSN;
  if (options_.reliable) {
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  error = ibv_modify_qp(qp_, &attr, mask);
  if (error != 0) return error;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = kPsn;
  attr.timeout = static_cast<uint8_t>(options_.timeout);
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.reliable) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
            IBV_QP_MAX_QP_RD_ATOMIC;
  }
  error = ibv_modify_qp(qp_, &attr, mask);
  if (error == 0) state_ = State::kConnected;
  return error;
}

void Link::Start() {
  if (state_ != State::kConnected) return;
  state_ = State::kRunning;
  credit_ms_ = told_ms_ = NowMs();
}

void Link::BeQuiet() {
  if (state_ == State::kRunning) state_ = State::kQuieting;
  CheckQuiet();
}

void Link::CheckQuiet() {
  if (state_ != State::kQuieting || sends_out_ != 0) return;
  state_ = State::kQuiet;
  Say("quiet");
}

void Link::Drop() {
  if (state_ == State::kDropping || state_ == State::kDropped) return;
  // In RESET receives do not complete, and none was posted.
  const bool used = state_ != State::kMade;
  state_ = State::kDropping;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  const int error = ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  if (error != 0) Die("ibv_modify_qp to ERR", error);
  last_receive_ = last_receive_ || !used;
  CheckDropped();
}

void Link::OnLastReceive() {
  last_receive_ = true;
  CheckDropped();
}

void Link::CheckDropped() {
  if (state_ != State::kDropping || sends_out_ != 0 || receives_out_ != 0) {
    return;
  }
  if (options_.shared_receives && !last_receive_) return;
  state_ = State::kDropped;
  if (!options_.reliable) CheckWrites();
  Say("dropped", {{"sent", sent_}, {"seen", seen_}});
}

void Link::PostReceive(size_t index) {
  ibv_sge sge = {receives_.address(index * kReceiveBytes), kReceiveBytes,
                 receives_mr_->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = kReceiveId + index;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad;
  const int error = ibv_post_recv(qp_, &wr, &bad);
  if (error != 0) Die("ibv_post_recv", error);
  ++receives_out_;
}

void Link::OnCompletion(const ibv_wc& wc) {
  const bool receive = wc.status == IBV_WC_SUCCESS
                           ? (wc.opcode & IBV_WC_RECV) != 0
                           : wc.wr_id >= kReceiveId;
  if (receive) {
    if (!options_.shared_receives) --receives_out_;
  } else {
    --sends_out_;
  }
  if (wc.status != IBV_WC_SUCCESS) {
    OnError(wc);
    if (receive && options_.shared_receives) {
      device_->PostShared(wc.wr_id - kReceiveId);
    }
  } else if (receive) {
    OnReceived(wc);
  } else {
    OnSent(wc);
  }
  CheckQuiet();
  CheckDropped();
}

// The first error is the cause; later ones are flushed requests.
void Link::OnError(const ibv_wc& wc) {
  const bool first = state_ != State::kBroken && state_ != State::kDropping;
  if (first) {
    state_ = State::kBroken;
    Say("broke", {{"status", ibv_wc_status_str(wc.status)},
                  {"code", static_cast<int>(wc.status)},
                  {"request", wc.wr_id}});
  } else if (wc.status != IBV_WC_WR_FLUSH_ERR &&
             !(state_ == State::kDropping &&
               wc.status == IBV_WC_RETRY_EXC_ERR)) {
    Mismatch(std::string("a completion after the first error says ") +
             ibv_wc_status_str(wc.status));
  }
}

nlohmann::json Link::Statistics() const {
  int64_t oldest = 0;
  for (const Op& op : ops_) {
    if (op.requests != 0) oldest = std::max(oldest, NowMs() - op.posted_ms);
  }
  return {{"id", options_.id},       {"generation", options_.generation},
          {"completed", completed_}, {"received", received_},
          {"bytes", bytes_},         {"oldest_ms", oldest}};
}

void Link::Mismatch(const std::string& what) {
  Say("mismatch", {{"text", what}});
}

void Link::Say(const char* what, nlohmann::json more) {
  more["is"] = what;
  more["id"] = options_.id;
  more["generation"] = options_.generation;
  report_(std::move(more));
}

}  // namespace soak
