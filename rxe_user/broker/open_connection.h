// A connection of a process, as the port broker knows it.
#ifndef RXE_USER_BROKER_OPEN_CONNECTION_H_
#define RXE_USER_BROKER_OPEN_CONNECTION_H_

#include <cstdint>
#include <type_traits>

#include "rxe_user/base/local_address.h"
#include "wire/address.h"

namespace rxe_user {

// Copied into messages as raw bytes.
struct OpenConnection {
  LocalAddress local;
  wire::IpAddress peer;
  uint32_t local_id = 0;   // communication ID
  uint32_t remote_id = 0;  // the peer's communication ID
  uint32_t remote_qpn = 0;
};
static_assert(std::is_trivially_copyable_v<OpenConnection> &&
              sizeof(OpenConnection) == 48);

}  // namespace rxe_user

#endif  // RXE_USER_BROKER_OPEN_CONNECTION_H_
