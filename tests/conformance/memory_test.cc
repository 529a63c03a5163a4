// Kinds of memory regions and operations on them: ibv_rereg_mr(3),
// ibv_alloc_null_mr(3), on-demand paging, ibv_advise_mr(3), ibv_alloc_dm(3).
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
constexpr int kOnDemand = kAllAccess | IBV_ACCESS_ON_DEMAND;

uint64_t AddressOf(const void* bytes) {
  return reinterpret_cast<uint64_t>(bytes);
}

class MemoryTest : public PairTest {
 protected:
  ibv_mr* Register(void* at, size_t length, int access) {
    return ibv_reg_mr(pd_, at, length, static_cast<unsigned>(access));
  }
  // WRITEs 100 bytes of a_ to the address and returns the status.
  ibv_wc_status Write(uint64_t remote_addr, uint32_t rkey) {
    FillPattern(a_.memory.data(), 100, 1);
    if (Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED, remote_addr,
             rkey) != 0) {
      return IBV_WC_GENERAL_ERR;
    }
    return Next(a_.cq).status;
  }
  int Post(ibv_wr_opcode opcode, const ibv_sge& local, uint64_t remote_addr,
           uint32_t rkey) {
    ibv_sge sge = local;
    ibv_send_wr wr = {};
    wr.wr_id = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {remote_addr, rkey};
    ibv_send_wr* bad;
    return ibv_post_send(a_.qp, &wr, &bad);
  }
  // Reserves address space, so that nothing else is mapped there.
  uint8_t* Reserve(size_t bytes) {
    void* at =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
  }
};

// --- Reregistration.

