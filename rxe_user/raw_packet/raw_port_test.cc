// Packet sockets on the loopback interface of a namespace of the test's own.
#include "rxe_user/raw_packet/raw_port.h"

#include <net/if.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/testing/net_namespace.h"
#include "wire/frame.h"

namespace rxe_user {
namespace {

using Bytes = std::vector<uint8_t>;

class RawPortTest : public testing::Test {
 protected:
  // Keeps what comes.
  class Inbox final : public transport::FrameDestination {
   public:
    void OnFrame(const transport::ReceivedFrame& received, uint32_t,
                 transport::Time) override {
      frames.emplace_back(received.frame.bytes.begin(),
                          received.frame.bytes.end());
    }
    size_t FrameRoom() const override { return room; }
    std::vector<Bytes> frames;
    size_t room = transport::kManyFrames;
  };

  void SetUp() override {
    Device device;
    device.ifindex = if_nametoindex("lo");
    device.loopback = true;
    auto port = RawPort::Open(device);
    if (!port.ok()) GTEST_SKIP() << port.status();
    port_ = *std::move(port);
    rule_.kind = transport::FlowKind::kSniffer;
    rule_.destination = &inbox_;
  }
  static Bytes Frame(size_t payload, std::optional<uint16_t> vlan = {}) {
    wire::FrameHeaders headers;
    headers.src = *wire::IpAddress::Parse("10.0.0.1");
    headers.dst = *wire::IpAddress::Parse("10.0.0.2");
    headers.vlan = vlan;
    return wire::BuildFrame(headers, Bytes(payload, 7));
  }
  void Send(const Bytes& frame) {
    uint8_t* const out = port_->transmitter().Reserve(frame.size());
    ASSERT_NE(out, nullptr);
    std::memcpy(out, frame.data(), frame.size());
    port_->transmitter().Commit();
  }
  void Listen() {
    int fresh = -1;
    ASSERT_TRUE(port_->Prepare(rule_, &fresh).ok());
    ASSERT_GE(fresh, 0);
    port_->flows().Add(&rule_);
  }
  // Until there are `count`.
  void Await(size_t count) {
    while (inbox_.frames.size() < count) {
      pollfd readable = {port_->descriptor(), POLLIN, 0};
      ASSERT_EQ(poll(&readable, 1, 20'000), 1) << inbox_.frames.size();
      port_->Receive(1, false);
    }
  }

  std::unique_ptr<RawPort> port_;
  transport::FlowRule rule_;
  Inbox inbox_;
};

TEST_F(RawPortTest, SeveralFramesLeaveByOneCallAndComeOnceEach) {
  Listen();
  std::vector<Bytes> frames;
  for (size_t i = 0; i < 100; ++i) frames.push_back(Frame(i));
  for (const Bytes& frame : frames) Send(frame);
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(frames.size());
  EXPECT_EQ(inbox_.frames, frames);
}

TEST_F(RawPortTest, TheTagStaysWhereItWas) {
  Listen();
  const Bytes tagged = Frame(50, 100);
  Send(tagged);
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(1);
  EXPECT_EQ(inbox_.frames[0], tagged);
}

TEST_F(RawPortTest, LongFramesAsTheInterfaceTakesThem) {
  Listen();
  EXPECT_EQ(port_->transmitter().max_frame(), 65550u);
  const Bytes frame = Frame(65000);
  Send(frame);
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(1);
  EXPECT_EQ(inbox_.frames[0], frame);
  if (!SetLoopbackMtu(1500)) return;
  port_->transmitter().ReadMtu();
  EXPECT_EQ(port_->transmitter().max_frame(), 1514u);
  Send(frame);  // refused by the system: dropped
  Send(Frame(10));
  EXPECT_TRUE(port_->transmitter().Flush());
  EXPECT_EQ(port_->transmitter().dropped(), 1u);
  Await(2);
  EXPECT_EQ(inbox_.frames[1], Frame(10));
  SetLoopbackMtu(65536);
}

TEST_F(RawPortTest, TheSocketLastsAsLongAsThereAreRules) {
  EXPECT_EQ(port_->descriptor(), -1);
  Listen();
  int fresh = 0;
  ASSERT_TRUE(port_->Prepare(rule_, &fresh).ok());
  EXPECT_EQ(fresh, -1);
  EXPECT_EQ(port_->Retire(rule_), -1);
  const int fd = port_->descriptor();
  EXPECT_GE(fd, 0);
  port_->flows().Remove(&rule_);
  EXPECT_EQ(port_->Retire(rule_), fd);
  EXPECT_EQ(port_->descriptor(), -1);
  port_->Close();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(port_->Receive(1, false), 0u);
}

// A program that polls is about to post receives for what comes.
TEST_F(RawPortTest, WhatThereAreNoReceivesForIsLeftForAWhile) {
  Listen();
  inbox_.room = 2;
  for (size_t i = 0; i < 5; ++i) Send(Frame(i));
  ASSERT_TRUE(port_->transmitter().Flush());
  port_->Receive(1, true);
  EXPECT_EQ(inbox_.frames.size(), 2u);
  inbox_.room = 0;
  EXPECT_EQ(port_->Receive(2, true), 0u);
  EXPECT_EQ(port_->Receive(1'000'000, true), 0u);
  inbox_.room = 1;
  port_->Receive(1'000'001, true);
  EXPECT_EQ(inbox_.frames.size(), 3u);
  inbox_.room = 0;
  EXPECT_EQ(port_->Receive(2'000'000, true), 0u);
  port_->Receive(102'000'001, true);
  EXPECT_EQ(inbox_.frames.size(), 5u);
}

TEST_F(RawPortTest, WhatWasNotCommittedIsNotSent) {
  Listen();
  ASSERT_NE(port_->transmitter().Reserve(100), nullptr);
  Send(Frame(20));
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(1);
  EXPECT_EQ(inbox_.frames[0], Frame(20));
}

}  // namespace
}  // namespace rxe_user
