/* Lesson 3: a lost packet.
 * faults: drop tx op=data qp=@1 psn=+2 iter=1
 */
#include "pair.h"

int main(void) {
  connect_pair();
  receive(&server, 1);
  /* Five packets, of at most 1024 bytes. The third is lost. */
  need(!post(2, IBV_WR_SEND, 5000, 0, 0), "post");
  int bad = completion(&server) != IBV_WC_SUCCESS;
  bad |= completion(&client) != IBV_WC_SUCCESS;
  return bad;
}
