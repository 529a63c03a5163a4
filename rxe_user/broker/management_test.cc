#include "rxe_user/broker/management.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "wire/cm.h"

namespace rxe_user::broker {
namespace {

using transport::kSecond;
using transport::Time;
using transport::cm::Mad;
using What = Management::Verdict::What;
using Holder = Management::Holder;

constexpr uint64_t kService = 0x0000000001061c06;
constexpr uint16_t kA = 3;
constexpr uint16_t kB = 4;
const LocalAddress kLocal = {*wire::IpAddress::Parse("192.0.2.1"), 0};
const wire::IpAddress kPeer = *wire::IpAddress::Parse("192.0.2.9");

template <typename M>
Mad Of(const M& message) {
  Mad mad;
  wire::EmitCm({.id = 77}, message, mad);
  return mad;
}

class ManagementTest : public testing::Test {
 protected:
  ManagementTest() {
    holders_[kA] = Holder::kProcess;
    holders_[kB] = Holder::kProcess;
  }

  void Listen(uint16_t slot, uint64_t service_id = kService) {
    ASSERT_TRUE(qp1_.services().Set(
        slot, 1, {.service_id = service_id, .local = kLocal, .listening = 1}));
  }
  Management::Verdict Route(const Mad& mad, Time now = 0,
                            const wire::IpAddress& source = kPeer) {
    std::array<uint8_t, transport::cm::kMadPacketSize> packet;
    transport::cm::EmitMadPacket({.source = source,
                                  .destination = kLocal.address,
                                  .source_port = 0xc000},
                                 1, mad, packet);
    return RoutePacket(packet, now, source);
  }
  Management::Verdict RoutePacket(std::span<const uint8_t> packet, Time now = 0,
                                  const wire::IpAddress& source = kPeer) {
    return qp1_.Route(
        {.local = kLocal,
         .source = source,
         .source_port = 0xc000,
         .bytes = packet},
        [this](uint16_t slot) {
          const auto found = holders_.find(slot);
          return found == holders_.end() ? Holder::kNobody : found->second;
        },
        all_known_, now);
  }
  void ExpectFor(uint16_t slot, const Management::Verdict& verdict) {
    EXPECT_EQ(verdict.what, What::kHandOn);
    EXPECT_EQ(verdict.slot, slot);
  }
  wire::CmView View(const Management::Verdict& verdict) {
    wire::CmView view;
    EXPECT_EQ(verdict.what, What::kAnswer);
    EXPECT_EQ(wire::CmView::Parse(verdict.answer, &view),
              wire::CmParseError::kOk);
    return view;
  }

