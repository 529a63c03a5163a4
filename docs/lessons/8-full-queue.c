/* Lesson 8: unsignaled sends and a full queue. */
#include <unistd.h>

#include "pair.h"

int main(void) {
  all_signaled = 0;
  connect_pair();
  int id = 1, error = 0;
  while (id <= 16 && !(error = post(id, IBV_WR_RDMA_WRITE, 100, server.mr->rkey, 0))) ++id;
  printf("post %d: %s\n", id, strerror(error));
  usleep(100000); /* all are acknowledged by now; does that help? */
  int still = post(id, IBV_WR_RDMA_WRITE, 100, server.mr->rkey, 0);
  printf("again, 100 ms later: %s\n", strerror(still));
  int bad = error != ENOMEM || still != ENOMEM;

  puts("the same with every fourth one signaled:");
  connect_pair();
  for (id = 1; id <= 16; ++id) {
    int flags = id % 4 ? 0 : IBV_SEND_SIGNALED;
    need(!post(id, IBV_WR_RDMA_WRITE, 100, server.mr->rkey, flags), "post");
    if (flags) bad |= completion(&client) != IBV_WC_SUCCESS; /* frees all four */
  }
  return bad;
}
