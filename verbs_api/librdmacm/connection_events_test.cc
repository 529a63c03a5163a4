// The events that programs get for events of the connection manager.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "rxe_user/base/unique_fd.h"
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

// The status is that of the kernel's rdma_cm: a program sees that the peer is
// gone.
TEST_F(ConnectionEventsTest, APeerThatDoesNotAnswerTheDisconnect) {
  EXPECT_EQ(StatusOfDisconnect(false), -ETIMEDOUT);
}

class EventChannelTest : public ConnectionEventsTest {
 protected:
  void Push() { id_->Push(RDMA_CM_EVENT_DISCONNECTED); }
  bool IsReadable() {
    pollfd fd = {.fd = channel_->part()->fd, .events = POLLIN, .revents = 0};
    return poll(&fd, 1, 0) == 1;
  }
  void SetNonblocking() {
    ASSERT_EQ(fcntl(channel_->part()->fd, F_SETFL, O_NONBLOCK), 0);
  }
};

// A thread has read from the counter, and another one takes the event. The next
// event is the first thread's, and the descriptor is no longer readable.
TEST_F(EventChannelTest, AnEventTakenBetweenAReadAndItsEvent) {
  for (int round = 0; round < 200; ++round) {
    Push();
    std::thread reader;
    // `matches` is called with the channel's lock held. The reader needs it
    // after it has read, so it cannot take the first event.
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(TakeEvent(
                  *channel_,
                  [&](const Event&) {
                    reader = std::thread([&] {
                      rdma_cm_event* next = nullptr;
                      ASSERT_EQ(TakeEvent(*channel_, &next), 0);
                      EXPECT_EQ(rdma_ack_cm_event(next), 0);
                    });
                    while (IsReadable()) std::this_thread::yield();
                    return true;
                  },
                  &event),
              0);
    Push();
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
    reader.join();
    ASSERT_FALSE(IsReadable()) << "round " << round;
  }
}

// rping 44 destroys its id and its channel while a thread of it waits for
// events. Its exit status is 0 only if that thread gets neither an event nor an
// error. Here the thread has read from the counter when its event is withdrawn.
TEST_F(EventChannelTest, AThreadThatWaitsWhenTheChannelIsClosed) {
  Push();
  const int fd = channel_->part()->fd;
  const rxe_user::UniqueFd copy(dup(fd));
  std::thread reader;
  int error = 0;
  (void)channel_->WithdrawIf([&](const Event&) {
    reader = std::thread([&] {
      rdma_cm_event* event = nullptr;
      EXPECT_EQ(TakeEvent(*channel_, &event), -1);
      error = errno;
    });
    while (IsReadable()) std::this_thread::yield();
    return true;
  });
  channel_->Close();
  // Neither does it read what has the descriptor's number next.
  const rxe_user::UniqueFd other(eventfd(7, EFD_NONBLOCK | EFD_SEMAPHORE));
  // This is how it can be made to return.
  ASSERT_EQ(fcntl(copy.get(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(eventfd_write(copy.get(), 1), 0);
  reader.join();
  EXPECT_EQ(error, EAGAIN);
  for (int i = 0; i < 7; ++i) {
    eventfd_t one = 0;
    EXPECT_EQ(eventfd_read(other.get(), &one), 0);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "the last thread closes it";
}

TEST_F(EventChannelTest, AnEventOfADestroyedIdIsNotPutBack) {
  Push();
  Events place(1);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(TakeEvent(*channel_, &event), 0);
  EndId(*id_);
  ReturnEvent(event, std::move(place));
  id_->AwaitAcknowledged();
  SetNonblocking();
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(TakeEvent(*channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(EventChannelTest, ARequestIsNotPutBackIntoAClosedChannel) {
  const auto request = std::make_shared<Id>(RDMA_PS_TCP, IBV_QPT_RC);
  request->channel = channel_;
  request->service = Service();
  PublishId(request);
  UnsentEvent unsent = id_->NewEvent(RDMA_CM_EVENT_CONNECT_REQUEST);
  unsent->request = request;
  id_->Push(std::move(unsent));
  Events place(1);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(TakeEvent(*channel_, &event), 0);
  EXPECT_EQ(FindId(&request->part), request);
  channel_->Close();
  ReturnEvent(event, std::move(place));
  id_->AwaitAcknowledged();
  EXPECT_EQ(FindId(&request->part), nullptr);
}

// rdma_migrate_id moves queued events. This one was not in the queue.
TEST_F(EventChannelTest, AnEventIsPutBackIntoTheChannelOfItsId) {
  Push();
  Events place(1);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(TakeEvent(*channel_, &event), 0);
  const std::shared_ptr<EventChannel> old = channel_;
  id_->channel = channel_ = EventChannel::Create();
  ASSERT_NE(channel_, nullptr);
  ReturnEvent(event, std::move(place));
  SetNonblocking();
  ASSERT_EQ(TakeEvent(*channel_, &event), 0);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_FALSE(IsReadable());
}

}  // namespace
}  // namespace librdmacm