  std::map<uint16_t, Holder> holders_;
  bool all_known_ = true;
  Management qp1_;
};

wire::CmReq Req(uint32_t id, uint64_t service_id = kService) {
  wire::CmReq req;
  req.local_comm_id = id;
  req.service_id = service_id;
  req.local_qpn = 0x11;
  return req;
}

TEST_F(ManagementTest, RequestsGoToTheListener) {
  Listen(kA);
  Listen(kB, kService + 1);
  ExpectFor(kA, Route(Of(Req(1))));
  ExpectFor(kB, Route(Of(Req(2, kService + 1))));
  const auto verdict =
      Route(Of(wire::CmSidrReq{.request_id = 1, .service_id = kService + 1}));
  ExpectFor(kB, verdict);
  EXPECT_TRUE(verdict.initial);
}

TEST_F(ManagementTest, DuplicatesFollowTheFirstEvenIfAnotherListens) {
  Listen(kA);
  ExpectFor(kA, Route(Of(Req(1))));
  qp1_.services().RemoveAll(kA);
  Listen(kB);
  ExpectFor(kA, Route(Of(Req(1)), 5 * kSecond));
  ExpectFor(kB, Route(Of(Req(2)), 5 * kSecond));
  // Another request with the same ID is no duplicate.
  ASSERT_TRUE(qp1_.services().Set(
      kB, 2, {.service_id = 5, .local = kLocal, .listening = 1}));
  ExpectFor(kB, Route(Of(Req(1, 5)), 5 * kSecond));
}

TEST_F(ManagementTest, AnEndedProcessIsForgotten) {
  Listen(kA);
  ExpectFor(kA, Route(Of(Req(1))));
  holders_.erase(kA);
  qp1_.Forget(kA);
  EXPECT_EQ(View(Route(Of(Req(1)))).rej().reason,
            wire::CmRejectReason::kInvalidServiceId);
  Listen(kB);
  ExpectFor(kB, Route(Of(Req(1))));
}

TEST_F(ManagementTest, TheRejOfARequesterReachesTheSameProcess) {
  Listen(kA);
  Route(Of(Req(9)));
  const wire::CmRej gives_up = {.local_comm_id = 9,
                                .info_length = 8,
                                .reason = wire::CmRejectReason::kTimeout};
  ExpectFor(kA, Route(Of(gives_up)));
  wire::CmRej other = gives_up;
  other.local_comm_id = 10;
  EXPECT_EQ(Route(Of(other)).what, What::kDrop);
  EXPECT_EQ(Route(Of(gives_up), 0, kLocal.address).what, What::kDrop);
}

TEST_F(ManagementTest, RepliesGoToTheCreatorOfTheId) {
  const uint32_t id = uint32_t{kB} << 20 | 0x23456;
  ExpectFor(kB,
            Route(Of(wire::CmRep{.local_comm_id = 1, .remote_comm_id = id})));
  ExpectFor(kB, Route(Of(wire::CmMra{.remote_comm_id = id})));
  ExpectFor(kB, Route(Of(wire::CmRej{.remote_comm_id = id})));
  ExpectFor(kB, Route(Of(wire::CmRtu{.remote_comm_id = id})));
  ExpectFor(kB, Route(Of(wire::CmDreq{.remote_comm_id = id})));
  ExpectFor(kB, Route(Of(wire::CmDrep{.remote_comm_id = id})));
  ExpectFor(kB, Route(Of(wire::CmSidrRep{.request_id = id})));
  EXPECT_FALSE(Route(Of(wire::CmRtu{.remote_comm_id = id})).initial);
}

TEST_F(ManagementTest, UnclaimedMessagesAreAnsweredOnce) {
  const uint32_t id = 0x77123456;
  const auto rej = View(Route(Of(Req(5)))).rej();
  EXPECT_EQ(rej.remote_comm_id, 5u);
  EXPECT_EQ(rej.reason, wire::CmRejectReason::kInvalidServiceId);
  EXPECT_EQ(
      View(Route(Of(wire::CmSidrReq{.request_id = 6, .service_id = kService})))
          .sidr_rep()
          .status,
      wire::CmSidrStatus::kInvalidServiceId);
  EXPECT_EQ(
      View(Route(Of(wire::CmDreq{.local_comm_id = 8, .remote_comm_id = id})))
          .drep()
          .remote_comm_id,
      8u);
  EXPECT_EQ(
      View(Route(Of(wire::CmRep{.local_comm_id = 8, .remote_comm_id = id})))
          .rej()
          .reason,
      wire::CmRejectReason::kInvalidCommId);
  for (const Mad& mad : {Of(wire::CmRtu{.remote_comm_id = id}),
                         Of(wire::CmDrep{.remote_comm_id = id}),
                         Of(wire::CmRej{.remote_comm_id = id}),
                         Of(wire::CmMra{.remote_comm_id = id}),
                         Of(wire::CmSidrRep{.request_id = id})}) {
    EXPECT_EQ(Route(mad).what, What::kDrop);
  }
  EXPECT_EQ(qp1_.counters().answered, 4u);
  EXPECT_EQ(qp1_.counters().nobodys, 5u);
}

TEST_F(ManagementTest, AnswersToAnAddressAreRateLimited) {
  int answers = 0;
  for (uint32_t i = 1; i <= 10'000; ++i) {
    answers += Route(Of(Req(i))).what == What::kAnswer;
  }
  EXPECT_LE(answers, 200);
  EXPECT_GT(answers, 0);
}

TEST_F(ManagementTest, RequestsAreDroppedWhileProcessesMayComeBack) {
  all_known_ = false;
  holders_[9] = Holder::kMayComeBack;
  EXPECT_EQ(Route(Of(Req(1))).what, What::kDrop);
  EXPECT_EQ(Route(Of(wire::CmDreq{.remote_comm_id = 0x00923456})).what,
            What::kDrop);
  // Slot 10 cannot come back, so its DREQ is answered.
  EXPECT_EQ(Route(Of(wire::CmDreq{.remote_comm_id = 0x00a23456})).what,
            What::kAnswer);
  Listen(kA);
  ExpectFor(kA, Route(Of(Req(1))));
}

TEST_F(ManagementTest, GarbageIsCountedAndNotAnswered) {
  EXPECT_EQ(RoutePacket({}).what, What::kDrop);
  Mad mad = Of(Req(1));
  mad[1] = 3;  // subnet administration
  EXPECT_EQ(Route(mad).what, What::kDrop);
  std::array<uint8_t, transport::cm::kMadPacketSize> packet;
  transport::cm::EmitMadPacket({.source = kLocal.address,
                                .destination = kLocal.address,
                                .source_port = 0xc000},
                               1, Of(Req(1)), packet);
  EXPECT_EQ(RoutePacket(packet).what, What::kDrop);  // ICRC of another source
  EXPECT_EQ(qp1_.counters().malformed, 1u);
  EXPECT_EQ(qp1_.counters().no_cm, 1u);
  EXPECT_EQ(qp1_.counters().bad_icrc, 1u);
}

// A flood of requests does not grow the memory beyond its limit.
TEST_F(ManagementTest, RememberedRequestsAreLimited) {
  Listen(kA);
  ExpectFor(kA, Route(Of(Req(1))));
  for (uint32_t i = 2; i < 20'000; ++i) Route(Of(Req(i)));
  qp1_.services().RemoveAll(kA);
  Listen(kB);
  ExpectFor(kB, Route(Of(Req(1))));       // already forgotten
  ExpectFor(kA, Route(Of(Req(19'999))));  // still remembered
}

}  // namespace
}  // namespace rxe_user::broker
