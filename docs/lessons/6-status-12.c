/* Lesson 6: status 12: dead, wrong number, or no core.
 * faults: delay 500ms rx op=request qp=@6
 */
#include "pair.h"

/* `what` has happened to the server; what does the client see? */
static int attempt(const char *what) {
  printf("%s\n", what);
  need(!post(1, IBV_WR_RDMA_WRITE, 1000, server.mr->rkey, 0), "post");
  return completion(&client) != IBV_WC_RETRY_EXC_ERR;
}

int main(void) {
  settings.timeout = 10; /* 4.096 us * 2^10 = 4.2 ms without an ACK */
  settings.retry_cnt = 2;
  connect_pair();
  ibv_destroy_qp(server.qp);
  int bad = attempt("dead: the server has destroyed its queue pair");

  connect_pair();
  struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
  need(!ibv_modify_qp(client.qp, &reset, IBV_QP_STATE), "RESET");
  connect_to(&client, server.qp->qp_num ^ 0x800000);
  bad |= attempt("wrong number: the server is alive, but not this queue pair");

  connect_pair();
  bad |= attempt("no core: the server sees each packet 500 ms late");
  return bad;
}
