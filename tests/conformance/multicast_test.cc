// Multicast: ibv_attach_mcast(3) and sends to a group, on the loopback
// interface. There, too, the kernel gives each process a copy.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint32_t kQkey = 0x11223344;
constexpr uint32_t kGrh = 40;
constexpr uint32_t kMulticastQpn = 0xffffff;

ibv_gid GroupOf(const char* address) {
  ibv_gid gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  EXPECT_EQ(inet_pton(AF_INET, address, gid.raw + 12), 1);
  return gid;
}

class MulticastTest : public PairTest {
 protected:
  MulticastTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    Make(&a_);
    Make(&b_);
  }
  void Make(Side* side, QpOptions options = {}) {
    options.type = IBV_QPT_UD;
    MakeSide(side, options);
    ToRtsAsUd(side->qp, kQkey);
  }
  ibv_ah* AddressOf(const ibv_gid& gid) {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid;
    attr.grh.sgid_index = gid_index_;
    return ibv_create_ah(pd_, &attr);
  }
  int SendTo(const Side& from, ibv_ah* ah, uint64_t wr_id, uint32_t length,
             uint32_t qpn = kMulticastQpn) {
    ibv_sge sge = from.Sge(0, length);
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = kQkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(from.qp, &wr, &bad);
  }
  // Expects that nothing arrived: a message from `side` to itself takes the
  // posted receive `wr_id` at `offset`.
  void ExpectNothingCame(Side& side, uint64_t wr_id) {
    ibv_ah* self = AddressOf(gid_);
    ASSERT_NE(self, nullptr);
    ASSERT_EQ(SendTo(side, self, 900, 3, side.qp->qp_num), 0);
    bool received = false;
    for (int i = 0; i < 2; ++i) {
      const ibv_wc wc = Next(side.cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.wr_id != wr_id) continue;
      received = true;
      EXPECT_EQ(wc.byte_len, kGrh + 3);
    }
    EXPECT_TRUE(received);
    EXPECT_EQ(ibv_destroy_ah(self), 0);
  }

  static constexpr size_t kReceives = 1 << 19;  // offset of receives
  const ibv_gid group_ = GroupOf("239.77.1.2");
};

// Whether the interface lo is in the IPv4 group, by /proc/net/igmp.
bool InterfaceHasJoined(const ibv_gid& group) {
  uint32_t address;
  std::memcpy(&address, group.raw + 12, sizeof(address));
  char wanted[16];
  std::snprintf(wanted, sizeof(wanted), "%08X", address);
  std::ifstream file("/proc/net/igmp");
  for (std::string line; std::getline(file, line);) {
    if (line.find(wanted) != std::string::npos) return true;
  }
  return false;
}

TEST_F(MulticastTest, EveryAttachedQueuePairGetsACopy) {
  Side c = {};
  Make(&c);
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);  // still attached once
  ASSERT_EQ(ibv_attach_mcast(c.qp, &group_, 0), 0);
  ibv_ah* ah = AddressOf(group_);
  ASSERT_NE(ah, nullptr) << std::strerror(errno);
  for (const uint32_t size : {1u, 1000u, 4096u}) {
    FillPattern(a_.memory.data(), size, size);
    ASSERT_EQ(Receive(b_, 1, kReceives, 8192), 0);
    ASSERT_EQ(Receive(b_, 2, kReceives + 8192, 8192), 0);
    ASSERT_EQ(Receive(c, 3, kReceives, 8192), 0);
    ASSERT_EQ(SendTo(a_, ah, 4, size), 0);
    ExpectSuccess(a_.cq, 4);
    for (Side* side : {&b_, &c}) {
      const ibv_wc wc = ExpectSuccess(side->cq, side == &b_ ? 1 : 3);
      EXPECT_EQ(wc.byte_len, kGrh + size);
      EXPECT_EQ(wc.src_qp, a_.qp->qp_num);
      EXPECT_EQ(wc.qp_num, side->qp->qp_num);
      const uint8_t* const grh = side->memory.data() + kReceives;
      EXPECT_TRUE(HasPattern(grh + kGrh, size, size));
      // The IPv4 header names the group.
      EXPECT_EQ(std::memcmp(grh + 36, group_.raw + 12, 4), 0);
    }
    ExpectNothingCame(b_, 2);
  }
  EXPECT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(c.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  DestroySide(&c);
}

// The descriptors of this process; only those of `kind`, as named in /proc.
std::set<int> Descriptors(const std::string& kind) {
  std::set<int> found;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string is = std::filesystem::read_symlink(entry, gone).string();
    if (is.starts_with(kind)) found.insert(std::stoi(entry.path().filename()));
  }
  return found;
}

// The descriptors that threads of this process watch with epoll(7).
std::set<int> WaitedFor() {
  std::set<int> found;
  for (const int fd : Descriptors("anon_inode:[eventpoll]")) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
    std::string word;
    while (info >> word) {
      int waited_for;
      if (word == "tfd:" && info >> waited_for) found.insert(waited_for);
    }
  }
  return found;
}

