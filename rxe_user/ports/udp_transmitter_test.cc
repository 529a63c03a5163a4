// The transmitter over a MessageSender whose results the test chooses.
#include "rxe_user/ports/udp_transmitter.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "rxe_user/ports/port_counters.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

constexpr int kNotTried = MessageSender::Message::kNotTried;

// Answers messages with the next of `answers`, or accepts them. Notes the first
// byte of those that it accepts.
class ScriptedSender final : public MessageSender {
 public:
  void OnQueued(size_t bytes) override { queued.push_back(bytes); }
  bool sends() const override { return is_sending; }
  void Send(std::span<Message> messages) override {
    ++calls;
    if (fails) is_sending = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (i > 0 && messages[i - 1].fd == messages[i].fd &&
          messages[i - 1].error != 0) {
        messages[i].error = kNotTried;
        continue;
      }
      messages[i].error = 0;
      if (!answers.empty()) {
        messages[i].error = answers.front();
        answers.pop_front();
      }
      if (messages[i].error == 0) {
        accepted.push_back(
            *static_cast<uint8_t*>(messages[i].message->msg_iov->iov_base));
      }
    }
  }

  std::vector<size_t> queued;
  bool is_sending = true;
  bool fails = false;  // it does not send any more after the next call
  int calls = 0;
  std::deque<int> answers;
  std::vector<int> accepted;
};

class UdpTransmitterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(transmitter_.Open().ok());
    transmitter_.SendThrough(&sender_);
    local_.address = *wire::IpAddress::Parse("127.0.0.1");
    for (uint32_t i = 0; i < 2; ++i) {
      av_[i].source = av_[i].destination = local_.address;
      const auto port = transmitter_.SourcePort(local_, i, -1);
      ASSERT_TRUE(port.ok()) << port.status();
      av_[i].source_port = *port;
    }
  }

  // `packets` packets by socket 0 or 1, numbered from `first` on.
  void Queue(int socket, uint8_t first, size_t packets = 1) {
    const transport::Flow flow(av_[socket]);
    transport::Burst* const burst = transmitter_.Begin(flow);
    ASSERT_NE(burst, nullptr);
    for (size_t i = 0; i < packets; ++i) {
      uint8_t* const packet = burst->Reserve(1000);
      ASSERT_NE(packet, nullptr);
      std::fill_n(packet, 1000, static_cast<uint8_t>(first + i));
      burst->Commit();
    }
    transmitter_.Queue();
  }

  ScriptedSender sender_;
  PortCounters counters_;
  UdpTransmitter transmitter_{&counters_};
  LocalAddress local_;
  transport::AddressVector av_[2];
};

TEST_F(UdpTransmitterTest, SendsThoseOfAllSocketsAtOnce) {
  Queue(0, 1);
  Queue(1, 2);
  Queue(0, 3);
  transmitter_.Flush();
  EXPECT_EQ(sender_.calls, 1);
  EXPECT_EQ(sender_.accepted, (std::vector<int>{1, 3, 2}));
  EXPECT_FALSE(transmitter_.blocked());
  // Nothing is sent twice.
  transmitter_.Flush();
  EXPECT_EQ(sender_.calls, 1);
}

TEST_F(UdpTransmitterTest, SendsTwoLargeBurstsAtOnce) {
  Queue(0, 1, 60);
  EXPECT_EQ(sender_.calls, 0);
  Queue(0, 2, 60);
  EXPECT_EQ(sender_.calls, 1);
  EXPECT_EQ(sender_.accepted, (std::vector<int>{1, 2}));
}

TEST_F(UdpTransmitterTest, PlainCallsSendWhileTheSenderDoesNotWantTo) {
  sender_.is_sending = false;
  Queue(0, 1, 60);
  EXPECT_EQ(counters_.tx_calls, 1u);  // one large burst at a time
  Queue(0, 2);
  transmitter_.Flush();
  EXPECT_EQ(counters_.tx_calls, 2u);
  EXPECT_EQ(sender_.calls, 0);
  EXPECT_EQ(sender_.queued, (std::vector<size_t>{60'000, 1000}));
}

TEST_F(UdpTransmitterTest, PlainCallsSendWhatAFailedSenderHasNotTried) {
  sender_.answers = {kNotTried};
  sender_.fails = true;
  Queue(0, 1);
  Queue(0, 2);
  transmitter_.Flush();
  EXPECT_FALSE(transmitter_.blocked());
  EXPECT_EQ(sender_.accepted, std::vector<int>());
  EXPECT_EQ(counters_.tx_calls, 1u);
  EXPECT_EQ(counters_.tx_errors, 0u);
}

TEST_F(UdpTransmitterTest, BlockedBurstsKeepTheirOrder) {
  for (const int error : {EAGAIN, ENOBUFS, kNotTried}) {
    SCOPED_TRACE(error);
    sender_.accepted.clear();
    Queue(0, 1);
    Queue(0, 2);
    Queue(1, 3);
    Queue(0, 4);
    sender_.answers = {0, error, 0};
    // A message that the system has not accepted is tried once more, alone.
    if (error == kNotTried) sender_.answers.push_back(kNotTried);
    transmitter_.Flush();
    EXPECT_TRUE(transmitter_.blocked());
    EXPECT_EQ(sender_.accepted, (std::vector<int>{1, 3}));
    transmitter_.Flush();
    EXPECT_FALSE(transmitter_.blocked());
    EXPECT_EQ(sender_.accepted, (std::vector<int>{1, 3, 2, 4}));
  }
  EXPECT_EQ(counters_.tx_errors, 0u);
  EXPECT_EQ(counters_.tx_blocked, 3u);
}

TEST_F(UdpTransmitterTest, OnlyTheRefusedSendIsLost) {
  Queue(0, 1);
  Queue(0, 2);
  Queue(1, 3);
  sender_.answers = {EPERM, ENETUNREACH};
  transmitter_.Flush();
  EXPECT_FALSE(transmitter_.blocked());
  EXPECT_EQ(sender_.accepted, std::vector<int>{2});
  EXPECT_EQ(counters_.tx_errors, 1u);
  EXPECT_EQ(counters_.tx_unreachable, 1u);
}

// Another socket's segmented send to the destination was accepted before it
// turned out that the first one was refused. It is not sent again in parts.
TEST_F(UdpTransmitterTest, WhatWasSentIsNotSentAgainInParts) {
  Queue(0, 1, 3);
  Queue(1, 4, 3);
  sender_.answers = {EIO, 0};
  transmitter_.Flush();
  EXPECT_EQ(sender_.accepted, std::vector<int>{4});
  EXPECT_EQ(counters_.tx_split, 1u);
  EXPECT_EQ(counters_.tx_calls, 3u);  // the packets of the first burst
}

// Bursts after one in parts wait for the parts.
TEST_F(UdpTransmitterTest, PartsKeepTheirOrder) {
  Queue(0, 1, 3);
  Queue(0, 4, 3);
  Queue(0, 7);
  sender_.answers = {EIO};
  transmitter_.Flush();
  // By sendmmsg(2): three parts of each of the first two.
  EXPECT_EQ(counters_.tx_split, 2u);
  EXPECT_EQ(counters_.tx_calls, 6u);
  EXPECT_EQ(sender_.accepted, std::vector<int>{7});
}

}  // namespace
}  // namespace rxe_user
