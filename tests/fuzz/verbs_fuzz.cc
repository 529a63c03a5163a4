// A libFuzzer target: calls of the verbs in any order with any arguments, from
// several threads on one context, over loopback in its own network namespace.
// Handles are live ones, null, small numbers, objects of another kind, and
// destroyed objects (except under AddressSanitizer and ThreadSanitizer, which
// report reading these). Each thread only destroys what it has created, as a
// program must.
//
// No call may crash or hang, and at the end all objects can be destroyed.

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "rxe_user/testing/net_namespace.h"
#include "tests/fuzz/fuzz_input.h"
#include "verbs_api/supplement/rxe_user_verbs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FUZZ_DEAD_HANDLES 0
#else
#define FUZZ_DEAD_HANDLES 1
#endif

namespace fuzz {
namespace {

constexpr int kMaxSteps = 120;
constexpr size_t kMax = 8;  // objects of a kind and thread
constexpr size_t kMemory = 16 * 1024;
constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// The device, opened once.
struct Device {
  Device() {
    rxe_user::EnterFreshNetNamespace();
    ibv_device** list = ibv_get_device_list(nullptr);
    Require(list != nullptr && list[0] != nullptr, "no device");
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    Require(context != nullptr, "the device cannot be opened");
    Require(ibv_query_gid(context, 1, 0, &gid) == 0, "no GID");
  }
  ibv_context* context = nullptr;
  ibv_gid gid = {};
};

// The objects of one kind that a thread has created.
template <typename T>
struct Owned {
  std::vector<T*> live;
  T* dead = nullptr;
  bool full() const { return live.size() >= kMax; }
  void Add(T* made) {
    if (made != nullptr) live.push_back(made);
  }
};

class Caller {
 public:
  Caller(const Device& device, FuzzInput input)
      : context_(device.context), gid_(device.gid), input_(input) {}

  void Run() {
    pds_.Add(ibv_alloc_pd(context_));
    cqs_.Add(ibv_create_cq(context_, 64, nullptr, nullptr, 0));
    mrs_.Add(ibv_reg_mr(pds_.live[0], memory_.data(), kMemory, kAllAccess));
    for (int i = 0; i < kMaxSteps && !input_.empty(); ++i) Step();
    GiveBack();
  }

 private:
  // Mostly a live object.
  template <typename T>
  T* Pick(Owned<T>& owned) {
    const uint8_t how = input_.Byte();
    if (how >= 32 && !owned.live.empty()) {
      return owned.live[how % owned.live.size()];
    }
    switch (how % 4) {
      case 0:
        return reinterpret_cast<T*>(uintptr_t{input_.Byte()} * 257);
      case 1:
        return reinterpret_cast<T*>(memory_.data() + 1024);
      case 2:
        return reinterpret_cast<T*>(pds_.live.empty() ? nullptr
                                                      : pds_.live.front());
      default:
        return FUZZ_DEAD_HANDLES ? owned.dead : nullptr;
    }
  }
  // A live object for functions that the header calls through it; null if there
  // is none.
  template <typename T>
  T* PickLive(Owned<T>& owned) {
    return owned.live.empty() ? nullptr
                              : owned.live[input_.Byte() % owned.live.size()];
  }
  template <typename T, typename Destroy>
  void DestroyOne(Owned<T>& owned, Destroy destroy) {
    T* const object = Pick(owned);
    if (destroy(object) != 0) return;
    const auto it = std::find(owned.live.begin(), owned.live.end(), object);
    Require(it != owned.live.end(), "what is no object was destroyed");
    owned.live.erase(it);
    owned.dead = object;
  }
  // A count: small, or above every limit.
  uint32_t Count() {
    const uint8_t how = input_.Byte();
    return how < 240 ? how % 40 : 0x7ffffff0u + how;
  }