// The application may get the number of the closed group socket for its own.
TEST_F(MulticastTest, TheSocketOfALeftGroupIsNotWatched) {
  const std::set<int> before = Descriptors("socket:");
  const std::set<int> idle = WaitedFor();
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
  std::set<int> of_group = Descriptors("socket:");
  for (const int fd : before) of_group.erase(fd);
  ASSERT_FALSE(of_group.empty());
  ASSERT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  for (const int fd : of_group) ASSERT_GE(dup2(pipe_fds[0], fd), 0);

  // While the application polls, the helper thread watches no socket of the
  // lane; afterwards it watches all of them again.
  const auto waits_as_before = [&idle] {
    const std::set<int> now = WaitedFor();
    return std::includes(now.begin(), now.end(), idle.begin(), idle.end());
  };
  ibv_ah* to_b = AddressOf(gid_);
  ASSERT_NE(to_b, nullptr);
  const int64_t limit = NowMs() + kTimeoutMs;
  do {
    ASSERT_LT(NowMs(), limit);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(Receive(b_, 1, kReceives, 8192), 0);
      ASSERT_EQ(SendTo(a_, to_b, 2, 8, b_.qp->qp_num), 0);
      ExpectSuccess(a_.cq, 2);
      ExpectSuccess(b_.cq, 1);
    }
  } while (waits_as_before());
  while (!waits_as_before()) {
    ASSERT_LT(NowMs(), limit);
    usleep(1000);
  }
  const std::set<int> waited_for = WaitedFor();
  for (const int fd : of_group) EXPECT_FALSE(waited_for.contains(fd)) << fd;
  for (const int fd : of_group) close(fd);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  EXPECT_EQ(ibv_destroy_ah(to_b), 0);
}

