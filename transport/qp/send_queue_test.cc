#include "transport/qp/send_queue.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace transport {
namespace {

constexpr QpCapacity kCapacity = {.max_send_wr = 3,
                                  .max_recv_wr = 0,
                                  .max_send_sge = 2,
                                  .max_recv_sge = 0,
                                  .max_inline_data = 4};

void ExpectRequestsApart(SendQueue& queue) {
  for (uint64_t round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 3; ++i) {
      const uint64_t id = 10 * round + i;
      if (i == 1) {
        const uint8_t data[2] = {uint8_t(id), 7};
        const std::vector<Sge> sges = {
            {reinterpret_cast<uint64_t>(data), 2, 0}};
        ASSERT_EQ(queue.Push({.wr_id = id, .flags = kSendInline, .sges = sges}),
                  0);
      } else {
        const std::vector<Sge> sges = {{id, 5, 1}, {id + 1, 6, 2}};
        ASSERT_EQ(queue.Push({.wr_id = id, .sges = sges}), 0);
      }
    }
    EXPECT_TRUE(queue.full());
    EXPECT_EQ(queue.Push({.wr_id = 99}), ENOMEM);
    for (uint64_t i = 0; i < 3; ++i) {
      const uint64_t id = 10 * round + i;
      const uint64_t index = queue.head();
      EXPECT_EQ(queue.at(index).wr_id, id);
      if (i == 1) {
        EXPECT_EQ(queue.at(index).length, 2u);
        EXPECT_EQ(queue.at(index).num_sge, 0);
        EXPECT_EQ(queue.inline_data(index)[0], id);
      } else {
        EXPECT_EQ(queue.at(index).length, 11u);
        ASSERT_EQ(queue.sges(index).size(), 2u);
        EXPECT_EQ(queue.sges(index)[1].addr, id + 1);
      }
      queue.Pop();
    }
    EXPECT_TRUE(queue.empty());
    // Executed, but not yet polled.
    EXPECT_TRUE(queue.full());
    EXPECT_EQ(queue.room(), 0u);
    const auto end = static_cast<uint32_t>(queue.tail());
    queue.outstanding().SlotBefore(end - 1).Free();
    EXPECT_EQ(queue.room(), 2u);
    queue.outstanding().SlotBefore(end).Free();
    EXPECT_EQ(queue.room(), 3u);
  }
}

TEST(SendQueueTest, KeepsRequestsApart) {
  SendQueue queue(kCapacity, nullptr);
  ExpectRequestsApart(queue);
}

TEST(SendQueueTest, StaysWithinTheMemoryThatItIsGiven) {
  constexpr size_t kGuard = 64;
  const size_t size = SendQueue::Size(kCapacity);
  std::vector<std::byte> memory(kGuard + size + kGuard, std::byte{0xa5});
  std::byte* const begin = memory.data() + kGuard;
  {
    SendQueue queue(kCapacity, begin);
    ExpectRequestsApart(queue);
  }
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(memory[i], std::byte{0xa5});
    EXPECT_EQ(begin[size + i], std::byte{0xa5});
  }
}

