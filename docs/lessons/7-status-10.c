/* Lesson 7: status 10 and the 5s behind it. */
#include "pair.h"

int main(void) {
  connect_pair();
  uint32_t wrong = server.mr->rkey + 1;
  need(!post(1, IBV_WR_RDMA_WRITE, 1000, wrong, 0), "post");
  for (int id = 2; id <= 5; ++id) need(!post(id, IBV_WR_RDMA_WRITE, 1000, server.mr->rkey, 0), "post");
  int bad = completion(&client) != IBV_WC_REM_ACCESS_ERR;
  for (int id = 2; id <= 5; ++id) bad |= completion(&client) != IBV_WC_WR_FLUSH_ERR;
  return bad;
}
