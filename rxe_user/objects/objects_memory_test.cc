// If creating a context, or an object in it, runs out of memory, it leaves
// nothing behind: it is not counted, no queue refers to it, and the next
// creation works as if it had not been tried. With a real engine.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "rxe_user/engine/engine.h"
#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/memory_key.h"
#include "rxe_user/objects/memory_region.h"
#include "rxe_user/objects/queue_pair.h"
#include "rxe_user/objects/shared_receive_queue.h"
#include "rxe_user/objects/xrc_domain.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"
#include "transport/testing/scarce_memory.h"

namespace {

// Per thread: the engine's threads are not limited.
thread_local int left = transport::kUnlimited;

bool Refuse() {
  if (left == 0) return true;
  if (left > 0) --left;
  return false;
}

}  // namespace

namespace rxe_user {
namespace {

std::shared_ptr<Engine>* engine_of_test = nullptr;

// Calls `call` with more and more allocations until it succeeds, and `same`
// after each failure. Returns the number of failures.
template <typename Call, typename Same>
int UntilThereIsMemory(Call call, Same same) {
  constexpr int kEnough = 10'000;
  for (int allocations = 0; allocations < kEnough; ++allocations) {
    left = allocations;
    try {
      call();
      left = transport::kUnlimited;
      return allocations;
    } catch (const std::bad_alloc&) {
      left = transport::kUnlimited;
      same();
    }
  }
  ADD_FAILURE() << "refused for ever";
  return kEnough;
}

class ObjectsMemoryTest : public testing::Test {
 protected:
  ObjectsMemoryTest() {
    // Permanently: the engine's threads call it until they end.
    transport::refuse_allocation = Refuse;
    engine_of_test = &engine_;
    engine_ = MakeLoopbackEngine(
        *wire::IpAddress::Parse("127.0.0.1"),
        {[this] { return slots_.Acquire(); }, CreateSocketPort});
  }

  static std::shared_ptr<Context> Open() {
    return std::make_shared<Context>(std::make_shared<const Device>());
  }
  static CompletionQueue::Config CqConfig() {
    CompletionQueue::Config config;
    config.capacity = 16;
    return config;
  }

