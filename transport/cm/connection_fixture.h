// Two hosts whose applications connect to each other.
#ifndef TRANSPORT_CM_CONNECTION_FIXTURE_H_
#define TRANSPORT_CM_CONNECTION_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "transport/cm/test_host.h"

namespace transport::cm {

using Kinds = std::vector<EventKind>;
using wire::CmRejectReason;

// The times that TestHost's exponents give.
inline constexpr Time kUnit = wire::CmTimeNanos(10);
inline constexpr Time kReqWait = 3 * kUnit;
inline constexpr Time kRepWait = 3 * kUnit;
inline constexpr Time kTimeWait = 2 * kUnit;

class ConnectionManagerTest : public testing::Test {
 protected:
  // Until b's application has the request.
  void Request(uint32_t qpn = 0x11) {
    if (listener_ == 0) listener_ = b_.Listen();
    active_ = a_.Connect(b_, qpn, now_);
    ASSERT_EQ(a_.SendTo(b_, now_), "CM_REQ ");
    const auto event = b_.NextEvent();
    ASSERT_TRUE(event);
    ASSERT_EQ(event->kind, EventKind::kRequest);
    ASSERT_EQ(event->listener, listener_);
    passive_ = event->id;
  }
  void Reply(uint32_t qpn = 0x22) {
    ASSERT_EQ(b_.Accept(passive_, qpn, now_), Result::kOk);
    ASSERT_EQ(b_.SendTo(a_, now_), "CM_REP ");
    ASSERT_EQ(a_.Events(), Kinds{EventKind::kReply});
  }
  void Establish(uint32_t qpn_a = 0x11, uint32_t qpn_b = 0x22) {
    Request(qpn_a);
    Reply(qpn_b);
    ASSERT_EQ(a_->Establish(active_, {}), Result::kOk);
    ASSERT_EQ(a_.SendTo(b_, now_), "CM_RTU ");
    ASSERT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  }
  // `count` tries that are lost, each after its timeout.
  void LetRetry(TestHost& host, const std::string& name, int count) {
    for (int i = 0; i < count; ++i) {
      now_ = host->NextTimeout();
      ASSERT_NE(now_, kNever);
      host->OnTimer(now_);
      ASSERT_EQ(host.Drop(), name) << i;
      ASSERT_EQ(host.Events(), Kinds{});
    }
    now_ = host->NextTimeout();
    host->OnTimer(now_);
  }
  // All connections end and all memory is freed.
  void ExpectNothingLeft() {
    a_->Destroy(active_, now_);
    b_->Destroy(passive_, now_);
    for (int i = 0; i < 100; ++i) {
      a_.SendTo(b_, now_);
      b_.SendTo(a_, now_);
      const Time next = std::min(a_->NextTimeout(), b_->NextTimeout());
      if (next == kNever) break;
      now_ = next;
      a_->OnTimer(now_);
      b_->OnTimer(now_);
    }
    EXPECT_EQ(a_->size(), 0u);
    EXPECT_EQ(b_->size(), 0u);
    EXPECT_EQ(b_->half_open(), 0u);
  }

  TestHost a_{1};
  TestHost b_{2};
  ListenerId listener_ = 0;
  CmId active_ = 0;
  CmId passive_ = 0;
  Time now_ = 0;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CONNECTION_FIXTURE_H_
