// Helpers for tests of the connection manager service: services of several
// "processes", and recorders of their events.
#ifndef RXE_USER_CM_TEST_END_H_
#define RXE_USER_CM_TEST_END_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "rxe_user/cm/cm_service_impl.h"
#include "wire/cm.h"

namespace rxe_user {

inline constexpr uint64_t kTestService = 0x0000000001061c06;

inline LocalAddress Local(const std::string& text) {
  return {*wire::IpAddress::Parse(text), 0};
}

// Records its events.
class EventLog final : public CmEventHandler {
 public:
  void OnCmEvent(const transport::cm::Event& event) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    came_.notify_all();
  }
  // Waits for the next event. Absent if none arrives for a very long time.
  std::optional<transport::cm::Event> Next(
      std::chrono::seconds patience = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, patience, [&] { return !events_.empty(); })) {
      return std::nullopt;
    }
    transport::cm::Event event = events_.front();
    events_.pop_front();
    return event;
  }
  bool empty() {
    const std::lock_guard lock(mutex_);
    return events_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<transport::cm::Event> events_;
};

// A service with its own slot, as in another process, and a recorder of all its
// events.
class TestEnd {
 public:
  explicit TestEnd(uint64_t guid, const transport::cm::Config& config = {},
                   CmFaults* faults = nullptr)
      : guid_(guid),
        service_(std::make_unique<CmServiceImpl>(Slot::Acquire, config, nullptr,
                                                 faults)) {}

  CmServiceImpl* operator->() { return service_.get(); }
  std::shared_ptr<EventLog> recorder() { return recorder_; }
  void Close() { service_.reset(); }

  // Returns 0 or errno. `handle` may be null.
  int Listen(const LocalAddress& local, uint64_t service_id = kTestService,
             ServiceHandle* handle = nullptr, size_t backlog = 128) {
    ServiceHandle mine = 0;
    int error = service_->Reserve({.service_id = service_id, .local = local},
                                  &mine, nullptr);
    if (error == 0) error = service_->Listen(mine, backlog, recorder_);
    if (handle != nullptr) *handle = mine;
    return error;
  }

  // A REQ is retransmitted after 1.1 s, 15 times; timewait is 67 ms.
  transport::cm::CmId Connect(const LocalAddress& from, const LocalAddress& to,
                              uint32_t qpn,
                              uint64_t service_id = kTestService) {
    transport::cm::ConnectOptions options;
    options.local = from.address;
    options.remote = to.address;
    options.packet_life_time = 10;
    options.req.service_id = service_id;
    options.req.local_ca_guid = guid_;
    options.req.local_qpn = qpn;
    options.req.remote_cm_response_timeout = 18;
    options.req.local_cm_response_timeout = 18;
    options.req.max_cm_retries = 15;
    options.req.primary.local_ack_timeout = 14;
    options.req.private_data[0] = static_cast<uint8_t>(qpn);
    transport::cm::CmId id = 0;
    EXPECT_EQ(service_->Connect(options, recorder_, &id), 0);
    return id;
  }
  int Accept(transport::cm::CmId id, uint32_t qpn) {
    return service_->Accept(id, {.local_qpn = qpn, .local_ca_guid = guid_});
  }

  // Returns the id of the next event, which must be of this kind; 0 otherwise.
  transport::cm::CmId Expect(transport::cm::EventKind kind) {
    const auto event = recorder_->Next();
    EXPECT_TRUE(event.has_value());
    if (!event.has_value()) return 0;
    last_ = *event;
    EXPECT_EQ(event->kind, kind);
    return event->kind == kind ? event->id : 0;
  }
  // The event of the last Expect.
  const transport::cm::Event& last() const { return last_; }
  wire::CmView LastMad() const {
    wire::CmView view;
    EXPECT_TRUE(last_.has_mad);
    EXPECT_EQ(wire::CmView::Parse(last_.mad, &view), wire::CmParseError::kOk);
    return view;
  }

 private:
  uint64_t guid_;
  std::shared_ptr<EventLog> recorder_ = std::make_shared<EventLog>();
  std::unique_ptr<CmServiceImpl> service_;
  transport::cm::Event last_;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_TEST_END_H_
