/* Lesson 5: the receiver is not ready. */
#include <unistd.h>

#include "pair.h"

int main(void) {
  settings.min_rnr_timer = 18; /* the server asks for a pause of 5.12 ms */
  settings.rnr_retry = 7;      /* the client repeats without limit */
  connect_pair();
  need(!post(1, IBV_WR_SEND, 1000, 0, 0), "post");
  usleep(12000); /* the server does something else, and no receive is posted */
  receive(&server, 2);
  int bad = completion(&server) != IBV_WC_SUCCESS;
  bad |= completion(&client) != IBV_WC_SUCCESS;
  return bad;
}
