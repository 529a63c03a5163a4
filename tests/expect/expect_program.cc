// A verbs program for tests of rxe-user: queue pairs of one process, connected
// to each other. `expect_program WHAT END`.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSends = 5;
constexpr uint32_t kBytes = 3000;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "expect_program: %s: %s\n", what, std::strerror(errno));
  std::_Exit(3);
}

template <typename T>
T* Need(T* pointer, const char* what) {
  if (pointer == nullptr) Fail(what);
  return pointer;
}

void Need(int error, const char* what) {
  if (error == 0) return;
  errno = error;
  Fail(what);
}

// How attributes that the second queue pair gets differ from those of the first
// one.
struct Mistake {
  uint32_t psn = 0;
  uint32_t qpn = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t host = 0;
} mistake;

struct Pair {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* a = nullptr;
  ibv_qp* b = nullptr;
  char buffer[2 * kBytes] = {};

  void Open() {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    if (devices == nullptr || count == 0) Fail("no device");
    context = Need(ibv_open_device(devices[0]), "ibv_open_device");
    ibv_free_device_list(devices);
    pd = Need(ibv_alloc_pd(context), "ibv_alloc_pd");
    cq = Need(ibv_create_cq(context, 64, nullptr, nullptr, 0), "ibv_create_cq");
    mr = Need(ibv_reg_mr(pd, buffer, sizeof(buffer),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
              "ibv_reg_mr");
    a = CreateQp();
    b = CreateQp();
    Connect(a, b);
    Connect(b, a);
  }
  ibv_qp* CreateQp() {
    ibv_qp_init_attr init = {};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.cap = {16, 16, 1, 1, 0};
    init.sq_sig_all = 1;
    return Need(ibv_create_qp(pd, &init), "ibv_create_qp");
  }
  void Connect(ibv_qp* own, ibv_qp* peer) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    Need(ibv_modify_qp(own, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           IBV_QP_ACCESS_FLAGS),
         "INIT");
    attr.qp_state = IBV_QPS_RTR;
    const Mistake made = own == b ? mistake : Mistake();
    attr.path_mtu = made.mtu;
    attr.dest_qp_num = peer->qp_num + made.qpn;
    attr.rq_psn = 100 + made.psn;
    attr.min_rnr_timer = 1;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 1;
    Need(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid), "GID");
    attr.ah_attr.grh.dgid.raw[15] += made.host;
    Need(ibv_modify_qp(own, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                           IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 1;
    attr.sq_psn = 100;
    attr.max_rd_atomic = 1;
    Need(ibv_modify_qp(own, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
  }
  void Receive(uint64_t wr_id) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(buffer + kBytes), kBytes,
                   mr->lkey};
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    Need(ibv_post_recv(b, &wr, &bad), "ibv_post_recv");
  }
  void Send(uint64_t wr_id, ibv_wr_opcode opcode, uint32_t rkey) {
    SendFrom(buffer, mr, buffer + kBytes, wr_id, opcode, rkey);
  }
  // `to`: the peer's memory of a WRITE or READ.
  void SendFrom(const void* memory, const ibv_mr* region, const void* to,
                uint64_t wr_id, ibv_wr_opcode opcode, uint32_t rkey,
                unsigned flags = 0) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(memory), kBytes, region->lkey};
    ibv_send_wr wr = {};
    ibv_send_wr* bad = nullptr;
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = flags;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to);
    wr.wr.rdma.rkey = rkey;
    Need(ibv_post_send(a, &wr, &bad), "ibv_post_send");
  }
  void Await(int completions) {
    ibv_wc wc;
    while (completions > 0) {
      const int n = ibv_poll_cq(cq, 1, &wc);
      if (n < 0) Fail("ibv_poll_cq");
      completions -= n;
    }
  }
};

// The number of interrupts from the terminal.
volatile sig_atomic_t interrupts = 0;
void OnInterrupt(int) { interrupts = interrupts + 1; }
volatile sig_atomic_t asked = 0;
void OnUser(int) { asked = 1; }

