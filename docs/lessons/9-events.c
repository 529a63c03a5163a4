/* Lesson 9: events: poll, arm, poll. */
#include <poll.h>

#include "pair.h"

static int event_within(int ms) {
  struct pollfd fd = {.fd = server.channel->fd, .events = POLLIN};
  return poll(&fd, 1, ms);
}
static void transfer(int id) {
  receive(&server, id);
  need(!post(id, IBV_WR_SEND, 100, 0, 0), "post");
  completion(&client); /* the server has acknowledged it */
}

int main(void) {
  connect_pair();
  transfer(1); /* it arrives before the server arms its completion queue */
  ibv_req_notify_cq(server.cq, 0);
  int missed = !event_within(200);
  printf("event for the completion before arming: %s\n", missed ? "none" : "yes");
  completion(&server); /* the poll after arming finds it */

  transfer(2); /* the queue is still armed */
  struct ibv_cq *cq;
  void *own;
  int seen = event_within(10000) == 1 && !ibv_get_cq_event(server.channel, &cq, &own);
  printf("event for the completion after arming: %s\n", seen ? "yes" : "none");
  ibv_ack_cq_events(server.cq, 1);
  return !missed || !seen || completion(&server) != IBV_WC_SUCCESS;
}
