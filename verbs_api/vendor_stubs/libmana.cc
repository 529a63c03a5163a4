// libmana.so.1 for programs that are linked to it.
#include "verbs_api/vendor_stubs/stub.h"

ERRNO(manadv_init_obj)
ERRNO(manadv_set_context_attr)
POINTER(manadv_alloc_pd)
