// libhns.so.1 for programs that are linked to it.
#include "verbs_api/vendor_stubs/stub.h"

POINTER(hnsdv_create_qp)
FALSE(hnsdv_is_supported)
ERRNO(hnsdv_query_device)
