// Queue pair 1 of a broker that several users share.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "rxe_user/broker/raw_client.h"
#include "rxe_user/broker/test_peer.h"
#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "wire/cm.h"

namespace rxe_user::broker {
namespace {

constexpr uint64_t kService = 0x0000000001061c06;
const LocalAddress kLoopback = {Ip("127.0.0.1"), 0};

Service Listening(uint64_t service_id = kService) {
  return {.service_id = service_id, .local = kLoopback, .listening = 1};
}

// Claims to have received a REQ from an address that never sent one. Exits with
// 0 when the broker has read it.
[[noreturn]] void ForgeRequest(uid_t uid, uint32_t id) {
  if (uid != 0) Become(uid);
  const wire::IpAddress source = Ip("198.51.100.1");
  wire::CmReq req;
  req.local_comm_id = id;
  req.service_id = kService;
  transport::cm::Mad mad;
  wire::EmitCm({.id = id}, req, mad);
  std::array<uint8_t, transport::cm::kMadPacketSize> packet;
  transport::cm::EmitMadPacket({.source = source,
                                .destination = kLoopback.address,
                                .source_port = 0xc000},
                               0, mad, packet);
  StrayHead head;
  std::memcpy(head.source, source.bytes.data(), sizeof(head.source));
  std::memcpy(head.destination, kLoopback.address.bytes.data(),
              sizeof(head.destination));
  head.source_port = 0xc000;
  head.length = static_cast<uint32_t>(packet.size());
  RawClient client;
  if (client.Greet() == 0) _exit(1);
  client.SendStray(head, packet);
  _exit(client.UnreserveService(1) ? 0 : 2);
}

class ManagementUsersTest : public BrokerTest {
 protected:
  void SetUp() override {
    if (!Root()) GTEST_SKIP() << "needs root";
    BrokerTest::SetUp();
    broker_.emplace();
    auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok()) << slot.status();
    slot_ = *std::move(slot);
    const auto fd = slot_->OpenAddress(kLoopback);
    ASSERT_TRUE(fd.ok()) << fd.status();
    socket_.Reset(*fd);
  }
  void TearDown() override {
    slot_.reset();
    socket_.Reset();
    broker_.reset();
    if (Root()) BrokerTest::TearDown();
  }

  std::optional<PublicBroker> broker_;
  std::unique_ptr<Slot> slot_;
  UniqueFd socket_;
};

TEST_F(ManagementUsersTest, ForgeriesDoNotReachOtherUsers) {
  ASSERT_TRUE(slot_->Reserve(1, Listening()).ok());
  // Root, which all processes trust, sends last: its REQ arrives, and nothing
  // before it.
  for (const auto& [uid, id] :
       std::vector<std::pair<uid_t, uint32_t>>{{kSomebody, 1}, {0, 2}}) {
    const pid_t child = fork();
    if (child == 0) ForgeRequest(uid, id);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "user " << uid;
  }
  std::vector<uint32_t> came;
  ASSERT_TRUE(Eventually([&] {
    slot_->OnReadable([&](const Stray& stray) {
      std::span<const uint8_t> mad;
      wire::CmView view;
      ASSERT_EQ(
          transport::cm::ParseMadPacket({.source = stray.source,
                                         .destination = stray.destination,
                                         .source_port = stray.source_port},
                                        stray.bytes, &mad),
          transport::cm::MadPacketError::kOk);
      ASSERT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk);
      came.push_back(view.req().local_comm_id);
    });
    return !came.empty();
  }));
  EXPECT_EQ(came, std::vector<uint32_t>{2});
}

TEST_F(ManagementUsersTest, ServiceIdsOfAProcessAreLimited) {
  constexpr uint32_t kShare = 1024;
  RawClient greedy;
  ASSERT_NE(greedy.Greet(), 0);
  for (uint32_t i = 1; i <= kShare; ++i) {
    ASSERT_EQ(greedy.ReserveService(i, Listening(i)), Refusal::kNone) << i;
  }
  EXPECT_EQ(greedy.ReserveService(kShare + 1, Listening(kShare + 1)),
            Refusal::kFull);
  // Existing reservations can be changed.
  EXPECT_EQ(greedy.ReserveService(1, Listening(1)), Refusal::kNone);
  EXPECT_TRUE(slot_->Reserve(1, Listening(kShare + 1)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(slot_->Reserve(2, Listening(1))));
  EXPECT_TRUE(greedy.UnreserveService(1));
  EXPECT_TRUE(slot_->Reserve(2, Listening(1)).ok());
  // The end of the connection frees all of its reservations.
  greedy.HangUp();
  EXPECT_TRUE(Eventually([&] { return slot_->Reserve(3, Listening(2)).ok(); }));
}

// Each request is looked up once per mask, so the number of masks is limited.
TEST_F(ManagementUsersTest, MasksOfAProcessAreLimited) {
  constexpr uint32_t kShare = 16;
  RawClient greedy;
  ASSERT_NE(greedy.Greet(), 0);
  const auto with_mask = [](uint32_t i) {
    Service service = Listening();
    service.mask = ~uint64_t{i};
    return service;
  };
  for (uint32_t i = 1; i <= kShare; ++i) {
    ASSERT_EQ(greedy.ReserveService(i, with_mask(i)), Refusal::kNone) << i;
  }
  EXPECT_EQ(greedy.ReserveService(100, with_mask(100)), Refusal::kFull);
  // An existing mask is allowed, and a mask that replaces another.
  EXPECT_EQ(greedy.ReserveService(1, with_mask(1)), Refusal::kNone);
  EXPECT_EQ(greedy.ReserveService(1, with_mask(100)), Refusal::kNone);
}

}  // namespace
}  // namespace rxe_user::broker
