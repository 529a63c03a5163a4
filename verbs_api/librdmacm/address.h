// The address and device of an id.
#ifndef VERBS_API_LIBRDMACM_ADDRESS_H_
#define VERBS_API_LIBRDMACM_ADDRESS_H_

#include <cstddef>

#include "verbs_api/librdmacm/devices.h"
#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

// Sets the local address that the application sees, and the device unless
// `device.verbs` is null. `id.mutex` is held.
void SetSource(Id& id, const EndpointAddress& source,
               const DeviceAddress& device);
// Sets the peer's address. `id.mutex` is held.
void SetDestination(Id& id, const EndpointAddress& destination);

// rdma_bind_addr. `id.calls` is held. Returns 0 or an errno value.
int Bind(Id& id, const EndpointAddress& address);

// RDMA_OPTION_IB_PATH: the application supplies the path instead of calling
// rdma_resolve_route. `id.calls` is held. Returns 0 or EINVAL. (route.cc)
int TakePath(Id& id, const void* value, size_t length);

// Fills in the path record from `id.attributes` and shows it to the
// application. `id.mutex` is held. (route.cc)
void ShowRoute(Id& id);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ADDRESS_H_