  TestSlots slots_;
  std::shared_ptr<Engine> engine_;
  EventQueue async_;
};

TEST_F(ObjectsMemoryTest, Contexts) {
  std::shared_ptr<Context> first;
  EXPECT_GT(UntilThereIsMemory([&] { first = Open(); },
                               [&] { ASSERT_EQ(first, nullptr); }),
            0);
  std::shared_ptr<Context> second;
  EXPECT_GT(UntilThereIsMemory([&] { second = Open(); }, [] {}), 0);
  // Both contexts share one space.
  EXPECT_EQ(&first->space(), &second->space());
  EXPECT_NE(first->space().NewPdId(), second->space().NewPdId());
}

TEST_F(ObjectsMemoryTest, MemoryKeys) {
  const std::shared_ptr<Context> context = Open();
  ProtectionDomain pd(*context);
  std::unique_ptr<MemoryKey> key;
  EXPECT_GT(UntilThereIsMemory(
                [&] {
                  key =
                      std::make_unique<MemoryKey>(pd, 4, MemoryKey::Options{});
                },
                [&] { EXPECT_EQ(pd.users, 0); }),
            0);
  EXPECT_EQ(pd.users, 1);
  EXPECT_EQ(key->max_entries(), 4);
  // A region in the key's layout can be deregistered first.
  std::vector<uint8_t> bytes(100);
  std::unique_ptr<MemoryRegion> region;
  ASSERT_EQ(
      MemoryRegion::Register(pd, bytes.data(), bytes.size(), 0, 0, &region), 0);
  const transport::Sge list[] = {{0, 100, region->key()}};
  ASSERT_EQ(context->regions().ConfigureMkey(
                {.key = key->key(),
                 .pd = pd.id,
                 .access = transport::kAccessLocalWrite,
                 .layout = transport::MkeyConfiguration::Layout::kList,
                 .list = list}),
            transport::MemoryStatus::kOk);
  const auto use = [&, number = key->key()] {
    transport::SpanList spans;
    return context->regions().Translate(
        {.key = number, .pd = pd.id, .length = 1}, &spans);
  };
  EXPECT_EQ(use(), transport::MemoryStatus::kOk);
  EXPECT_EQ(region->Withdraw(), 0);
  EXPECT_EQ(use(), transport::MemoryStatus::kBadKey);
  EXPECT_EQ(pd.users, 1);
  key.reset();
  EXPECT_EQ(pd.users, 0);
}

TEST_F(ObjectsMemoryTest, QueuePairs) {
  const std::shared_ptr<Context> context = Open();
  ProtectionDomain pd(*context);
  CompletionQueue send_cq(*engine_, CqConfig());
  CompletionQueue recv_cq(*engine_, CqConfig());
  SharedReceiveQueue::Config srq_config;
  srq_config.pd = &pd;
  srq_config.max_wr = 4;
  srq_config.max_sge = 1;
  srq_config.async = &async_;
  SharedReceiveQueue srq(srq_config);
  QueuePair::Config config;
  config.pd = &pd;
  config.send_cq = &send_cq;
  config.recv_cq = &recv_cq;
  config.srq = &srq;
  config.capacity = {4, 4, 1, 1, 0};
  config.async = &async_;
  // The first queue pair opens the lane.
  std::shared_ptr<QueuePair> other;
  ASSERT_EQ(QueuePair::Create(config, &other), 0);
  other.reset();
  for (const transport::QpType type :
       {transport::QpType::kRc, transport::QpType::kUd}) {
    config.type = type;
    std::vector<std::shared_ptr<QueuePair>> qps(20);
    for (std::shared_ptr<QueuePair>& qp : qps) {
      const int before = pd.users;
      UntilThereIsMemory(
          [&] {
            const int error = QueuePair::Create(config, &qp);
            if (error == ENOMEM) throw std::bad_alloc();
            ASSERT_EQ(error, 0);
          },
          [&] {
            ASSERT_EQ(pd.users, before);
            ASSERT_EQ(srq.users, before - 1);
          });
      ASSERT_EQ(pd.users, before + 1);
    }
    qps.clear();
    EXPECT_EQ(pd.users, 1);
    EXPECT_EQ(srq.users, 0);
    EXPECT_FALSE(send_cq.used());
    EXPECT_FALSE(recv_cq.used());
  }
}

TEST_F(ObjectsMemoryTest, XrcDomains) {
  const std::shared_ptr<Context> context = Open();
  ProtectionDomain pd(*context);
  CompletionQueue cq(*engine_, CqConfig());
  std::shared_ptr<XrcDomain> domain;
  const int fd = ::memfd_create("xrc", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  const auto open = [&](bool exclusive, std::shared_ptr<XrcDomain>* out) {
    return context->space().xrc_domains().Open(context, fd, true, exclusive,
                                               out);
  };
  EXPECT_GT(UntilThereIsMemory([&] { ASSERT_EQ(open(true, &domain), 0); },
                               [&] { domain.reset(); }),
            0);
  std::shared_ptr<XrcDomain> again;
  EXPECT_EQ(open(true, &again), EINVAL);
  EXPECT_EQ(open(false, &again), 0);
  EXPECT_EQ(again, domain);

  SharedReceiveQueue::Config srq_config;
  srq_config.pd = &pd;
  srq_config.max_wr = 4;
  srq_config.max_sge = 1;
  srq_config.async = &async_;
  srq_config.xrc = domain.get();
  srq_config.cq = &cq;
  std::vector<std::unique_ptr<SharedReceiveQueue>> srqs(20);
  for (std::unique_ptr<SharedReceiveQueue>& srq : srqs) {
    const int before = pd.users;
    EXPECT_GT(
        UntilThereIsMemory(
            [&] { srq = std::make_unique<SharedReceiveQueue>(srq_config); },
            [&] { ASSERT_EQ(pd.users, before); }),
        0);
  }
  QueuePair::Config config;
  config.type = transport::QpType::kXrcTarget;
  config.xrc = domain.get();
  // The first queue pair opens the lane.
  std::shared_ptr<QueuePair> other;
  ASSERT_EQ(QueuePair::Create(config, &other), 0);
  other.reset();
  std::vector<std::shared_ptr<QueuePair>> targets(20);
  for (std::shared_ptr<QueuePair>& target : targets) {
    UntilThereIsMemory(
        [&] {
          const int error = QueuePair::Create(config, &target);
          if (error == ENOMEM) throw std::bad_alloc();
          ASSERT_EQ(error, 0);
        },
        [&] { target.reset(); });
    EXPECT_EQ(domain->FindTarget(target->qpn()), target);
  }
  for (std::unique_ptr<SharedReceiveQueue>& srq : srqs) {
    transport::XrcSrq found;
    EXPECT_TRUE(domain->FindSrq(srq->number(), &found));
    EXPECT_EQ(found.receives, srq.get());
    srq->Retire();
    srq.reset();
  }
  targets.clear();
  EXPECT_EQ(pd.users, 0);
  EXPECT_FALSE(cq.used());
  ::close(fd);
}

// A group that could not be joined does not count against the limit.
TEST_F(ObjectsMemoryTest, Groups) {
  const std::shared_ptr<Context> context = Open();
  const absl::StatusOr<uint32_t> qpn = engine_->AllocateQpn();
  ASSERT_TRUE(qpn.ok());
  const auto group = [](int i) {
    return *wire::IpAddress::Parse("239.7.7." + std::to_string(i));
  };
  constexpr int kMax = 64;
  for (int i = 0; i < kMax; ++i) {
    const int refused = UntilThereIsMemory(
        [&] {
          const absl::Status joined = engine_->JoinGroup(*qpn, group(i));
          left = transport::kUnlimited;
          ASSERT_TRUE(joined.ok()) << joined;
        },
        [] {});
    EXPECT_GT(refused, 0) << i;
  }
  EXPECT_FALSE(engine_->JoinGroup(*qpn, group(kMax)).ok());
  for (int i = 0; i < kMax; ++i) {
    left = 0;  // leaving needs no memory
    engine_->LeaveGroup(*qpn, group(i));
    left = transport::kUnlimited;
  }
  EXPECT_TRUE(engine_->JoinGroup(*qpn, group(kMax)).ok());
  engine_->LeaveGroup(*qpn, group(kMax));
  engine_->ReleaseQpn(*qpn);
}

}  // namespace

// Replaces Engine::For of the library.
std::shared_ptr<Engine> Engine::For(std::shared_ptr<const Device> /*device*/) {
  return *engine_of_test;
}

}  // namespace rxe_user
