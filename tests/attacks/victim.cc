#include "tests/attacks/victim.h"

#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace attacks {
namespace {

constexpr uint32_t kWriteBytes = 9000;  // several packets
constexpr uint32_t kSendBytes = 200;
constexpr int kReceives = 64;
constexpr int kTimeoutMs = 20'000;
constexpr int kRequests = 4;  // per round

// Offsets in the buffer: the source of WRITEs, the target of the peer's WRITEs,
// the target of READs, and so on.
constexpr size_t kSource = 0;
constexpr size_t kTarget = 16 * 1024;
constexpr size_t kReadBack = 32 * 1024;
constexpr size_t kWord = 48 * 1024;  // the target of the peer's atomics
constexpr size_t kOldWord = kWord + 8;
constexpr size_t kReceiveBuffers = 64 * 1024;
// More receives than a UC round needs, which only has SENDs.
constexpr size_t kReceiveStride = 9 * 1024;
constexpr size_t kMemory = kReceiveBuffers + kReceives * kReceiveStride;
// Work request IDs of receives start here.
constexpr uint64_t kReceiveId = 1000;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

struct Address {  // exchanged by the two ends
  uint32_t qpn;
  uint32_t psn;
  uint32_t rkey;
  uint64_t memory;
};

class Victim {
 public:
  Victim(bool ipv6, bool uc, int link, VictimStatus* status,
         const VictimOrders* orders)
      : ipv6_(ipv6), uc_(uc), link_(link), status_(status), orders_(orders) {}

  void Run() {
    Open();
    Connect();
    for (uint64_t round = 0;; ++round) {
      if (orders_->stop) break;
      status_->round_began_ns = NowNs();
      uc_ ? UcRound(round) : Round(round);
      status_->rounds = round + 1;
    }
    status_->stopped = true;
    for (;;) Wait(-1);  // keeps responding
  }

 private:
  void Must(bool condition, const char* what) {
    if (condition) return;
    std::snprintf(
        status_->message, sizeof(status_->message),
        "%s (errno %d) in round %llu, %lld ms after it began, with %d requests "
        "outstanding%s",
        what, errno, static_cast<unsigned long long>(status_->rounds.load()),
        static_cast<long long>((NowNs() - status_->round_began_ns) / 1'000'000),
        status_->outstanding.load(), status_->stopped ? ", stopped" : "");
    status_->failed = true;
    for (;;) pause();
  }

  void MustSucceed(const ibv_wc& completion) {
    if (completion.status == IBV_WC_SUCCESS) return;
    char text[120];
    std::snprintf(text, sizeof(text), "work request %llu: %s (%d, vendor 0x%x)",
                  static_cast<unsigned long long>(completion.wr_id),
                  ibv_wc_status_str(completion.status), completion.status,
                  completion.vendor_err);
    Must(false, text);
  }

  void Open() {
    ibv_device** list = ibv_get_device_list(nullptr);
    Must(list != nullptr && list[0] != nullptr, "no device");
    context_ = ibv_open_device(list[0]);
    Must(context_ != nullptr, "ibv_open_device");
    ibv_port_attr port;
    Must(ibv_query_port(context_, 1, &port) == 0, "ibv_query_port");
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid gid;
      Must(ibv_query_gid(context_, 1, i, &gid) == 0, "ibv_query_gid");
      const bool v4 = gid.raw[10] == 0xff;
      if (v4 != ipv6_ && gid.raw[15] == 1) {  // 127.0.0.1 or ::1
        gid_ = gid;
        gid_index_ = static_cast<uint8_t>(i);
        break;
      }
    }
    Must(gid_.raw[15] == 1, "no such address");
    ibv_pd* const pd = ibv_alloc_pd(context_);
    Must(pd != nullptr, "ibv_alloc_pd");
    memory_.resize(kMemory);
    mr_ = ibv_reg_mr(pd, memory_.data(), memory_.size(),
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                         IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    Must(mr_ != nullptr, "ibv_reg_mr");
    channel_ = ibv_create_comp_channel(context_);
    Must(channel_ != nullptr, "ibv_create_comp_channel");
    cq_ = ibv_create_cq(context_, 256, nullptr, channel_, 0);
    Must(cq_ != nullptr, "ibv_create_cq");
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {16, kReceives, 1, 1, 0};
    init.qp_type = uc_ ? IBV_QPT_UC : IBV_QPT_RC;
    init.sq_sig_all = 1;
    qp_ = ibv_create_qp(pd, &init);
    Must(qp_ != nullptr, "ibv_create_qp");
  }

