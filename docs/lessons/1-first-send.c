/* Lesson 1: the first SEND. */
#include "pair.h"

int main(void) {
  connect_pair();
  receive(&server, 1); /* first: it says where the message goes */
  strcpy(client.buffer, "hello");
  need(!post(2, IBV_WR_SEND, 3000, 0, 0), "post");
  int bad = completion(&server) != IBV_WC_SUCCESS;
  bad |= completion(&client) != IBV_WC_SUCCESS;
  printf("the server has \"%s\"\n", server.buffer);
  return bad;
}
