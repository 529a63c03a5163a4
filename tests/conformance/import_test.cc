// Objects that are imported within one process: ibv_import_device(3),
// ibv_import_pd(3), ibv_import_mr(3).
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ImportTest : public PairTest {
 protected:
  ImportTest() { make_pair_ = false; }
};

TEST_F(ImportTest, ImportedObjectsAreTheSame) {
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  const int fd = dup(context_->cmd_fd);
  ASSERT_GE(fd, 0);
  ibv_context* context = ibv_import_device(fd);
  close(fd);
  ASSERT_NE(context, nullptr);
  ibv_pd* pd = ibv_import_pd(context, pd_->handle);
  ASSERT_NE(pd, nullptr);
  ibv_mr* mr = ibv_import_mr(pd, a_.mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, a_.mr->lkey);
  EXPECT_EQ(mr->rkey, a_.mr->rkey);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, a_.mr->length);
  EXPECT_EQ(ibv_import_pd(context, 0x7777777), nullptr);
  EXPECT_EQ(ibv_import_mr(pd, 0x7777777), nullptr);
  // A queue pair in the imported domain accesses the same memory.
  ibv_mr* made =
      ibv_reg_mr(pd, b_.memory.data(), 4096, static_cast<unsigned>(kAllAccess));
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(), made->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(ibv_dereg_mr(made), 0);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(ibv_import_device(-1), nullptr);
}

// The object is destroyed with its first handle; the other handles can then
// only be unimported (ibv_import_mr(3)).
TEST_F(ImportTest, AnyHandleDestroysImportedObjects) {
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  ibv_context* context = ibv_import_device(context_->cmd_fd);
  ASSERT_NE(context, nullptr);
  ibv_pd* first_pd = ibv_alloc_pd(context_);
  ASSERT_NE(first_pd, nullptr);
  ibv_pd* pd = ibv_import_pd(context, first_pd->handle);
  ASSERT_NE(pd, nullptr);
  std::vector<uint8_t> memory(4096);
  ibv_mr* first_mr = ibv_reg_mr(first_pd, memory.data(), memory.size(), 0);
  ASSERT_NE(first_mr, nullptr);
  ibv_mr* mr = ibv_import_mr(pd, first_mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(first_pd), EBUSY);  // the region uses it

  ibv_sge sge = a_.Sge(0, 8);
  EXPECT_EQ(ibv_dereg_mr(first_mr), 0);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_import_mr(pd, mr->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_dereg_mr(mr), ENOENT);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, sge.length, IBV_SEND_SIGNALED,
                 reinterpret_cast<uint64_t>(memory.data()), mr->rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);

  // A handle of a destroyed region keeps neither its domain nor the domain's
  // other handles in use.
  EXPECT_EQ(ibv_dealloc_pd(first_pd), 0);
  EXPECT_EQ(ibv_reg_mr(pd, memory.data(), memory.size(), 0), nullptr);
  EXPECT_EQ(ibv_import_pd(context, pd->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_dealloc_pd(pd), ENOENT);
  ibv_unimport_pd(pd);
  ibv_unimport_mr(mr);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(ImportTest, TakingAParentDomainBackFreesItsThreadDomain) {
  ibv_td_init_attr td_attr = {};
  ibv_td* td = ibv_alloc_td(context_, &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr = {};
  attr.pd = pd_;
  attr.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(context_, &attr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  ibv_unimport_pd(parent);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

}  // namespace
}  // namespace conformance
