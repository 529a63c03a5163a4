#include "rxe_user/base/local_address.h"

#include <net/if.h>

namespace rxe_user {

std::string LocalAddress::ToString() const {
  std::string text = address.ToString();
  if (scope_id != 0) {
    char name[IF_NAMESIZE];
    text += '%';
    text += if_indextoname(scope_id, name) != nullptr
                ? std::string(name)
                : std::to_string(scope_id);
  }
  return text;
}

bool IsLinkLocal(const wire::IpAddress& address) {
  return !address.is_v4() && address.bytes[0] == 0xfe &&
         (address.bytes[1] & 0xc0) == 0x80;
}

LocalAddress Normalized(const LocalAddress& local) {
  return OnInterface(local.address, local.scope_id);
}

LocalAddress OnInterface(const wire::IpAddress& address, uint32_t ifindex) {
  return {address, IsLinkLocal(address) ? ifindex : 0};
}

}  // namespace rxe_user
