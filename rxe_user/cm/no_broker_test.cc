// Without a port broker, one process owns the port and queue pair 1.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/cm/test_end.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::cm::CmId;
using transport::cm::EventKind;

const LocalAddress kLoopback = Local("127.0.0.1");

class NoBrokerTest : public broker::BrokerTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_BROKER", "/nonexistent/rxe-user-port-broker", 1);
    BrokerTest::SetUp();
    a_.emplace(1);
  }
  void TearDown() override {
    a_.reset();
    BrokerTest::TearDown();
  }
  void Connect(uint32_t qpn) {
    const CmId active = a_->Connect(kLoopback, kLoopback, qpn);
    const CmId passive = a_->Expect(EventKind::kRequest);
    EXPECT_EQ(a_->Accept(passive, qpn + 1), 0);
    EXPECT_EQ(a_->Expect(EventKind::kReply), active);
    EXPECT_EQ((*a_)->Establish(active, {}), 0);
    EXPECT_EQ(a_->Expect(EventKind::kEstablished), passive);
  }

  std::optional<TestEnd> a_;
};

TEST_F(NoBrokerTest, TheServiceReadsQueuePairOneItself) {
  ASSERT_EQ(a_->Listen(kLoopback), 0);
  EXPECT_EQ(broker::BrokerPid(), 0);
  Connect(0x11);
  // Without a listener, the service itself rejects.
  const CmId id = a_->Connect(kLoopback, kLoopback, 0x21, kTestService + 1);
  EXPECT_EQ(a_->Expect(EventKind::kRejected), id);
  EXPECT_EQ(a_->Listen(kLoopback), EADDRINUSE);
}

// A lane with the same sockets forwards datagrams for queue pair 1, and the
// service does not consume the lane's packets.
TEST_F(NoBrokerTest, LanesReadForTheService) {
  ASSERT_EQ(a_->Listen(kLoopback), 0);
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok()) << slot.status();
  const auto fd = (*slot)->OpenAddress(kLoopback);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const UniqueFd socket(*fd);
  std::atomic<bool> stop = false;
  std::atomic<int> own = 0;
  std::thread lane([&] {
    while (!stop) {
      CmSockets::Read(kLoopback, socket.get(),
                      [&](const transport::cm::MadFlow& flow,
                          std::span<const uint8_t> bytes) {
                        if (wire::PeekDestQpn(bytes) != wire::kGsiQpn) {
                          ++own;
                          return;
                        }
                        Stray stray;
                        stray.source = flow.source;
                        stray.destination = flow.destination;
                        stray.source_port = flow.source_port;
                        stray.bytes = bytes;
                        (*slot)->Forward(stray);
                      });
      std::this_thread::yield();
    }
  });
  Connect(0x11);
  constexpr int kPackets = 100;
  broker::Asker asker;
  for (int i = 0; i < kPackets; ++i) {
    asker.Send(broker::PacketFor((*slot)->number()));
  }
  EXPECT_TRUE(broker::Eventually([&] { return own == kPackets; }));
  stop = true;
  lane.join();
  // Without the lane, the service reads again.
  slot->reset();
  Connect(0x21);
}

}  // namespace
}  // namespace rxe_user
