// Programs that use the C interface of librdmacm, on the loopback device, with
// both ends in one process.
#ifndef TESTS_CONFORMANCE_CM_FIXTURE_H_
#define TESTS_CONFORMANCE_CM_FIXTURE_H_

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace conformance {

// An address of the loopback interface, or the unspecified one.
class CmAddress {
 public:
  static CmAddress Loopback(int family, uint16_t port = 0);
  static CmAddress Any(int family, uint16_t port = 0);
  static CmAddress Of(const char* ipv4, uint16_t port = 0);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }

 private:
  sockaddr_storage storage_ = {};
};

// An event that its destructor acknowledges.
class CmEvent {
 public:
  CmEvent() = default;
  explicit CmEvent(rdma_cm_event* event) : event_(event) {}
  CmEvent(CmEvent&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)) {}
  CmEvent& operator=(CmEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CmEvent() { Acknowledge(); }

  void Acknowledge() {
    if (event_ != nullptr) rdma_ack_cm_event(event_);
    event_ = nullptr;
  }
  rdma_cm_event* operator->() const { return event_; }
  rdma_cm_event* get() const { return event_; }

 private:
  rdma_cm_event* event_ = nullptr;
};

// The private data in an event of a connected id.
std::string PrivateData(const rdma_cm_event* event);

// rdma_event_str(3) for any number: newer headers define more events than
// Debian's enumeration can hold.
const char* EventName(int type);

// Names tests by their address family.
inline std::string FamilyName(const testing::TestParamInfo<int>& info) {
  return info.param == AF_INET ? "IPv4" : "IPv6";
}

class CmTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  bool IsReadable(rdma_event_channel* channel);
  // Takes the next event and checks its type. On another type, or none, the
  // test fails and the result has type -1.
  CmEvent Next(rdma_event_channel* channel, int type, int status = 0);
  CmEvent Next(int type, int status = 0) {
    return Next(channel_, type, status);
  }

  rdma_cm_id* NewId(rdma_port_space ps = RDMA_PS_TCP);
  // Listens on the loopback address. Port 0: any free port.
  rdma_cm_id* NewListener(int family, rdma_port_space ps = RDMA_PS_TCP);
  // An active id that is ready to connect to `listener`.
  rdma_cm_id* NewClient(int family, rdma_cm_id* listener);
  // Uses the default completion queues and protection domain.
  void MakeQp(rdma_cm_id* id);

  rdma_event_channel* channel_ = nullptr;
};

// Both ends of a connection with queue pairs, ready for rdma_connect or
// rdma_accept.
class CmPairTest : public CmTest, public testing::WithParamInterface<int> {
 protected:
  void TearDown() override;
  // Connects both ends; `param` is the client's.
  void Connect(rdma_conn_param param = {});
  void Disconnect();

  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* client_ = nullptr;
  rdma_cm_id* server_ = nullptr;
};

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_CM_FIXTURE_H_
