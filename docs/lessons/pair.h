/* What the lessons share: two connected queue pairs in one process. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct side { /* a queue pair, with a completion queue and memory of its own */
  const char *name;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  char buffer[65536];
};
static struct ibv_context *context;
static struct side client = {.name = "client"}, server = {.name = "server"};
/* A lesson may change these before it calls connect_pair(). */
static struct ibv_qp_attr settings = {.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12};
static int all_signaled = 1;
static inline void need(int good, const char *what) {
  if (!good) fprintf(stderr, "%s: %s\n", what, strerror(errno)), exit(1);
}
static inline void create(struct side *s, struct ibv_pd *pd) {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  need((s->channel = ibv_create_comp_channel(context)) != NULL, "completion channel");
  need((s->cq = ibv_create_cq(context, 64, NULL, s->channel, 0)) != NULL, "completion queue");
  need((s->mr = ibv_reg_mr(pd, s->buffer, sizeof s->buffer, access)) != NULL, "memory region");
  struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC};
  init.cap = (struct ibv_qp_cap){8, 8, 1, 1, 0}, init.sq_sig_all = all_signaled; /* 8 sends, 8 receives */
  need((s->qp = ibv_create_qp(pd, &init)) != NULL, "queue pair");
  printf("%s: queue pair 0x%06x\n", s->name, s->qp->qp_num);
}
/* RESET -> INIT -> RTR (can receive) -> RTS (can send). */
static inline void connect_to(struct side *s, uint32_t peer) {
  struct ibv_qp_attr at = settings;
  int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  at.qp_state = IBV_QPS_INIT, at.port_num = 1, at.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  need(!ibv_modify_qp(s->qp, &at, init), "INIT");
  int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER;
  at.qp_state = IBV_QPS_RTR, at.path_mtu = IBV_MTU_1024, at.dest_qp_num = peer;
  at.rq_psn = at.sq_psn = 1000; /* real programs choose it at random */
  at.max_dest_rd_atomic = at.max_rd_atomic = at.ah_attr.port_num = at.ah_attr.is_global = 1,
  at.ah_attr.grh.hop_limit = 64;
  need(!ibv_query_gid(context, 1, 0, &at.ah_attr.grh.dgid), "GID");
  need(!ibv_modify_qp(s->qp, &at, rtr), "RTR");
  int rts =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  at.qp_state = IBV_QPS_RTS;
  need(!ibv_modify_qp(s->qp, &at, rts), "RTS");
}
static inline void connect_pair(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  need(list && list[0] && (context = ibv_open_device(list[0])), "no device");
  struct ibv_pd *pd = ibv_alloc_pd(context);
  need(pd != NULL, "protection domain");
  create(&client, pd), create(&server, pd);
  connect_to(&client, server.qp->qp_num), connect_to(&server, client.qp->qp_num);
}
static inline void receive(struct side *s, uint64_t id) {
  struct ibv_sge sge = {(uintptr_t)s->buffer, sizeof s->buffer, s->mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
  need(!ibv_post_recv(s->qp, &wr, &bad), "receive");
}
/* The client posts a SEND, WRITE or READ of the first bytes of the buffers. Returns 0 or an errno value. */
static inline int post(uint64_t id, enum ibv_wr_opcode opcode, uint32_t bytes, uint32_t rkey, int flags) {
  struct ibv_sge sge = {(uintptr_t)client.buffer, bytes, client.mr->lkey};
  struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
  wr.opcode = opcode, wr.send_flags = flags;
  wr.wr.rdma.remote_addr = (uintptr_t)server.buffer, wr.wr.rdma.rkey = rkey;
  return ibv_post_send(client.qp, &wr, &bad);
}
/* Polls until there is a completion, prints it, and returns its status. */
static inline enum ibv_wc_status completion(struct side *s) {
  struct ibv_wc wc;
  while (ibv_poll_cq(s->cq, 1, &wc) == 0) continue;
  printf("%s: wr_id %d, status %d, %s\n", s->name, (int)wc.wr_id, wc.status, ibv_wc_status_str(wc.status));
  return wc.status;
}