  void Connect() {
    const Address own = {qp_->qp_num, 0x1000 + (qp_->qp_num & 0xffff),
                         mr_->rkey, reinterpret_cast<uint64_t>(memory_.data())};
    Must(send(link_, &own, sizeof(own), 0) == sizeof(own), "send");
    Must(recv(link_, &peer_, sizeof(peer_), MSG_WAITALL) == sizeof(peer_),
         "recv");
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (!uc_) {
      attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    Must(ibv_modify_qp(qp_, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           IBV_QP_ACCESS_FLAGS) == 0,
         "to INIT");
    for (int i = 0; i < kReceives; ++i) PostReceive(kReceiveId + i);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer_.qpn;
    attr.rq_psn = peer_.psn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid_;
    attr.ah_attr.grh.sgid_index = gid_index_;
    attr.ah_attr.grh.hop_limit = 64;
    Must(ibv_modify_qp(
             qp_, &attr,
             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                 IBV_QP_RQ_PSN |
                 (uc_ ? 0
                      : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) == 0,
         "to RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = own.psn;
    // Either end may get no core for as long as the test waits for anything, so
    // the retries last eight times two seconds. With timeout 14, a second in
    // all, the peer of such an end gave up.
    attr.timeout = 18;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    Must(ibv_modify_qp(
             qp_, &attr,
             IBV_QP_STATE | IBV_QP_SQ_PSN |
                 (uc_ ? 0
                      : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC)) == 0,
         "to RTS");
    // Neither end sends before both are ready.
    char ready = 1;
    Must(send(link_, &ready, 1, 0) == 1 && recv(link_, &ready, 1, 0) == 1,
         "the other victim");
    status_->rkey = mr_->rkey;
    status_->address = own.memory + kTarget;
    status_->qpn = own.qpn;
  }

  // Content that differs in each byte and in each round.
  static void Fill(uint8_t* bytes, size_t size, uint64_t round) {
    for (size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<uint8_t>((i * 2654435761u + round * 40503u) >> 9);
    }
  }
  static bool Has(const uint8_t* bytes, size_t size, uint64_t round) {
    std::vector<uint8_t> wanted(size);
    Fill(wanted.data(), size, round);
    return std::memcmp(bytes, wanted.data(), size) == 0;
  }

  void PostReceive(uint64_t id) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(memory_.data()) +
                       kReceiveBuffers + (id - kReceiveId) * kReceiveStride,
                   kReceiveStride, mr_->lkey};
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    Must(ibv_post_recv(qp_, &wr, &bad) == 0, "ibv_post_recv");
  }

  // A WRITE, a READ of the written data, a SEND, an atomic.
  void Round(uint64_t round) {
    Fill(memory_.data() + kSource, kWriteBytes, round);
    ibv_sge sges[kRequests];
    ibv_send_wr requests[kRequests] = {};
    const auto local = [&](size_t offset, uint32_t length) {
      return ibv_sge{reinterpret_cast<uint64_t>(memory_.data()) + offset,
                     length, mr_->lkey};
    };
    sges[0] = local(kSource, kWriteBytes);
    requests[0].opcode = IBV_WR_RDMA_WRITE;
    sges[1] = local(kReadBack, kWriteBytes);
    requests[1].opcode = IBV_WR_RDMA_READ;
    sges[2] = local(kSource, kSendBytes);
    requests[2].opcode = IBV_WR_SEND;
    sges[3] = local(kOldWord, 8);
    requests[3].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    requests[3].wr.atomic = {peer_.memory + kWord, 1, 0, peer_.rkey};
    for (int i = 0; i < kRequests; ++i) {
      requests[i].wr_id = i;
      requests[i].sg_list = &sges[i];
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < kRequests ? &requests[i + 1] : nullptr;
      if (i < 2) requests[i].wr.rdma = {peer_.memory + kTarget, peer_.rkey};
    }
    ibv_send_wr* bad;
    status_->outstanding = kRequests;
    Must(ibv_post_send(qp_, requests, &bad) == 0, "ibv_post_send");
    while (status_->outstanding > 0) Wait(kTimeoutMs);
    Must(Has(memory_.data() + kReadBack, kWriteBytes, round),
         "what was read is not what was written");
    uint64_t old;
    std::memcpy(&old, memory_.data() + kOldWord, 8);
    Must(old == round, "an atomic was lost, or done twice");
  }

  // SENDs of several packets whose content names their round.
  void UcRound(uint64_t round) {
    Fill(memory_.data() + kSource, kWriteBytes, round);
    std::memcpy(memory_.data() + kSource, &round, sizeof(round));
    ibv_sge sge = {reinterpret_cast<uint64_t>(memory_.data()) + kSource,
                   kWriteBytes, mr_->lkey};
    ibv_send_wr requests[kRequests] = {};
    for (int i = 0; i < kRequests; ++i) {
      requests[i].wr_id = i;
      requests[i].opcode = IBV_WR_SEND;
      requests[i].sg_list = &sge;
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < kRequests ? &requests[i + 1] : nullptr;
    }
    ibv_send_wr* bad;
    status_->outstanding = kRequests;
    Must(ibv_post_send(qp_, requests, &bad) == 0, "ibv_post_send");
    while (status_->outstanding > 0) Wait(kTimeoutMs);
  }

  bool IsRight(const ibv_wc& completion) {
    const uint8_t* const bytes =
        memory_.data() + kReceiveBuffers +
        (completion.wr_id - kReceiveId) * kReceiveStride;
    if (!uc_) {
      return completion.byte_len == kSendBytes &&
             Has(bytes, kSendBytes, received_++);
    }
    uint64_t round;
    std::memcpy(&round, bytes, sizeof(round));
    // Messages must not arrive out of order.
    const bool later = round >= received_;
    received_ = round;
    std::vector<uint8_t> wanted(kWriteBytes);
    Fill(wanted.data(), kWriteBytes, round);
    return completion.byte_len == kWriteBytes && later &&
           std::memcmp(bytes + sizeof(round), wanted.data() + sizeof(round),
                       kWriteBytes - sizeof(round)) == 0;
  }

  // Waits until something completes.
  void Wait(int timeout_ms) {
    if (Poll()) return;
    Must(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
    if (Poll()) return;
    pollfd fd = {channel_->fd, POLLIN, 0};
    Must(poll(&fd, 1, timeout_ms) == 1, "nothing has completed for 20 s");
    ibv_cq* cq;
    void* context;
    Must(ibv_get_cq_event(channel_, &cq, &context) == 0, "ibv_get_cq_event");
    ibv_ack_cq_events(cq_, 1);
    Poll();
  }

  bool Poll() {
    ibv_wc completions[16];
    const int count = ibv_poll_cq(cq_, 16, completions);
    Must(count >= 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[i];
      MustSucceed(completion);
      if (completion.wr_id < kReceiveId) {
        --status_->outstanding;
        continue;
      }
      Must(IsRight(completion), "what was received is not what was sent");
      PostReceive(completion.wr_id);
    }
    return count > 0;
  }

  const bool ipv6_;
  const bool uc_;
  const int link_;
  VictimStatus* const status_;
  const VictimOrders* const orders_;
  ibv_context* context_ = nullptr;
  ibv_gid gid_ = {};
  uint8_t gid_index_ = 0;
  std::vector<uint8_t> memory_;
  ibv_mr* mr_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Address peer_ = {};
  uint64_t received_ = 0;  // messages; for UC the round of the last one
};

}  // namespace

pid_t StartVictim(bool ipv6, bool uc, int link, VictimStatus* status,
                  const VictimOrders* orders) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  Victim(ipv6, uc, link, status, orders).Run();
  _exit(1);
}

}  // namespace attacks
