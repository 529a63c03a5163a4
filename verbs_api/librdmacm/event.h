// The event that rdma_get_cm_event(3) returns.
#ifndef VERBS_API_LIBRDMACM_EVENT_H_
#define VERBS_API_LIBRDMACM_EVENT_H_

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace librdmacm {

class Id;
struct Membership;

// RDMA_CM_EVENT_*, or a value from a newer header.
inline int TypeOf(const rdma_cm_event& event) {
  int type;
  static_assert(sizeof(event.event) == sizeof(type));
  std::memcpy(&type, &event.event, sizeof(type));
  return type;
}

struct Event {
  rdma_cm_event part = {};  // the application's view
  // The id that the event belongs to: it cannot be destroyed before the event
  // is acknowledged. For a connection request this is the listener.
  std::shared_ptr<Id> owner;
  // For a connection request: the new id.
  std::shared_ptr<Id> request;
  // For a join: the membership.
  std::shared_ptr<Membership> membership;
  std::array<uint8_t, 224> private_data;  // `part` points to it

  void SetType(int type) {
    static_assert(sizeof(part.event) == sizeof(type));
    std::memcpy(&part.event, &type, sizeof(type));
  }
  int type() const { return TypeOf(part); }
  // Sets the private data and its length in the application's view.
  void SetConnData(std::span<const uint8_t> data) {
    part.param.conn.private_data = Keep(data);
    part.param.conn.private_data_len = static_cast<uint8_t>(data.size());
  }
  void SetUdData(std::span<const uint8_t> data) {
    part.param.ud.private_data = Keep(data);
    part.param.ud.private_data_len = static_cast<uint8_t>(data.size());
  }

 private:
  const void* Keep(std::span<const uint8_t> data) {
    if (data.empty()) return nullptr;
    std::copy(data.begin(), data.end(), private_data.begin());
    return private_data.data();
  }
};

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_EVENT_H_