  void Step() {
    switch (input_.Byte() % 33) {
      case 0:
        if (!pds_.full()) pds_.Add(ibv_alloc_pd(AnyContext()));
        return;
      case 1:
        return DestroyOne(pds_, ibv_dealloc_pd);
      case 2:
        return RegisterMemory();
      case 3:
        return DestroyOne(mrs_, ibv_dereg_mr);
      case 4:
        if (!cqs_.full()) {
          const int entries = static_cast<int>(Count());
          cqs_.Add(
              ibv_create_cq(AnyContext(), entries, nullptr,
                            input_.Byte() < 128 ? nullptr : Pick(channels_),
                            static_cast<int8_t>(input_.Byte() / 100)));
        }
        return;
      case 5:
        return DestroyOne(cqs_, ibv_destroy_cq);
      case 6:
      case 7:
        return CreateQp();
      case 8:
        return DestroyOne(qps_, ibv_destroy_qp);
      case 9:
        return ModifyQp();
      case 10:
      case 11:
        return Connect();
      case 12:
        return QueryQp();
      case 13:
      case 14:
      case 15:
        return PostSend();
      case 16:
        return PostReceive();
      case 17:
      case 18:
        return Poll();
      case 19: {
        ibv_srq_init_attr init = {nullptr, {Count(), Count(), Count()}};
        if (!srqs_.full()) srqs_.Add(ibv_create_srq(Pick(pds_), &init));
        return;
      }
      case 20:
        return DestroyOne(srqs_, ibv_destroy_srq);
      case 21: {
        ibv_srq_attr attr = {Count(), Count(), Count()};
        ibv_modify_srq(Pick(srqs_), &attr, input_.Byte() % 5);
        ibv_query_srq(Pick(srqs_), &attr);
        return;
      }
      case 22: {
        ibv_ah_attr attr = Address();
        if (!ahs_.full()) ahs_.Add(ibv_create_ah(Pick(pds_), &attr));
        return;
      }
      case 23:
        return DestroyOne(ahs_, ibv_destroy_ah);
      case 24:
        if (!channels_.full()) {
          channels_.Add(ibv_create_comp_channel(AnyContext()));
        }
        return;
      case 25:
        return DestroyOne(channels_, ibv_destroy_comp_channel);
      case 26:
        return Query();
      case 27:
        ibv_resize_cq(Pick(cqs_), static_cast<int>(Count()));
        return;
      case 28:
        ibv_rereg_mr(Pick(mrs_), input_.Byte() % 9, Pick(pds_),
                     memory_.data() + input_.Byte(), input_.Take<uint16_t>(),
                     input_.Byte());
        return;
      case 29:
        if (ibv_cq* const cq = PickLive(cqs_)) {
          ibv_req_notify_cq(cq, input_.Byte() & 1);
        }
        ibv_ack_cq_events(nullptr, 1);
        return;
      case 30: {
        rxe_user_comp_cntr_init_attr attr = {0, input_.Byte() % 3u, 0};
        if (!counters_.full()) {
          counters_.Add(rxe_user_create_comp_cntr(AnyContext(), &attr));
        }
        return;
      }
      case 31:
        return DestroyOne(counters_, rxe_user_destroy_comp_cntr);
      case 32: {
        rxe_user_qp_attach_comp_cntr_attr attr = {0, input_.Byte() % 68u};
        rxe_user_qp_attach_comp_cntr(Pick(qps_), Pick(counters_), &attr);
        uint64_t value = 0;
        rxe_user_read_comp_cntr(Pick(counters_), &value);
        return;
      }
    }
  }

  ibv_context* AnyContext() {
    const uint8_t how = input_.Byte();
    if (how >= 16) return context_;
    return reinterpret_cast<ibv_context*>(uintptr_t{how} * 4099);
  }

  void RegisterMemory() {
    if (mrs_.full()) return;
    const uint8_t how = input_.Byte();
    uint8_t* address = memory_.data() + input_.Take<uint16_t>() % kMemory;
    size_t length = memory_.data() + kMemory - address;
    if (how < 32) length = input_.Take<uint64_t>();
    if (how % 32 == 0) address = reinterpret_cast<uint8_t*>(uintptr_t{how});
    // Other memory of the process is only registered on purpose.
    if (length > kMemory && how % 32 != 0) length = SIZE_MAX - how;
    mrs_.Add(ibv_reg_mr_iova2(Pick(pds_), address, length,
                              input_.Take<uint64_t>(),
                              input_.Take<uint16_t>()));
  }