void Print(const std::string& line) {
  (void)!write(STDOUT_FILENO, line.data(), line.size());
}

// Runs a round for each byte of standard input: registers memory, sends, and
// prints the results.
void Rounds(Pair* pair) {
  Print("ready " + std::to_string(getpid()) + "\n");
  char byte;
  for (int round = 1; read(STDIN_FILENO, &byte, 1) == 1; ++round) {
    ibv_mr* const mr = ibv_reg_mr(pair->pd, pair->buffer, 1, 0);
    const std::string registered =
        mr != nullptr ? "registered" : std::strerror(errno);
    if (mr != nullptr) Need(ibv_dereg_mr(mr), "ibv_dereg_mr");
    pair->Receive(1);
    pair->Send(2, IBV_WR_SEND, 0);
    pair->Await(2);
    Print("round " + std::to_string(round) + ": " + registered + "\n");
  }
}

// Registers memory 50 times; the first call was made before. Its bug: it does
// not survive failures of both the 13th and the 31st call.
void Calls(Pair* pair) {
  int failures = 0;
  for (int call = 2; call <= 51; ++call) {
    ibv_mr* const mr = ibv_reg_mr(pair->pd, pair->buffer, 1, 0);
    if (mr == nullptr && (call == 13 || call == 31)) ++failures;
    if (mr != nullptr) Need(ibv_dereg_mr(mr), "ibv_dereg_mr");
  }
  if (failures == 2) std::exit(11);
}

