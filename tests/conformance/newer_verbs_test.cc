// Functions that are newer than Debian's header: ibv_reg_mr_ex(3),
// ibv_alloc_buf(3), ibv_alloc_dmah(3), ibv_query_port_speed(3),
// ibv_wr_opcode_str.
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tests/conformance/fixture.h"

extern "C" {

struct ibv_buf;
struct ibv_mr_init_attr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  void* dmah;
  ibv_buf* buf;
};

ibv_mr* ibv_reg_mr_ex(ibv_pd*, ibv_mr_init_attr*);
void* ibv_alloc_buf(ibv_pd*, size_t, ibv_buf**);
void ibv_free_buf(ibv_buf*);
ibv_mr* ibv_reg_buf_mr(ibv_pd*, ibv_buf*, void*, size_t, int);
void* ibv_alloc_dmah(ibv_context*, void*);
int ibv_dealloc_dmah(void*);
int ibv_query_port_speed(ibv_context*, uint32_t, uint64_t*);
int ibv_export_buf_dmabuf_fd(ibv_buf*);
const char* ibv_wr_opcode_str(ibv_wr_opcode);
}

namespace conformance {
namespace {

enum : uint64_t {  // comp_mask
  kIova = 1 << 0,
  kAddr = 1 << 1,
  kFd = 1 << 2,
  kFdOffset = 1 << 3,
  kDmah = 1 << 4,
  kBuf = 1 << 5,
};

class NewerVerbsTest : public PairTest {
 protected:
  // SENDs the memory of `mr` to the other end of the pair.
  void ExpectUsable(const ibv_mr& mr, uint64_t address, const uint8_t* bytes) {
    constexpr uint32_t kLength = 1000;
    ASSERT_EQ(Receive(b_, 1, 0, kLength), 0);
    ibv_sge sge = {address, kLength, mr.lkey};
    ibv_send_wr wr = {};
    wr.wr_id = 2;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
    ExpectSuccess(a_.cq, 2);
    ExpectSuccess(b_.cq, 1);
    EXPECT_EQ(memcmp(b_.memory.data(), bytes, kLength), 0);
  }
  ibv_mr* RegisterEx(uint64_t mask, uint64_t iova = 0, ibv_buf* buf = nullptr) {
    ibv_mr_init_attr attr = {.length = sizeof(bytes_),
                             .access = IBV_ACCESS_LOCAL_WRITE,
                             .comp_mask = mask,
                             .iova = iova,
                             .addr = bytes_,
                             .fd = -1,
                             .fd_offset = 0,
                             .dmah = nullptr,
                             .buf = buf};
    return ibv_reg_mr_ex(pd_, &attr);
  }

  uint8_t bytes_[4096] = {};
};

TEST_F(NewerVerbsTest, RegisterByAttributes) {
  FillPattern(bytes_, sizeof(bytes_), 1);
  ibv_mr* mr = RegisterEx(kAddr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, bytes_);
  EXPECT_EQ(mr->length, sizeof(bytes_));
  ExpectUsable(*mr, reinterpret_cast<uint64_t>(bytes_ + 8), bytes_ + 8);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);

  mr = RegisterEx(kAddr | kIova, 0x7000);
  ASSERT_NE(mr, nullptr);
  ExpectUsable(*mr, 0x7000 + 16, bytes_ + 16);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);

