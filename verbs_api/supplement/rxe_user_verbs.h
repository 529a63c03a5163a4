/*
 * Newer verbs for programs that are built with an older <infiniband/verbs.h>.
 * All names are our own, so any version of verbs.h can be included too. C and
 * C++.
 *
 * FLUSH and ATOMIC WRITE (annex A19 of the InfiniBand specification; rdma-core
 * 45 and newer). A device that supports them sets the bits below in
 * device_cap_flags_ex of ibv_query_device_ex(3). The target's memory region
 * and queue pair need the access flag of each placement type that a peer may
 * request. The requesting queue pair is created by ibv_create_qp_ex(3) with
 * RXE_USER_QP_EX_WITH_FLUSH in send_ops_flags.
 */
#ifndef RXE_USER_VERBS_H
#define RXE_USER_VERBS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* device_cap_flags_ex */
#define RXE_USER_DEVICE_FLUSH_GLOBAL (UINT64_C(1) << 38)
#define RXE_USER_DEVICE_FLUSH_PERSISTENT (UINT64_C(1) << 39)
#define RXE_USER_DEVICE_ATOMIC_WRITE (UINT64_C(1) << 40)

/* Access flags of memory regions and of queue pairs */
#define RXE_USER_ACCESS_FLUSH_GLOBAL (1 << 8)
#define RXE_USER_ACCESS_FLUSH_PERSISTENT (1 << 9)

/* send_ops_flags */
#define RXE_USER_QP_EX_WITH_FLUSH (UINT64_C(1) << 11)

/* The opcode of a completion */
#define RXE_USER_WC_FLUSH 8

/*
 * Placement types, one or both. GLOBAL: the data is visible to all readers.
 * PERSISTENT: the data is on its medium.
 */
#define RXE_USER_FLUSH_GLOBAL 1
#define RXE_USER_FLUSH_PERSISTENT 2
/* What is flushed: the given range, or the whole region of the key */
#define RXE_USER_FLUSH_RANGE 0
#define RXE_USER_FLUSH_REGION 1

/*
 * ibv_wr_flush of newer versions. Call it between ibv_wr_start and
 * ibv_wr_complete, and only on a queue pair that was created with the flag
 * above. A library without FLUSH refuses that flag.
 */
static inline void rxe_user_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey,
                                     uint64_t remote_addr, size_t length,
                                     uint8_t type, uint8_t level) {
  typedef void (*wr_flush)(struct ibv_qp_ex*, uint32_t, uint64_t, size_t,
                           uint8_t, uint8_t);
  /* In newer headers it is the member after the last one of older headers. */
  (*(wr_flush*)((char*)qp + offsetof(struct ibv_qp_ex, wr_atomic_write) +
                sizeof(qp->wr_atomic_write)))(qp, rkey, remote_addr, length,
                                              type, level);
}

/*
 * Completion counters (rdma-core 65 and newer): see the manual pages
 * ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3) and
 * ibv_query_comp_cntr_caps(3), and read ibv_ for rxe_user_. The functions are
 * weak: they are null if the libibverbs at run time does not have them.
 */
struct rxe_user_comp_cntr {
  struct ibv_context* context;
  uint32_t handle;
};
/* The unit that is counted for successes */
#define RXE_USER_COMP_CNTR_TYPE_WRS 0
#define RXE_USER_COMP_CNTR_TYPE_BYTES 1
struct rxe_user_comp_cntr_init_attr {
  uint32_t comp_mask;
  uint32_t type;
  uint32_t flags;
};
/* op_mask */
#define RXE_USER_COMP_CNTR_OP_SEND (1 << 0)
#define RXE_USER_COMP_CNTR_OP_RECV (1 << 1)
#define RXE_USER_COMP_CNTR_OP_RDMA_READ (1 << 2)
#define RXE_USER_COMP_CNTR_OP_REMOTE_RDMA_READ (1 << 3)
#define RXE_USER_COMP_CNTR_OP_RDMA_WRITE (1 << 4)
#define RXE_USER_COMP_CNTR_OP_REMOTE_RDMA_WRITE (1 << 5)
struct rxe_user_qp_attach_comp_cntr_attr {
  uint32_t comp_mask;
  uint32_t op_mask;
};
struct rxe_user_comp_cntr_caps {
  uint64_t max_value;
  uint32_t max_counters;
  uint32_t supported_qp_attach_ops;
};

#ifdef __cplusplus
extern "C" {
#endif
#define RXE_USER_WEAK(name) __asm__("ibv_" #name) __attribute__((weak))
int rxe_user_query_comp_cntr_caps_of_size(
    struct ibv_context* context, struct rxe_user_comp_cntr_caps* caps,
    size_t size) __asm__("_ibv_query_comp_cntr_caps") __attribute__((weak));
/* Never null itself: check another function for null first. */
static inline int rxe_user_query_comp_cntr_caps(
    struct ibv_context* context, struct rxe_user_comp_cntr_caps* caps) {
  return rxe_user_query_comp_cntr_caps_of_size(context, caps, sizeof(*caps));
}
struct rxe_user_comp_cntr* rxe_user_create_comp_cntr(
    struct ibv_context* context, struct rxe_user_comp_cntr_init_attr* attr)
    RXE_USER_WEAK(create_comp_cntr);
int rxe_user_destroy_comp_cntr(struct rxe_user_comp_cntr* counter)
    RXE_USER_WEAK(destroy_comp_cntr);
int rxe_user_qp_attach_comp_cntr(struct ibv_qp* qp,
                                 struct rxe_user_comp_cntr* counter,
                                 struct rxe_user_qp_attach_comp_cntr_attr* attr)
    RXE_USER_WEAK(qp_attach_comp_cntr);
int rxe_user_read_comp_cntr(struct rxe_user_comp_cntr* counter, uint64_t* value)
    RXE_USER_WEAK(read_comp_cntr);
int rxe_user_read_err_comp_cntr(struct rxe_user_comp_cntr* counter,
                                uint64_t* value)
    RXE_USER_WEAK(read_err_comp_cntr);
int rxe_user_set_comp_cntr(struct rxe_user_comp_cntr* counter, uint64_t value)
    RXE_USER_WEAK(set_comp_cntr);
int rxe_user_set_err_comp_cntr(struct rxe_user_comp_cntr* counter,
                               uint64_t value) RXE_USER_WEAK(set_err_comp_cntr);
int rxe_user_inc_comp_cntr(struct rxe_user_comp_cntr* counter, uint64_t amount)
    RXE_USER_WEAK(inc_comp_cntr);
int rxe_user_inc_err_comp_cntr(struct rxe_user_comp_cntr* counter,
                               uint64_t amount)
    RXE_USER_WEAK(inc_err_comp_cntr);
#undef RXE_USER_WEAK
#ifdef __cplusplus
}
#endif

#endif /* RXE_USER_VERBS_H */
