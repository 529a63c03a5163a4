// libionic.so.1 for programs that are linked to it.
#include "verbs_api/vendor_stubs/stub.h"

// Pipelines of the device: none.
EXPORTED unsigned char ionic_dv_ctx_get_udma_count() { return 0; }
EXPORTED unsigned char ionic_dv_ctx_get_udma_mask() { return 0; }
EXPORTED unsigned char ionic_dv_pd_get_udma_mask() { return 0; }
// Nobody's protection domain is one of that device.
EXPORTED int ionic_dv_pd_set_rqcmb() { return EPERM; }
EXPORTED int ionic_dv_pd_set_sqcmb() { return EPERM; }
EXPORTED int ionic_dv_pd_set_udma_mask() { return EPERM; }
