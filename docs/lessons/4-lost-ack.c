/* Lesson 4: a lost ACK.
 * faults: drop rx op=ack qp=@1 nth=1
 */
#include "pair.h"

int main(void) {
  connect_pair();
  receive(&server, 1);
  need(!post(2, IBV_WR_SEND, 1000, 0, 0), "post");
  int bad = completion(&server) != IBV_WC_SUCCESS; /* at once */
  bad |= completion(&client) != IBV_WC_SUCCESS;    /* after the second ACK */
  struct ibv_wc wc;
  int count = ibv_poll_cq(server.cq, 1, &wc);
  printf("the server has %d more completions\n", count);
  return bad || count != 0;
}