TEST_F(MemoryTest, ReregistrationChangesAnyCombination) {
  std::vector<uint8_t> other(2 * kPage);
  ibv_pd* pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  for (int flags = 1; flags < 8; ++flags) {
    ibv_mr* mr = Register(b_.memory.data(), kPage, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    const uint32_t key = mr->rkey;
    const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool leaves = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    const bool opens = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    // An access without its flag is refused (rdma-core). Other arguments
    // without a flag are not read.
    if (!opens) {
      errno = 0;
      EXPECT_EQ(ibv_rereg_mr(mr, flags, pd, other.data(), other.size(),
                             IBV_ACCESS_LOCAL_WRITE),
                IBV_REREG_MR_ERR_INPUT);
      EXPECT_EQ(errno, EINVAL);
      EXPECT_EQ(mr->addr, b_.memory.data());
      EXPECT_EQ(mr->pd, pd_);
    }
    ASSERT_EQ(ibv_rereg_mr(mr, flags, leaves ? pd : nullptr,
                           moves ? other.data() : nullptr,
                           moves ? other.size() : 1, opens ? kAllAccess : 0),
              0);
    EXPECT_EQ(mr->rkey, key);
    EXPECT_EQ(mr->addr, moves ? other.data() : b_.memory.data());
    EXPECT_EQ(mr->length, moves ? other.size() : kPage);
    EXPECT_EQ(mr->pd, leaves ? pd : pd_);
    const ibv_wc_status status = Write(AddressOf(mr->addr), key);
    EXPECT_EQ(status, opens && !leaves ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR)
        << flags;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    if (status != IBV_WC_SUCCESS) {
      DestroySide(&a_);
      DestroySide(&b_);
      MakeSide(&a_);
      MakeSide(&b_);
      Connect(&a_, &b_);
    }
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(MemoryTest, ReregistrationThatFailsChangesNothing) {
  ibv_mr* mr = Register(b_.memory.data(), kPage, kAllAccess);
  ASSERT_NE(mr, nullptr);
  uint8_t* hole = Reserve(kPage);
  ASSERT_NE(hole, nullptr);
  const auto rereg = [&](int flags, void* at, size_t length, int access) {
    errno = 0;
    EXPECT_EQ(ibv_rereg_mr(mr, flags, pd_, at, length, access),
              IBV_REREG_MR_ERR_INPUT);
    return errno;
  };
  constexpr int kMove = IBV_REREG_MR_CHANGE_TRANSLATION;
  EXPECT_EQ(rereg(kMove, hole, kPage, 0), EFAULT);
  EXPECT_EQ(rereg(kMove, b_.memory.data(), 0, 0), EINVAL);
  EXPECT_EQ(rereg(kMove | IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD,
                  b_.memory.data() + kPage, kPage, IBV_ACCESS_REMOTE_ATOMIC),
            EINVAL);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, 0, 1 << 14), EINVAL);
  EXPECT_EQ(mr->addr, b_.memory.data());
  EXPECT_EQ(mr->length, kPage);
  EXPECT_EQ(Write(b_.address(), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(hole, kPage);
}

TEST_F(MemoryTest, WishesThatADeviceMayIgnoreAreAccepted) {
  ibv_mr* mr =
      Register(b_.memory.data(), kPage,
               kAllAccess | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(Write(b_.address(), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         kAllAccess | IBV_ACCESS_RELAXED_ORDERING),
            0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// --- Deregistration.

// A network card executes a request when it arrives. Here it may still be in a
// socket, or wait for other requests (UCX's gtest, uct_p2p_rma_test).
TEST_F(MemoryTest, ArrivedRequestsAreExecutedBeforeDeregistration) {
  FillPattern(a_.memory.data(), 128, 1);
  for (int i = 0; i < 100; ++i) {
    std::vector<uint8_t> target(kPage);
    ibv_mr* mr = Register(target.data(), target.size(), kAllAccess);
    ASSERT_NE(mr, nullptr);
    for (size_t at : {0u, 64u}) {
      ASSERT_EQ(Post(IBV_WR_RDMA_WRITE, a_.Sge(at, 64),
                     AddressOf(target.data()) + at, mr->rkey),
                0);
    }
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(std::memcmp(target.data(), a_.memory.data(), 128), 0);
    ASSERT_EQ(Next(a_.cq).status, IBV_WC_SUCCESS);
    ASSERT_EQ(Next(a_.cq).status, IBV_WC_SUCCESS);
  }
}

// --- Null regions.

// As on hardware: perftest's --use-null-mr never deregisters the null region.
TEST_F(MemoryTest, ANullRegionDoesNotKeepItsDomain) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  ibv_mr* null = ibv_alloc_null_mr(pd);
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST_F(MemoryTest, ANullRegionGivesZeroAndTakesAnything) {
  ibv_mr* null = ibv_alloc_null_mr(pd_);
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(null->addr, nullptr);
  EXPECT_EQ(null->length, SIZE_MAX);
  std::memset(b_.memory.data(), 7, 6000);
  ASSERT_EQ(
      Post(IBV_WR_RDMA_WRITE, {0, 5000, null->lkey}, b_.address(), b_.mr->rkey),
      0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(b_.memory, [&] {
    std::vector<uint8_t> expected(kMemory);
    std::memset(expected.data() + 5000, 7, 1000);
    return expected;
  }());
  ASSERT_EQ(Post(IBV_WR_RDMA_READ, {0x1234, 5000, null->lkey}, b_.address(),
                 b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  // A receive that keeps only the end of its message.
  ibv_sge sges[2] = {{0, 96, null->lkey}, b_.Sge(0, 4)};
  ibv_recv_wr receive = {};
  receive.sg_list = sges;
  receive.num_sge = 2;
  ibv_recv_wr* bad;
  ASSERT_EQ(ibv_post_recv(b_.qp, &receive, &bad), 0);
  FillPattern(a_.memory.data(), 100, 3);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ExpectSuccess(b_.cq, 0).byte_len, 100u);
  EXPECT_EQ(std::memcmp(b_.memory.data(), a_.memory.data() + 96, 4), 0);
  EXPECT_EQ(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         kAllAccess),
            IBV_REREG_MR_ERR_INPUT);
  // Peers may not use it.
  EXPECT_EQ(Write(0, null->lkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

// --- On-demand paging.

TEST_F(MemoryTest, OnDemandRegionsNeedNoMemoryYet) {
  uint8_t* at = Reserve(4 * kPage);
  ASSERT_NE(at, nullptr);
  ibv_mr* mr = Register(at, 4 * kPage, kOnDemand);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(mprotect(at, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(Write(AddressOf(at), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HasPattern(at, 100, 1));
  // The memory under the region changes.
  ASSERT_EQ(madvise(at, kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(at[0], 0);
  EXPECT_EQ(Write(AddressOf(at), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HasPattern(at, 100, 1));
  EXPECT_EQ(Write(AddressOf(at) + 2 * kPage, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(at, 4 * kPage);
}

TEST_F(MemoryTest, AnImplicitRegionIsTheWholeAddressSpace) {
  EXPECT_EQ(Register(nullptr, SIZE_MAX, kAllAccess), nullptr);
  EXPECT_EQ(Register(nullptr, SIZE_MAX, kOnDemand | IBV_ACCESS_HUGETLB),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* mr = Register(nullptr, SIZE_MAX, kOnDemand);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, SIZE_MAX);
  // Memory mapped before and after registration, at either end.
  uint8_t on_stack[100];
  std::vector<uint8_t> since(100);
  EXPECT_EQ(Write(AddressOf(on_stack), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HasPattern(on_stack, 100, 1));
  ASSERT_EQ(Post(IBV_WR_RDMA_READ, {AddressOf(since.data()), 100, mr->lkey},
                 AddressOf(on_stack), mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_TRUE(HasPattern(since.data(), 100, 1));
  // An address without memory.
  EXPECT_EQ(Write(uint64_t{1} << 63, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, PrefetchingFaultsPagesIn) {
  uint8_t* at = Reserve(8 * kPage);
  ASSERT_NE(at, nullptr);
  ASSERT_EQ(mprotect(at, 4 * kPage, PROT_READ | PROT_WRITE), 0);
  ibv_mr* mr = Register(at, 8 * kPage, kOnDemand);
  ibv_mr* read_only = Register(at, 8 * kPage, IBV_ACCESS_ON_DEMAND);
  ibv_mr* pinned = Register(at, kPage, kAllAccess);
  ASSERT_NE(mr, nullptr);
  ASSERT_NE(read_only, nullptr);
  ASSERT_NE(pinned, nullptr);
  const auto resident = [at](size_t page) {
    unsigned char in_core = 0;
    EXPECT_EQ(mincore(at + page * kPage, kPage, &in_core), 0);
    return (in_core & 1) != 0;
  };
  const auto advise = [this](ibv_advise_mr_advice advice, uint32_t flags,
                             ibv_sge sge, ibv_pd* pd = nullptr) {
    return ibv_advise_mr(pd != nullptr ? pd : pd_, advice, flags, &sge, 1);
  };
  constexpr auto kRead = IBV_ADVISE_MR_ADVICE_PREFETCH;
  constexpr auto kWrite = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  constexpr auto kNoFault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  const auto range = [at](size_t page, uint32_t bytes, const ibv_mr* of) {
    return ibv_sge{AddressOf(at) + page * kPage, bytes, of->lkey};
  };
  EXPECT_FALSE(resident(2));
  EXPECT_EQ(advise(kNoFault, 0, range(2, kPage, mr)), 0);
  EXPECT_FALSE(resident(2));
  EXPECT_EQ(advise(kWrite, IBV_ADVISE_MR_FLAG_FLUSH, range(2, kPage, mr)), 0);
  EXPECT_TRUE(resident(2));
  EXPECT_FALSE(resident(3));
  EXPECT_EQ(advise(kRead, 0, range(3, 1, mr)), 0);
  EXPECT_TRUE(resident(3));
  EXPECT_EQ(advise(kRead, 0, range(3, 0, mr)), 0);
  // Errors (ibv_advise_mr(3)).
  EXPECT_EQ(advise(kRead, 0, range(7, kPage + 1, mr)), EFAULT);
  EXPECT_EQ(advise(kRead, 0, range(5, kPage, mr)), EFAULT);
  EXPECT_EQ(advise(kRead, 0, {AddressOf(at), 1, mr->lkey ^ 1}), EFAULT);
  EXPECT_EQ(advise(kRead, 0, range(0, kPage, pinned)), EINVAL);
  EXPECT_EQ(advise(kRead, 2, range(0, kPage, mr)), EINVAL);
  EXPECT_EQ(advise(kWrite, 0, range(0, kPage, read_only)), EFAULT);
  EXPECT_EQ(advise(kRead, 0, range(0, kPage, read_only)), 0);
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(9), 0, range(0, 1, mr)),
            ENOTSUP);
  EXPECT_EQ(ibv_advise_mr(pd_, kRead, 0, nullptr, 1), EINVAL);
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(advise(kRead, 0, range(0, kPage, mr), other), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dereg_mr(read_only), 0);
  EXPECT_EQ(ibv_dereg_mr(pinned), 0);
  munmap(at, 8 * kPage);
}

// --- Device memory.

class DeviceMemoryTest : public MemoryTest {
 protected:
  ibv_dm* Allocate(size_t length, uint32_t log_align = 0) {
    ibv_alloc_dm_attr attr = {length, log_align, 0};
    errno = 0;
    return ibv_alloc_dm(context_, &attr);
  }
};

TEST_F(DeviceMemoryTest, IsReachedByCopiesAndByKeys) {
  ibv_dm* dm = Allocate(8192, 6);
  ASSERT_NE(dm, nullptr);
  FillPattern(a_.memory.data(), 1000, 1);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 400, a_.memory.data(), 1000), 0);
  ibv_mr* mr =
      ibv_reg_dm_mr(pd_, dm, 400, 4096,
                    static_cast<uint32_t>(kAllAccess | IBV_ACCESS_ZERO_BASED));
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->length, 4096u);
  // From device memory, locally.
  ASSERT_EQ(
      Post(IBV_WR_RDMA_WRITE, {0, 1000, mr->lkey}, b_.address(), b_.mr->rkey),
      0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 1000, 1));
  // To device memory, by a peer; and an atomic.
  EXPECT_EQ(Write(3000, mr->rkey), IBV_WC_SUCCESS);
  uint8_t bytes[100];
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, 3400, 100), 0);
  EXPECT_TRUE(HasPattern(bytes, 100, 1));
  uint64_t word = 40;
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 400, &word, 8), 0);
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.atomic = {0, 2, 0, mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectSuccess(a_.cq, 0);
  EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, 400, 8), 0);
  EXPECT_EQ(word, 42u);
  // An access beyond the end of the region fails.
  EXPECT_EQ(Write(4000, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         kAllAccess),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemoryTest, Limits) {
  ibv_device_attr_ex device;
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
  EXPECT_EQ(Allocate(0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Allocate(64, 40), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_alloc_dm_attr attr = {64, 0, 1};
  EXPECT_EQ(ibv_alloc_dm(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Allocate(device.max_dm_size + 1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_dm* half = Allocate(device.max_dm_size / 2);
  ibv_dm* other = Allocate(device.max_dm_size / 2);
  ASSERT_NE(half, nullptr);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(Allocate(4), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(other), 0);
  ibv_dm* dm = Allocate(100);
  ASSERT_NE(dm, nullptr);

  uint8_t bytes[104] = {1};
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4, bytes, 96), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 8, bytes, 96), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 104, bytes, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 3, bytes, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, 4, 3), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, 0, 104), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm, UINT64_MAX - 3, 8), EINVAL);
  uint8_t* hole = Reserve(kPage);
  EXPECT_EQ(ibv_memcpy_from_dm(hole, dm, 0, 8), EFAULT);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, hole, 8), EFAULT);
  munmap(hole, kPage);

  const auto reg = [&](uint64_t offset, size_t length, uint32_t access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_dm_mr(pd_, dm, offset, length, access);
    if (mr == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  };
  EXPECT_EQ(reg(0, 100, IBV_ACCESS_ZERO_BASED), 0);
  EXPECT_EQ(reg(0, 100, 0), EINVAL);
  EXPECT_EQ(reg(4, 100, IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(reg(104, 0, IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(reg(0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(reg(0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND), EINVAL);

  ibv_dm* same = ibv_import_dm(context_, dm->handle);
  ASSERT_NE(same, nullptr);
  uint8_t word[4] = {};
  EXPECT_EQ(ibv_memcpy_from_dm(word, same, 4, 4), 0);
  EXPECT_EQ(word[0], 1);
  EXPECT_EQ(ibv_import_dm(context_, 0x7777777), nullptr);
  // A region keeps the memory in use, another handle does not: that handle can
  // then only be unimported (ibv_import_dm(3)).
  ibv_mr* in_use = ibv_reg_dm_mr(pd_, same, 0, 100, IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(in_use, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(in_use), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(word, same, 4, 4), EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(pd_, same, 0, 100, IBV_ACCESS_ZERO_BASED), nullptr);
  EXPECT_EQ(ibv_free_dm(same), ENOENT);
  ibv_unimport_dm(same);
  EXPECT_EQ(ibv_free_dm(half), 0);
}

// A child of fork has none of the parent's device memory, but may allocate its
// own.
TEST_F(DeviceMemoryTest, InAChildOfFork) {
  ibv_dm* dm = Allocate(64);
  ASSERT_NE(dm, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    ibv_device_attr_ex device;
    if (ibv_query_device_ex(context_, nullptr, &device) != 0 ||
        device.max_dm_size < 64) {
      _exit(2);
    }
    ibv_dm* own = Allocate(64);
    const uint64_t word = 7;
    uint64_t read = 0;
    const bool works = own != nullptr &&
                       ibv_memcpy_to_dm(own, 8, &word, 8) == 0 &&
                       ibv_memcpy_from_dm(&read, own, 8, 8) == 0 && read == 7 &&
                       ibv_free_dm(own) == 0 && ibv_free_dm(dm) == 0;
    _exit(works ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

}  // namespace
}  // namespace conformance