  void CreateQp() {
    if (qps_.full()) return;
    ibv_qp_init_attr init = {};
    init.send_cq = Pick(cqs_);
    init.recv_cq = Pick(cqs_);
    if (input_.Byte() > 200) init.srq = Pick(srqs_);
    init.cap = {Count(), Count(), 1 + Count() % 4, 1 + Count() % 4, Count()};
    const uint8_t type = input_.Byte();
    init.qp_type = static_cast<ibv_qp_type>(type < 128   ? IBV_QPT_RC
                                            : type < 200 ? IBV_QPT_UC
                                                         : type % 16);
    init.sq_sig_all = type & 1;
    qps_.Add(ibv_create_qp(Pick(pds_), &init));
  }

  ibv_ah_attr Address() {
    ibv_ah_attr attr = {};
    attr.is_global = input_.Byte() != 0;
    attr.port_num = input_.Byte() < 240 ? 1 : input_.Byte();
    attr.grh.dgid = gid_;
    if (input_.Byte() > 240) attr.grh.dgid.raw[input_.Byte() % 16] = 0x77;
    attr.grh.sgid_index = input_.Byte() < 240 ? 0 : input_.Byte();
    attr.grh.hop_limit = 1;
    return attr;
  }

  ibv_qp_attr Attributes() {
    ibv_qp_attr attr = {};
    attr.qp_state = static_cast<ibv_qp_state>(input_.Byte() % 9);
    attr.cur_qp_state = static_cast<ibv_qp_state>(input_.Byte() % 9);
    attr.path_mtu = static_cast<ibv_mtu>(input_.Byte() % 7);
    attr.rq_psn = input_.Take<uint32_t>();
    attr.sq_psn = input_.Take<uint32_t>();
    attr.dest_qp_num = input_.Take<uint32_t>();
    attr.qp_access_flags = input_.Byte();
    attr.cap = {Count(), Count(), Count(), Count(), Count()};
    attr.ah_attr = Address();
    attr.pkey_index = input_.Byte() / 128;
    attr.max_rd_atomic = input_.Byte();
    attr.max_dest_rd_atomic = input_.Byte();
    attr.min_rnr_timer = input_.Byte();
    attr.port_num = input_.Byte() < 200 ? 1 : 2;
    attr.timeout = input_.Byte();
    attr.retry_cnt = input_.Byte();
    attr.rnr_retry = input_.Byte();
    return attr;
  }
  void ModifyQp() {
    ibv_qp* const qp = Pick(qps_);
    ibv_qp_attr attr = Attributes();
    ibv_modify_qp(qp, &attr, static_cast<int>(input_.Take<uint32_t>()));
  }

