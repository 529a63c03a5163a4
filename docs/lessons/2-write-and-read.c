/* Lesson 2: WRITE and READ: who works. */
#include "pair.h"

int main(void) {
  connect_pair();
  strcpy(client.buffer, "written by the client");
  need(!post(1, IBV_WR_RDMA_WRITE, 3000, server.mr->rkey, 0), "post");
  int bad = completion(&client) != IBV_WC_SUCCESS;
  printf("the server has \"%s\"\n", server.buffer);

  strcpy(server.buffer, "read by the client");
  need(!post(2, IBV_WR_RDMA_READ, 3000, server.mr->rkey, 0), "post");
  bad |= completion(&client) != IBV_WC_SUCCESS;
  printf("the client has \"%s\"\n", client.buffer);

  struct ibv_wc wc;
  int count = ibv_poll_cq(server.cq, 1, &wc);
  printf("the server has %d completions\n", count);
  return bad || count != 0;
}