// mlx5dv_wr_post(3): the layout of a memory key is inline data.
TEST(SendQueueTest, ChecksConfigurationsOfMemoryKeys) {
  using Layout = MkeyConfiguration::Layout;
  QpCapacity capacity = kCapacity;
  capacity.max_inline_data = 2 * kMkeyEntrySize + 3;
  SendQueue queue(capacity, nullptr);
  std::array<Sge, kMaxMkeyEntries + 1> entries = {{{1, 2, 3}, {4, 5, 6}}};
  const auto push = [&](Layout layout, uint32_t bytes, uint64_t repeat = 1,
                        std::optional<uint32_t> access = std::nullopt,
                        uint32_t flags = kSendInline) {
    const Sge sge = {reinterpret_cast<uint64_t>(entries.data()), bytes, 0};
    const SendRequest request = {.opcode = SendOpcode::kConfigureMkey,
                                 .flags = flags,
                                 .sges = {&sge, 1},
                                 .compare_add = repeat,
                                 .swap = MkeyOperand(layout, access)};
    const int error = queue.Check(request);
    EXPECT_EQ(queue.Push(request), error);
    if (error == 0) {
      EXPECT_EQ(queue.at(queue.head()).length, bytes);
      EXPECT_EQ(
          std::memcmp(queue.inline_data(queue.head()), entries.data(), bytes),
          0);
      queue.Clear();
    }
    return error;
  };
  constexpr uint32_t kTwo = 2 * kMkeyEntrySize;
  EXPECT_EQ(push(Layout::kList, kTwo), 0);
  EXPECT_EQ(push(Layout::kList, 0), 0);
  EXPECT_EQ(push(Layout::kList, kTwo, 1, kMkeyRights), 0);
  EXPECT_EQ(push(Layout::kInterleaved, kTwo, UINT32_MAX), 0);
  EXPECT_EQ(push(Layout::kKeep, 0, 0), 0);
  EXPECT_EQ(push(Layout::kKeep, 0, 0, 0), 0);

  EXPECT_EQ(push(Layout::kList, kTwo, 1, {}, 0), EINVAL);  // not inline
  EXPECT_EQ(push(Layout::kList, kTwo + 3), EINVAL);        // part of an entry
  EXPECT_EQ(push(Layout::kList, kTwo + kMkeyEntrySize), EINVAL);
  EXPECT_EQ(push(Layout::kInterleaved, kTwo, 0), EINVAL);
  EXPECT_EQ(push(Layout::kInterleaved, kTwo, uint64_t{1} << 32), EINVAL);
  EXPECT_EQ(push(Layout::kKeep, kTwo), EINVAL);
  EXPECT_EQ(push(Layout{3}, 0), EINVAL);
  EXPECT_EQ(push(Layout::kList, kTwo, 1, kAccessMwBind), EINVAL);
  EXPECT_EQ(push(Layout::kList, kTwo, 1, 1u << 31), EINVAL);

  capacity.max_inline_data = sizeof(entries);
  SendQueue large(capacity, nullptr);
  const Sge all = {reinterpret_cast<uint64_t>(entries.data()), sizeof(entries),
                   0};
  EXPECT_EQ(large.Push({.opcode = SendOpcode::kConfigureMkey,
                        .flags = kSendInline,
                        .sges = {&all, 1},
                        .swap = MkeyOperand(Layout::kList, {})}),
            EINVAL);
}

TEST(SendQueueTest, CapacityZeroIsFull) {
  SendQueue queue({}, nullptr);
  EXPECT_TRUE(queue.full());
  EXPECT_EQ(queue.Push({}), ENOMEM);
}

TEST(SendOperationTest, EveryOpcodeHasItsRow) {
  EXPECT_EQ(GetSendOperation(SendOpcode::kRdmaRead).kind, SendKind::kRead);
  EXPECT_EQ(GetSendOperation(SendOpcode::kBindMw).kind, SendKind::kLocal);
  EXPECT_EQ(GetSendOperation(SendOpcode::kTso).kind, SendKind::kMessage);
  EXPECT_EQ(GetSendOperation(static_cast<SendOpcode>(32)).kind,
            SendKind::kUnsupported);
  EXPECT_EQ(GetSendOperation(static_cast<SendOpcode>(255)).kind,
            SendKind::kUnsupported);
  EXPECT_TRUE(GetSendOperation(SendOpcode::kRdmaWriteWithImm).takes_receive);
  EXPECT_FALSE(GetSendOperation(SendOpcode::kRdmaWrite).takes_receive);
}

// The queue holds the request itself; only its completion differs.
TEST(SendOperationTest, ARawWqeIsTheSameRequest) {
  for (int i = 0; i < 16; ++i) {
    const auto opcode = static_cast<SendOpcode>(i);
    const SendOperation& row = GetSendOperation(opcode);
    const SendOperation& raw = GetSendOperation(AsRawWqe(opcode));
    EXPECT_EQ(row.opcode, opcode);
    EXPECT_EQ(raw.opcode, opcode);
    EXPECT_EQ(raw.kind, row.kind);
    EXPECT_EQ(raw.only, row.only);
    EXPECT_EQ(raw.wc_opcode, WcOpcode::kRawWqe);
  }
  SendQueue queue(kCapacity, nullptr);
  ASSERT_EQ(queue.Push({.opcode = AsRawWqe(SendOpcode::kRdmaWriteWithImm),
                        .imm_be = 7,
                        .invalidate_rkey = 8}),
            0);
  EXPECT_EQ(queue.at(0).opcode, SendOpcode::kRdmaWriteWithImm);
  EXPECT_EQ(queue.at(0).imm_be_or_rkey, 7u);
}

TEST(SendQueueTest, ChecksTheLengthOfACopy) {
  SendQueue queue(kCapacity, nullptr);
  const auto check = [&](uint64_t bytes) {
    return queue.Check({.opcode = SendOpcode::kMemcpy, .swap = bytes});
  };
  EXPECT_EQ(check(0), EINVAL);
  EXPECT_EQ(check(1), 0);
  EXPECT_EQ(check(kMaxMemcpy), 0);
  EXPECT_EQ(check(kMaxMemcpy + 1), EINVAL);
  EXPECT_EQ(check(UINT64_MAX), EINVAL);
}

}  // namespace
}  // namespace transport
