// Symbols that only very old programs use, but that the dynamic linker looks
// up: the interface of libibverbs 1.0 (2006), which had other structures, and
// ibv_register_driver. They find no device and do nothing.
//
// Only for the shared library: an executable has no version nodes.
#include <infiniband/verbs.h>

#include <cerrno>

#include "verbs_api/symbols.h"

#define COMPAT(version, name, type, body)          \
  SYMBOL_VERSION(compat_##name, #name "@" version) \
  type compat_##name() body

#define COMPAT_POINTER(version, name) \
  COMPAT(version, name, void*, {      \
    errno = ENOSYS;                   \
    return nullptr;                   \
  })
#define COMPAT_ERRNO(version, name) \
  COMPAT(version, name, int, { return ENOSYS; })
#define COMPAT_MINUS_ONE(version, name) \
  COMPAT(version, name, int, {          \
    errno = ENOSYS;                     \
    return -1;                          \
  })
#define COMPAT_ZERO(version, name) COMPAT(version, name, long, { return 0; })
#define COMPAT_VOID(version, name) COMPAT(version, name, void, {})

// Stores the number of devices in `*count`, as callers expect.
SYMBOL_VERSION(compat_ibv_get_device_list, "ibv_get_device_list@IBVERBS_1.0")
void** compat_ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 0;
  errno = ENOSYS;
  return nullptr;
}

COMPAT_POINTER("IBVERBS_1.0", ibv_alloc_pd)
COMPAT_POINTER("IBVERBS_1.0", ibv_create_ah)
COMPAT_POINTER("IBVERBS_1.0", ibv_create_cq)
COMPAT_POINTER("IBVERBS_1.0", ibv_create_qp)
COMPAT_POINTER("IBVERBS_1.0", ibv_create_srq)
COMPAT_POINTER("IBVERBS_1.0", ibv_get_device_name)
COMPAT_POINTER("IBVERBS_1.0", ibv_open_device)
COMPAT_POINTER("IBVERBS_1.0", ibv_reg_mr)
COMPAT_ERRNO("IBVERBS_1.0", ibv_attach_mcast)
COMPAT_ERRNO("IBVERBS_1.0", ibv_dealloc_pd)
COMPAT_ERRNO("IBVERBS_1.0", ibv_dereg_mr)
COMPAT_ERRNO("IBVERBS_1.0", ibv_destroy_ah)
COMPAT_ERRNO("IBVERBS_1.0", ibv_destroy_cq)
COMPAT_ERRNO("IBVERBS_1.0", ibv_destroy_qp)
COMPAT_ERRNO("IBVERBS_1.0", ibv_destroy_srq)
COMPAT_ERRNO("IBVERBS_1.0", ibv_detach_mcast)
COMPAT_ERRNO("IBVERBS_1.0", ibv_modify_qp)
COMPAT_ERRNO("IBVERBS_1.0", ibv_modify_srq)
COMPAT_ERRNO("IBVERBS_1.0", ibv_query_device)
COMPAT_ERRNO("IBVERBS_1.0", ibv_query_port)
COMPAT_ERRNO("IBVERBS_1.0", ibv_query_qp)
COMPAT_ERRNO("IBVERBS_1.0", ibv_query_srq)
COMPAT_ERRNO("IBVERBS_1.0", ibv_resize_cq)
COMPAT_MINUS_ONE("IBVERBS_1.0", ibv_close_device)
COMPAT_MINUS_ONE("IBVERBS_1.0", ibv_get_async_event)
COMPAT_MINUS_ONE("IBVERBS_1.0", ibv_get_cq_event)
COMPAT_MINUS_ONE("IBVERBS_1.0", ibv_query_gid)
COMPAT_MINUS_ONE("IBVERBS_1.0", ibv_query_pkey)
COMPAT_ZERO("IBVERBS_1.0", ibv_get_device_guid)
COMPAT_VOID("IBVERBS_1.0", ibv_ack_async_event)
COMPAT_VOID("IBVERBS_1.0", ibv_ack_cq_events)
COMPAT_VOID("IBVERBS_1.0", ibv_free_device_list)
COMPAT_VOID("IBVERBS_1.1", ibv_register_driver)

// Releases of rdma-core move private symbols to another version node and leave
// them otherwise unchanged. Programs use two of them: ibv_devinfo and pyverbs
// call the first; verbs.h declares the second since version 55.
extern "C" int ibv_query_gid_type(ibv_context*, uint8_t, unsigned int, int*);
extern "C" const char* ibv_wr_opcode_str(ibv_wr_opcode);

#define QUERY_GID_TYPE(node)                                           \
  SYMBOL_VERSION(compat_query_gid_type_##node,                         \
                 "ibv_query_gid_type@IBVERBS_PRIVATE_" #node)          \
  int compat_query_gid_type_##node(ibv_context* context, uint8_t port, \
                                   unsigned int i, int* type) {        \
    return ibv_query_gid_type(context, port, i, type);                 \
  }
#define WR_OPCODE_STR(node)                                       \
  SYMBOL_VERSION(compat_wr_opcode_str_##node,                     \
                 "ibv_wr_opcode_str@IBVERBS_PRIVATE_" #node)      \
  const char* compat_wr_opcode_str_##node(ibv_wr_opcode opcode) { \
    return ibv_wr_opcode_str(opcode);                             \
  }
QUERY_GID_TYPE(25)  // rdma-core 25 to 32
QUERY_GID_TYPE(33)
// The default versions have the nodes of 34 to 56.
QUERY_GID_TYPE(57)
QUERY_GID_TYPE(59)  // to 63
QUERY_GID_TYPE(64)
QUERY_GID_TYPE(65)
WR_OPCODE_STR(57)
WR_OPCODE_STR(59)
WR_OPCODE_STR(64)
WR_OPCODE_STR(65)