// Four pairs, each with a thread that sends and waits for completions.
void Load() {
  constexpr int kPairs = 4;
  constexpr int kRounds = 40;  // 3 packets each
  // Static, since they must exist until the program ends.
  static Pair pairs[kPairs];
  std::string numbers = "queue pairs";
  for (Pair& pair : pairs) {
    pair.Open();
    numbers += " " + std::to_string(pair.a->qp_num);
    numbers += " " + std::to_string(pair.b->qp_num);
  }
  Print(numbers + "\n");
  std::vector<std::thread> threads;
  for (Pair& pair : pairs) {
    threads.emplace_back([&pair] {
      for (int round = 0; round < kRounds; ++round) {
        pair.Receive(1);
        pair.Send(2, IBV_WR_SEND, 0);
        pair.Await(2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A WRITE from a block of the heap. `what`: heap_freed, before the post;
// heap_freed_early, before the completion; heap_uninitialized, except its first
// 8 bytes; heap_good.
void SendFromHeap(Pair* pair, const std::string& what) {
  auto* const block = Need(static_cast<char*>(std::malloc(kBytes)), "malloc");
  std::memset(block, 1, what == "heap_uninitialized" ? 8 : kBytes);
  ibv_mr* const region =
      Need(ibv_reg_mr(pair->pd, block, kBytes, 0), "ibv_reg_mr");
  if (what == "heap_freed") std::free(block);
  pair->SendFrom(block, region, pair->buffer, 5, IBV_WR_RDMA_WRITE,
                 pair->mr->rkey);
  if (what == "heap_freed_early") std::free(block);
  pair->Await(1);
  if (what == "heap_good" || what == "heap_uninitialized") std::free(block);
  Need(ibv_dereg_mr(region), "ibv_dereg_mr");
}

// READs into a block of the heap, and posts a WRITE of the block at once.
void SendWhatAReadBrings(Pair* pair) {
  auto* const block = Need(static_cast<char*>(std::malloc(kBytes)), "malloc");
  ibv_mr* const region =
      Need(ibv_reg_mr(pair->pd, block, kBytes, IBV_ACCESS_LOCAL_WRITE),
           "ibv_reg_mr");
  ibv_mr* const source =
      Need(ibv_reg_mr(pair->pd, pair->buffer, kBytes, IBV_ACCESS_REMOTE_READ),
           "ibv_reg_mr");
  pair->SendFrom(block, region, pair->buffer, 5, IBV_WR_RDMA_READ,
                 source->rkey);
  pair->SendFrom(block, region, pair->buffer + kBytes, 6, IBV_WR_RDMA_WRITE,
                 pair->mr->rkey, IBV_SEND_FENCE);
  pair->Await(2);
  Need(ibv_dereg_mr(source), "ibv_dereg_mr");
  Need(ibv_dereg_mr(region), "ibv_dereg_mr");
  std::free(block);
}

// Messages of one queue pair to the other, whose contents the program uses.
void UseContents(Pair* pair) {
  int ones = 0;
  for (int round = 0; round < 50; ++round) {
    std::memset(pair->buffer, round & 1, kBytes);
    pair->Receive(1);
    pair->Send(2, IBV_WR_SEND, 0);
    pair->Await(2);
    // Writes back the received bytes.
    std::memset(pair->buffer, 2, kBytes);
    pair->SendFrom(pair->buffer + kBytes, pair->mr, pair->buffer, 3,
                   IBV_WR_RDMA_WRITE, pair->mr->rkey);
    pair->Await(1);
    for (uint32_t i = 0; i < kBytes; ++i) ones += pair->buffer[i] == 1;
  }
  Print("ones " + std::to_string(ones) + "\n");
}

void Do(const std::string& what) {
  static Pair pair;
  if (what == "none") return;
  if (what == "load") return Load();
  if (what == "bad_psn") mistake.psn = 1;
  if (what == "bad_qpn") mistake.qpn = 1;
  if (what == "bad_mtu") mistake.mtu = IBV_MTU_2048;
  if (what == "bad_gid") mistake.host = 1;
  pair.Open();
  if (what.starts_with("bad_") && what != "bad_rkey") return;
  if (what == "send") {
    for (int i = 0; i < kSends; ++i) {
      pair.Receive(static_cast<uint64_t>(100 + i));
      pair.Send(static_cast<uint64_t>(i), IBV_WR_SEND, 0);
      pair.Await(2);
    }
  } else if (what == "rounds") {
    Rounds(&pair);
  } else if (what == "calls") {
    Calls(&pair);
  } else if (what == "contents") {
    UseContents(&pair);
  } else if (what == "heap_fenced") {
    SendWhatAReadBrings(&pair);
  } else if (what.starts_with("heap_")) {
    SendFromHeap(&pair, what);
  } else if (what == "bad_rkey") {
    pair.Send(77, IBV_WR_RDMA_WRITE, pair.mr->rkey + 1);
    pair.Await(1);
  } else if (what == "rnr") {
    // Without a receive, the message is sent twice, and fails.
    pair.Send(88, IBV_WR_SEND, 0);
    pair.Await(1);
  } else {
    Fail("what?");
  }
}

void End(const std::string& end) {
  if (end == "exit7") std::exit(7);
  if (end == "_exit") _exit(0);
  if (end == "term") raise(SIGTERM);
  if (end == "kill") raise(SIGKILL);
  if (end == "segv") {
    volatile int* const nothing = nullptr;
    *nothing = 1;
  }
  if (end == "wait") {
    Print(std::to_string(getpid()) + "\n");
    for (;;) pause();
  }
  if (end == "count") {
    signal(SIGINT, OnInterrupt);
    signal(SIGUSR1, OnUser);
    sigset_t set;
    sigset_t before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    Print("ready " + std::to_string(getpid()) + "\n");
    int told = 0;
    while (asked == 0) {
      sigsuspend(&before);
      if (told++ == 0) Print("interrupted\n");
    }
    Print("interrupts " + std::to_string(interrupts) + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::strcmp(argv[1], "fork") == 0) {
    const pid_t child = fork();
    Do("send");
    if (child == 0) _exit(0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 4;
  } else {
    Do(argv[1]);
  }
  End(argv[2]);
  return 0;
}
