/* Lesson 10: congestion.
 * faults: ce tx op=data qp=@1 nth=3
 */
#include "pair.h"

int main(void) {
  connect_pair();
  need(!post(1, IBV_WR_RDMA_WRITE, 8192, server.mr->rkey, 0), "post");
  int bad = completion(&client) != IBV_WC_SUCCESS;
  need(!post(2, IBV_WR_RDMA_WRITE, 8192, server.mr->rkey, 0), "post");
  bad |= completion(&client) != IBV_WC_SUCCESS;
  return bad;
}
