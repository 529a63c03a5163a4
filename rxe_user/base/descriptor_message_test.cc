#include "rxe_user/base/descriptor_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "rxe_user/base/high_fd.h"

namespace rxe_user {
namespace {

class DescriptorMessageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    here_.Reset(ends[0]);
    there_.Reset(ends[1]);
    ASSERT_EQ(::pipe(ends), 0);
    pipe_.Reset(ends[0]);
    pipe_end_.Reset(ends[1]);
  }
  bool Send(std::string text, std::span<const int> fds) {
    const iovec part = {text.data(), text.size()};
    return SendMessage(here_.get(), {&part, 1}, fds);
  }
  Arrival Receive(size_t fds) {
    return ReceiveMessage(there_.get(), bytes_, std::span(fds_).first(fds),
                          &message_);
  }

  UniqueFd here_, there_, pipe_, pipe_end_;
  std::array<uint8_t, 8> bytes_{};
  std::array<UniqueFd, kMaxDescriptors> fds_;
  ReceivedMessage message_;
};

TEST_F(DescriptorMessageTest, BytesAndDescriptorsArrive) {
  ASSERT_TRUE(Send("abc", std::array{pipe_.get(), pipe_end_.get()}));
  ASSERT_EQ(Receive(2), Arrival::kMessage);
  EXPECT_EQ(message_.bytes, 3u);
  EXPECT_EQ(bytes_[2], 'c');
  EXPECT_EQ(message_.descriptors, 2u);
  EXPECT_FALSE(message_.truncated || message_.lost_descriptors);
  EXPECT_GE(fds_[0].get(), kFirstHighFd);
  ASSERT_EQ(::write(fds_[1].get(), "x", 1), 1);
  char byte;
  EXPECT_EQ(::read(pipe_.get(), &byte, 1), 1);
}

TEST_F(DescriptorMessageTest, NothingIsNotTheEnd) {
  EXPECT_EQ(Receive(2), Arrival::kNothing);
  here_.Reset();
  EXPECT_EQ(Receive(2), Arrival::kClosed);
  EXPECT_FALSE(Send("abc", {}));
}

TEST_F(DescriptorMessageTest, WhatDoesNotFitIsReportedAndClosed) {
  ASSERT_TRUE(Send("123456789", std::array{pipe_.get(), pipe_end_.get()}));
  ASSERT_EQ(Receive(1), Arrival::kMessage);
  EXPECT_EQ(message_.bytes, 8u);
  EXPECT_TRUE(message_.truncated);
  EXPECT_EQ(message_.descriptors, 1u);
  EXPECT_TRUE(message_.lost_descriptors);
  // This is the last write end of the pipe.
  pipe_end_.Reset();
  char byte;
  EXPECT_EQ(::read(pipe_.get(), &byte, 1), 0);
}

TEST_F(DescriptorMessageTest, DescriptorsMayBeRefused) {
  ASSERT_TRUE(Send("abc", std::array{pipe_end_.get()}));
  ASSERT_EQ(Receive(0), Arrival::kMessage);
  EXPECT_EQ(message_.bytes, 3u);
  EXPECT_TRUE(message_.lost_descriptors);
}

}  // namespace
}  // namespace rxe_user
