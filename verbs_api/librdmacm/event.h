// What rdma_get_cm_event(3) hands out.
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

// RDMA_CM_EVENT_*, or one that newer headers have.
inline int TypeOf(const rdma_cm_event& event) {
  int type;
  static_assert(sizeof(event.event) == sizeof(type));
  std::memcpy(&type, &event.event, sizeof(type));
  return type;
}

struct Event {
  rdma_cm_event part = {};  // what the application has
  // Whose event it is: it cannot be destroyed before this is acknowledged. Of a
  // connection request that is the listener.
  std::shared_ptr<Id> owner;
  // Of a connection request: the new id.
  std::shared_ptr<Id> request;
  // Of a join: what was joined.
  std::shared_ptr<Membership> membership;
  std::array<uint8_t, 224> private_data;  // which `part` points to

  void SetType(int type) {
    static_assert(sizeof(part.event) == sizeof(type));
    std::memcpy(&part.event, &type, sizeof(type));
  }
  int type() const { return TypeOf(part); }
  // Sets private data and the length that the application sees.
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
