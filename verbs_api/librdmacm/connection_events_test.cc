// The events that programs get for events of the connection manager.
#include <cerrno>
#include <memory>

#include "gtest/gtest.h"
#include "verbs_api/librdmacm/connect.h"
#include "verbs_api/librdmacm/id.h"

namespace librdmacm {
namespace {

namespace cm = transport::cm;

class ConnectionEventsTest : public testing::Test {
 protected:
  void SetUp() override {
    channel_ = EventChannel::Create();
    ASSERT_NE(channel_, nullptr);
    id_->channel = channel_;
    id_->state = IdState::kConnected;
  }
  // The status of RDMA_CM_EVENT_DISCONNECTED. `has_mad`: whether a message of
  // the peer ended the connection.
  int StatusOfDisconnect(bool has_mad) {
    cm::Event event;
    event.kind = cm::EventKind::kDisconnected;
    event.has_mad = has_mad;
    id_->OnCmEvent(event);
    rdma_cm_event* out = nullptr;
    EXPECT_EQ(TakeEvent(*channel_, &out), 0);
    if (out == nullptr) return 0;
    EXPECT_EQ(out->event, RDMA_CM_EVENT_DISCONNECTED);
    const int status = out->status;
    EXPECT_EQ(rdma_ack_cm_event(out), 0);
    return status;
  }

  std::shared_ptr<EventChannel> channel_;
  std::shared_ptr<Id> id_ = std::make_shared<Id>(RDMA_PS_TCP, IBV_QPT_RC);
};

TEST_F(ConnectionEventsTest, APeerThatDisconnects) {
  EXPECT_EQ(StatusOfDisconnect(true), 0);
}

// As in the kernel's rdma_cm, so that a program sees that the peer is gone.
TEST_F(ConnectionEventsTest, APeerThatDoesNotAnswerTheDisconnect) {
  EXPECT_EQ(StatusOfDisconnect(false), -ETIMEDOUT);
}

}  // namespace
}  // namespace librdmacm