  // Moves it to RTS, with a queue pair of this thread as its peer.
  void Connect() {
    ibv_qp* const qp = PickLive(qps_);
    ibv_qp* const peer = PickLive(qps_);
    if (qp == nullptr) return;
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC;
    ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer->qp_num;
    attr.max_dest_rd_atomic = 4;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid_;
    const bool reliable = qp->qp_type == IBV_QPT_RC;
    ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
            IBV_QP_RQ_PSN |
            (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;
    attr.retry_cnt = attr.rnr_retry = 1;
    attr.max_rd_atomic = 4;
    ibv_modify_qp(qp, &attr,
                  IBV_QP_STATE | IBV_QP_SQ_PSN |
                      (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                : 0));
  }

  void QueryQp() {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    ibv_query_qp(Pick(qps_), &attr, static_cast<int>(input_.Take<uint32_t>()),
                 &init);
  }

  ibv_sge AnySge(bool is_read_at_once) {
    const uint32_t offset = input_.Take<uint16_t>() % kMemory;
    ibv_sge sge = {reinterpret_cast<uint64_t>(memory_.data()) + offset,
                   input_.Take<uint16_t>() % (uint32_t{kMemory} - offset), 0};
    if (!mrs_.live.empty()) sge.lkey = PickLive(mrs_)->lkey;
    const uint8_t how = input_.Byte();
    if (how < 16) sge.lkey ^= input_.Byte();
    // Inline data is read, so its address must be valid.
    if (how > 240 && !is_read_at_once) {
      sge.addr = input_.Take<uint64_t>();
      sge.length = input_.Take<uint32_t>();
    }
    return sge;
  }

  void PostSend() {
    ibv_qp* const live = PickLive(qps_);
    std::array<ibv_send_wr, 3> requests = {};
    std::array<ibv_sge, 3> sges;
    const size_t count = 1 + input_.Below(3);
    for (size_t i = 0; i < count; ++i) {
      ibv_send_wr& wr = requests[i];
      wr.wr_id = input_.Byte();
      wr.opcode = static_cast<ibv_wr_opcode>(
          input_.Byte() < 240 ? input_.Below(16) : input_.Take<uint32_t>());
      wr.send_flags = input_.Byte();
      sges[i] = AnySge((wr.send_flags & IBV_SEND_INLINE) != 0);
      wr.sg_list = &sges[i];
      const uint8_t how = input_.Byte();
      wr.num_sge = how < 200 ? 1 : how < 230 ? 0 : -how;
      wr.wr.rdma = {reinterpret_cast<uint64_t>(memory_.data()) +
                        input_.Take<uint16_t>() % kMemory,
                    mrs_.live.empty() ? how : PickLive(mrs_)->rkey};
      // The members of ud overlap: the address handle and the RDMA address.
      if (live != nullptr && live->qp_type == IBV_QPT_UD) {
        wr.wr.ud = {Pick(ahs_), how, how};
      }
      if (i + 1 < count) wr.next = &requests[i + 1];
    }
    ibv_send_wr* bad = nullptr;
    ibv_qp* const qp = input_.Byte() < 16 ? Pick(qps_) : live;
    const int error = context_->ops.post_send(qp, requests.data(), &bad);
    Require(
        error == 0 || (bad >= requests.data() && bad < requests.data() + count),
        "bad_wr is none of the requests");
  }

  void PostReceive() {
    ibv_sge sge = AnySge(false);
    ibv_recv_wr wr = {};
    wr.sg_list = &sge;
    const uint8_t how = input_.Byte();
    wr.num_sge = how < 200 ? 1 : how < 230 ? 0 : -how;
    ibv_recv_wr* bad = nullptr;
    const int error = how & 1
                          ? context_->ops.post_recv(Pick(qps_), &wr, &bad)
                          : context_->ops.post_srq_recv(Pick(srqs_), &wr, &bad);
    Require(error == 0 || bad == &wr, "bad_wr is not the request");
  }

  void Poll() {
    std::array<ibv_wc, 16> completions;
    const int room = input_.Below(20) - 2;
    const int count = context_->ops.poll_cq(Pick(cqs_), std::min(room, 16),
                                            completions.data());
    Require(count <= std::max(room, 0), "more completions than asked for");
  }

  void Query() {
    const auto port = input_.Byte();
    const int index =
        input_.Byte() < 128 ? input_.Byte() : input_.Take<int32_t>();
    ibv_port_attr attributes;
    ibv_gid gid;
    __be16 pkey;
    ibv_device_attr device;
    ibv_query_port(context_, port, &attributes);
    ibv_query_gid(context_, port, index, &gid);
    ibv_query_pkey(context_, port, index, &pkey);
    ibv_query_device(AnyContext(), &device);
  }

  // In reverse order, so that nothing is in use.
  void GiveBack() {
    const auto all = [](auto& owned, auto destroy) {
      for (auto* object : owned.live) {
        Require(destroy(object) == 0, "an object cannot be given back");
      }
      owned.live.clear();
    };
    all(qps_, ibv_destroy_qp);
    all(counters_, rxe_user_destroy_comp_cntr);
    all(srqs_, ibv_destroy_srq);
    all(ahs_, ibv_destroy_ah);
    all(cqs_, ibv_destroy_cq);
    all(channels_, ibv_destroy_comp_channel);
    all(mrs_, ibv_dereg_mr);
    all(pds_, ibv_dealloc_pd);
  }

  ibv_context* const context_;
  const ibv_gid gid_;
  FuzzInput input_;
  alignas(8) std::array<uint8_t, kMemory> memory_ = {};
  Owned<ibv_pd> pds_;
  Owned<ibv_mr> mrs_;
  Owned<ibv_cq> cqs_;
  Owned<ibv_qp> qps_;
  Owned<rxe_user_comp_cntr> counters_;
  Owned<ibv_srq> srqs_;
  Owned<ibv_ah> ahs_;
  Owned<ibv_comp_channel> channels_;
};

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Device device;
  if (size == 0) return 0;
  const size_t callers = 1 + data[0] % 3;
  const size_t share = size / callers;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < callers; ++i) {
    threads.emplace_back([&, i] {
      fuzz::Caller(device, fuzz::FuzzInput(data + i * share, share)).Run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