// IBA vol. 1, 10.5.2; IBV_QP_CREATE_BLOCK_SELF_MCAST_LB of ibv_create_qp_ex(3)
// requests the same.
TEST_F(MulticastTest, TheSenderItselfGetsNone) {
  Side asked;
  Make(&asked, {.send_ops = IBV_QP_EX_WITH_SEND,
                .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB});
  if (HasFatalFailure()) return;
  ASSERT_EQ(ibv_attach_mcast(asked.qp, &group_, 0), 0);
  ASSERT_EQ(Receive(asked, 4, kReceives, 8192), 0);
  ASSERT_EQ(ibv_attach_mcast(a_.qp, &group_, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
  ibv_ah* ah = AddressOf(group_);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(Receive(a_, 1, kReceives, 8192), 0);
  ASSERT_EQ(Receive(b_, 2, kReceives, 8192), 0);
  ASSERT_EQ(SendTo(a_, ah, 3, 64), 0);
  ExpectSuccess(a_.cq, 3);
  ExpectSuccess(b_.cq, 2);
  ExpectSuccess(asked.cq, 4);
  ExpectNothingCame(a_, 1);
  ASSERT_EQ(Receive(asked, 5, kReceives, 8192), 0);
  ASSERT_EQ(Receive(b_, 6, kReceives, 8192), 0);
  ASSERT_EQ(SendTo(asked, ah, 7, 64), 0);
  ExpectSuccess(asked.cq, 7);
  ExpectSuccess(b_.cq, 6);
  ExpectNothingCame(asked, 5);
  EXPECT_EQ(ibv_detach_mcast(a_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(asked.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  DestroySide(&asked);
}

TEST_F(MulticastTest, TheInterfaceJoinsAndLeaves) {
  EXPECT_FALSE(InterfaceHasJoined(group_));
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ibv_attach_mcast(a_.qp, &group_, 0), 0);
    ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
    EXPECT_TRUE(InterfaceHasJoined(group_));
    EXPECT_EQ(ibv_detach_mcast(a_.qp, &group_, 0), 0);
    EXPECT_TRUE(InterfaceHasJoined(group_));
    EXPECT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
    EXPECT_FALSE(InterfaceHasJoined(group_));
  }
}

TEST_F(MulticastTest, OtherGroupsAreNotReceived) {
  const ibv_gid other = GroupOf("239.77.1.3");
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(a_.qp, &other, 0), 0);
  ibv_ah* ah = AddressOf(other);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(Receive(b_, 1, kReceives, 8192), 0);
  ASSERT_EQ(SendTo(a_, ah, 3, 64), 0);
  ExpectSuccess(a_.cq, 3);
  ExpectNothingCame(b_, 1);
  EXPECT_EQ(ibv_detach_mcast(a_.qp, &other, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(MulticastTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(ibv_attach_mcast(a_.qp, &gid_, 0), EINVAL);  // not a group address
  EXPECT_EQ(ibv_detach_mcast(a_.qp, &group_, 0), EINVAL);
  Side rc = {};
  MakeSide(&rc);
  EXPECT_EQ(ibv_attach_mcast(rc.qp, &group_, 0), EINVAL);
  DestroySide(&rc);
  // Must be detached first.
  ASSERT_EQ(ibv_attach_mcast(a_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(a_.qp), EBUSY);
  EXPECT_EQ(ibv_detach_mcast(a_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(a_.qp, &group_, 0), EINVAL);
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_GT(attr.max_mcast_grp, 0);
  EXPECT_GT(attr.max_mcast_qp_attach, 1);
  // Exactly as many groups as reported.
  std::vector<ibv_gid> groups;
  for (int i = 0; i < attr.max_mcast_grp; ++i) {
    ibv_gid group = group_;
    group.raw[14] = static_cast<uint8_t>(100 + i / 200);
    group.raw[15] = static_cast<uint8_t>(i % 200);
    ASSERT_EQ(ibv_attach_mcast(a_.qp, &group, 0), 0) << i;
    groups.push_back(group);
  }
  EXPECT_EQ(ibv_attach_mcast(a_.qp, &group_, 0), ENOMEM);
  for (const ibv_gid& group : groups) {
    EXPECT_EQ(ibv_detach_mcast(a_.qp, &group, 0), 0);
  }
}

TEST_F(MulticastTest, AnAnswerFindsTheSender) {
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
  ibv_ah* ah = AddressOf(group_);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(Receive(b_, 1, kReceives, 8192), 0);
  ASSERT_EQ(Receive(a_, 2, kReceives, 8192), 0);
  ASSERT_EQ(SendTo(a_, ah, 3, 64), 0);
  ExpectSuccess(a_.cq, 3);
  ibv_wc wc = ExpectSuccess(b_.cq, 1);
  ibv_ah* back = ibv_create_ah_from_wc(
      pd_, &wc, reinterpret_cast<ibv_grh*>(b_.memory.data() + kReceives), 1);
  ASSERT_NE(back, nullptr) << std::strerror(errno);
  ASSERT_EQ(SendTo(b_, back, 4, 10, wc.src_qp), 0);
  ExpectSuccess(b_.cq, 4);
  EXPECT_EQ(ExpectSuccess(a_.cq, 2).byte_len, kGrh + 10);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
  EXPECT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// A program that joins the group: writes to `ready` when it has joined, and
// returns 0 when a message of `length` bytes has arrived.
int Listen(const char* device_name, const ibv_gid& group, uint32_t length,
           int ready) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(list[i]), device_name) == 0) {
      context = ibv_open_device(list[i]);
    }
  }
  if (context == nullptr) return 2;
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
  static uint8_t memory[8192];
  ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(pd, &init);
  if (mr == nullptr || qp == nullptr) return 3;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  if (ibv_modify_qp(
          qp, &attr,
          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0) {
    return 4;
  }
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) return 5;
  ibv_sge sge = {reinterpret_cast<uint64_t>(memory), sizeof(memory), mr->lkey};
  ibv_recv_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad;
  if (ibv_post_recv(qp, &wr, &bad) != 0) return 6;
  if (ibv_attach_mcast(qp, &group, 0) != 0) return 7;
  if (write(ready, "r", 1) != 1) return 8;
  const int64_t limit = NowMs() + kTimeoutMs;
  ibv_wc wc;
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
    if (NowMs() > limit) return 9;
  }
  return wc.status == IBV_WC_SUCCESS && wc.byte_len == kGrh + length ? 0 : 10;
}

TEST_F(MulticastTest, EveryProcessGetsACopy) {
  constexpr int kProcesses = 3;
  pid_t children[kProcesses];
  const std::string name = ibv_get_device_name(context_->device);
  for (pid_t& child : children) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(Listen(name.c_str(), group_, 500, ready[1]));
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);  // or it has ended
    close(ready[0]);
  }
  ASSERT_EQ(ibv_attach_mcast(b_.qp, &group_, 0), 0);
  ASSERT_EQ(Receive(b_, 1, kReceives, 8192), 0);
  ibv_ah* ah = AddressOf(group_);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(SendTo(a_, ah, 3, 500), 0);
  ExpectSuccess(a_.cq, 3);
  ExpectSuccess(b_.cq, 1);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_EQ(ibv_detach_mcast(b_.qp, &group_, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// As when a program is killed: the socket is closed, which ends the membership.
TEST_F(MulticastTest, ClosingTheDeviceLeaves) {
  ibv_context* other = ibv_open_device(context_->device);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = ibv_alloc_pd(other);
  ibv_cq* cq = ibv_create_cq(other, 8, nullptr, nullptr, 0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(ibv_attach_mcast(qp, &group_, 0), 0);
  EXPECT_TRUE(InterfaceHasJoined(group_));
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_FALSE(InterfaceHasJoined(group_));
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace conformance