  EXPECT_EQ(RegisterEx(0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr_ex(pd_, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (uint64_t mask : {kFd | kFdOffset, kAddr | kDmah, kAddr | 1 << 20}) {
    EXPECT_EQ(RegisterEx(mask), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP) << mask;
  }
}

TEST_F(NewerVerbsTest, BuffersOfTheDevice) {
  ibv_buf* buf = nullptr;
  auto* const bytes = static_cast<uint8_t*>(ibv_alloc_buf(pd_, 10000, &buf));
  ASSERT_NE(bytes, nullptr);
  FillPattern(bytes, 10000, 2);
  ibv_mr* const mr =
      ibv_reg_buf_mr(pd_, buf, bytes + 100, 9900, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  ExpectUsable(*mr, reinterpret_cast<uint64_t>(bytes + 8000), bytes + 8000);

  ibv_mr_init_attr attr = {.length = 5000,
                           .access = 0,
                           .comp_mask = kBuf | kAddr,
                           .iova = 0,
                           .addr = bytes + 5000,
                           .fd = -1,
                           .fd_offset = 0,
                           .dmah = nullptr,
                           .buf = buf};
  ibv_mr* const part = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(part, nullptr);
  ExpectUsable(*part, reinterpret_cast<uint64_t>(bytes + 6000), bytes + 6000);

  // Beyond its end, before its start, and of another domain.
  attr.length = 5001;
  EXPECT_EQ(ibv_reg_mr_ex(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_buf_mr(pd_, buf, bytes + 1, 10000, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_buf_mr(pd_, buf, bytes - 1, 10, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* const other = ibv_alloc_pd(context_);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(ibv_reg_buf_mr(other, buf, bytes, 100, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);

  EXPECT_EQ(ibv_export_buf_dmabuf_fd(buf), -1);
  EXPECT_EQ(errno, ENODATA);
  EXPECT_EQ(ibv_export_buf_dmabuf_fd(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(RegisterEx(kAddr | kBuf | kFd, 0, buf), nullptr);
  EXPECT_EQ(errno, EINVAL);

  EXPECT_EQ(ibv_dereg_mr(part), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_free_buf(buf);
  ibv_free_buf(nullptr);
  EXPECT_EQ(ibv_alloc_buf(pd_, 0, &buf), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_alloc_buf(nullptr, 10, &buf), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(NewerVerbsTest, BuffersOfAParentDomain) {
  ibv_parent_domain_init_attr parent = {};
  parent.pd = pd_;
  parent.comp_mask = 1 << 2;  // ALLOW_CC_UNPROTECTED_ALLOC
  ibv_pd* const domain = ibv_alloc_parent_domain(context_, &parent);
  ASSERT_NE(domain, nullptr) << strerror(errno);
  ibv_buf* buf = nullptr;
  void* const bytes = ibv_alloc_buf(domain, 5000, &buf);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(ibv_reg_buf_mr(pd_, buf, bytes, 100, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* const mr =
      ibv_reg_buf_mr(domain, buf, bytes, 5000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_free_buf(buf);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST_F(NewerVerbsTest, NoHintsForABus) {
  EXPECT_EQ(ibv_alloc_dmah(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_dmah(nullptr), EOPNOTSUPP);
}

TEST_F(NewerVerbsTest, TheSpeedOfThePort) {
  uint64_t speed = 0;  // in units of 100 Mbit/s
  ASSERT_EQ(ibv_query_port_speed(context_, 1, &speed), 0);
  EXPECT_GT(speed, 0u);
  EXPECT_EQ(ibv_query_port_speed(context_, 2, &speed), EINVAL);
  EXPECT_EQ(ibv_query_port_speed(context_, 1, nullptr), EINVAL);
}

TEST_F(NewerVerbsTest, NamesOfRequests) {
  const char* const names[] = {"rdma-write",
                               "rdma-write-with-imm",
                               "send",
                               "send-with-imm",
                               "rdma-read",
                               "atomic-cmp-and-swp",
                               "atomic-fetch-and-add",
                               "local-inv",
                               "bind-mw",
                               "send-with-inv",
                               "tso",
                               "driver1",
                               "unknown",
                               "unknown",
                               "flush",
                               "atomic-write",
                               "unknown"};
  // By number: Debian 12's enumeration cannot hold all of them.
  const auto name_of =
      reinterpret_cast<const char* (*)(int)>(&ibv_wr_opcode_str);
  for (int i = 0; i < 17; ++i) EXPECT_STREQ(name_of(i), names[i]) << i;
}

}  // namespace
}  // namespace conformance
