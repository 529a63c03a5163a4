/*
 * What FLUSH and ATOMIC WRITE (annex A19 of the InfiniBand specification) need
 * beside <infiniband/verbs.h> of rdma-core before version 45: numbers and one
 * function, under names of their own, so that this header can be included
 * with any version. C and C++.
 *
 * A device that has them says so in device_cap_flags_ex of
 * ibv_query_device_ex(3). Memory and queue pair need the access flag of each
 * placement type that a peer may ask for; the queue pair that asks is made by
 * ibv_create_qp_ex(3) with RXE_USER_QP_EX_WITH_FLUSH in send_ops_flags.
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

/* Placement types, one or both: what others read sees it; it is on its medium
 */
#define RXE_USER_FLUSH_GLOBAL 1
#define RXE_USER_FLUSH_PERSISTENT 2
/* Of the range that is given, or of the whole region of the key */
#define RXE_USER_FLUSH_RANGE 0
#define RXE_USER_FLUSH_REGION 1

/* Its place in memory is right behind struct ibv_qp_ex of those versions. */
struct rxe_user_qp_ex {
  struct ibv_qp_ex qp;
  void (*wr_flush)(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                   size_t length, uint8_t type, uint8_t level);
};

/*
 * As ibv_wr_flush of newer versions; between ibv_wr_start and
 * ibv_wr_complete. Only for queue pairs made with the flag above, which only a
 * library that has FLUSH accepts.
 */
static inline void rxe_user_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey,
                                     uint64_t remote_addr, size_t length,
                                     uint8_t type, uint8_t level) {
  ((struct rxe_user_qp_ex*)qp)
      ->wr_flush(qp, rkey, remote_addr, length, type, level);
}

#endif /* RXE_USER_VERBS_H */
