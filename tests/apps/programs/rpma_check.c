// Remote memory access with librpma, with verified contents. Usage:
//   rpma_check server ADDRESS PORT
//   rpma_check client ADDRESS PORT
// The server prints "listens" when it does. Both end with "ok".
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSize = 1 << 20, kMessage = 64, kWords = 16 };

static void Fail(const char* what, int error) {
  printf("%s: %s\n", what, rpma_err_2str(error));
  exit(1);
}

static void Check(const char* what, int error) {
  if (error) Fail(what, error);
}

static void ExpectEvent(struct rpma_conn* connection,
                        enum rpma_conn_event want) {
  enum rpma_conn_event event;
  Check("rpma_conn_next_event", rpma_conn_next_event(connection, &event));
  if (event != want) {
    printf("%s in place of %s\n", rpma_utils_conn_event_2str(event),
           rpma_utils_conn_event_2str(want));
    exit(1);
  }
}

// Waits for one completion, of the request with `context`.
static struct ibv_wc Complete(struct rpma_cq* cq, const void* context) {
  struct ibv_wc wc;
  int error;
  while ((error = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
    Check("rpma_cq_wait", rpma_cq_wait(cq));
  }
  Check("rpma_cq_get_wc", error);
  if (wc.status || wc.wr_id != (uintptr_t)context) {
    printf("work of %p completes as %s\n", context,
           ibv_wc_status_str(wc.status));
    exit(1);
  }
  return wc;
}

static unsigned char Byte(size_t at) { return (at * 7 + at / 251) & 0xff; }

// The description of the server's memory for the client.
struct Told {
  unsigned char size;
  char descriptor[40];
};

static int Serve(const char* address, const char* port) {
  struct ibv_context* context;
  struct rpma_peer* peer;
  struct rpma_ep* endpoint;
  Check("rpma_utils_get_ibv_context",
        rpma_utils_get_ibv_context(address, RPMA_UTIL_IBV_CONTEXT_LOCAL,
                                   &context));
  Check("rpma_peer_new", rpma_peer_new(context, &peer));
  unsigned char* memory = calloc(1, kSize + kMessage);
  struct rpma_mr_local* region;
  Check("rpma_mr_reg",
        rpma_mr_reg(peer, memory, kSize + kMessage,
                    RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
                        RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |
                        RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV,
                    &region));
  struct Told told;
  size_t size;
  Check("size", rpma_mr_get_descriptor_size(region, &size));
  if (size > sizeof(told.descriptor)) Fail("descriptor", RPMA_E_NOSUPP);
  told.size = size;
  Check("descriptor", rpma_mr_get_descriptor(region, told.descriptor));

  Check("rpma_ep_listen", rpma_ep_listen(peer, address, port, &endpoint));
  puts("listens");
  fflush(stdout);
  struct rpma_conn_req* request;
  Check("rpma_ep_next_conn_req",
        rpma_ep_next_conn_req(endpoint, NULL, &request));
  Check("rpma_conn_req_recv",
        rpma_conn_req_recv(request, region, kSize, kMessage, memory));
  struct rpma_conn_private_data data = {&told, sizeof(told)};
  struct rpma_conn* connection;
  Check("rpma_conn_req_connect",
        rpma_conn_req_connect(&request, &data, &connection));
  ExpectEvent(connection, RPMA_CONN_ESTABLISHED);

  // The client announces that everything is written; the server replies with
  // the sum.
  struct rpma_cq* cq;
  Check("rpma_conn_get_cq", rpma_conn_get_cq(connection, &cq));
  Complete(cq, memory);
  for (size_t i = 0; i < kSize; ++i) {
    const unsigned char want = i < kWords * 8 ? 'a' + i / 8 : Byte(i);
    if (memory[i] != want) {
      printf("byte %zu is %u and not %u\n", i, memory[i], want);
      return 1;
    }
  }
  memory[kSize] ^= 0xff;
  Check("rpma_send", rpma_send(connection, region, kSize, kMessage,
                               RPMA_F_COMPLETION_ALWAYS, region));
  Complete(cq, region);
  ExpectEvent(connection, RPMA_CONN_CLOSED);
  Check("rpma_conn_disconnect", rpma_conn_disconnect(connection));
  Check("rpma_conn_delete", rpma_conn_delete(&connection));
  Check("rpma_ep_shutdown", rpma_ep_shutdown(&endpoint));
  Check("rpma_mr_dereg", rpma_mr_dereg(&region));
  Check("rpma_peer_delete", rpma_peer_delete(&peer));
  free(memory);
  puts("ok");
  return 0;
}

static int Ask(const char* address, const char* port) {
  struct ibv_context* context;
  struct rpma_peer* peer;
  Check("rpma_utils_get_ibv_context",
        rpma_utils_get_ibv_context(address, RPMA_UTIL_IBV_CONTEXT_REMOTE,
                                   &context));
  Check("rpma_peer_new", rpma_peer_new(context, &peer));
  struct rpma_conn* connection;
  struct rpma_conn_req* request;
  struct rpma_conn_cfg* sizes;
  Check("rpma_conn_cfg_new", rpma_conn_cfg_new(&sizes));
  Check("sq_size", rpma_conn_cfg_set_sq_size(sizes, kWords + 8));
  Check("cq_size", rpma_conn_cfg_set_cq_size(sizes, kWords + 8));
  Check("rpma_conn_req_new",
        rpma_conn_req_new(peer, address, port, sizes, &request));
  Check("rpma_conn_cfg_delete", rpma_conn_cfg_delete(&sizes));
  Check("rpma_conn_req_connect",
        rpma_conn_req_connect(&request, NULL, &connection));
  ExpectEvent(connection, RPMA_CONN_ESTABLISHED);
  struct rpma_conn_private_data data;
  Check("rpma_conn_get_private_data",
        rpma_conn_get_private_data(connection, &data));
  struct Told told;
  if (data.len < sizeof(told)) Fail("private data", RPMA_E_INVAL);
  memcpy(&told, data.ptr, sizeof(told));
  struct rpma_mr_remote* remote;
  Check("rpma_mr_remote_from_descriptor",
        rpma_mr_remote_from_descriptor(told.descriptor, told.size, &remote));

  unsigned char* memory = malloc(2 * kSize + kMessage);
  for (size_t i = 0; i < kSize; ++i) memory[i] = Byte(i);
  memset(memory + kSize, 0, kSize + kMessage);
  struct rpma_mr_local* region;
  Check("rpma_mr_reg",
        rpma_mr_reg(peer, memory, 2 * kSize + kMessage,
                    RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
                        RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV,
                    &region));
  struct rpma_cq* cq;
  Check("rpma_conn_get_cq", rpma_conn_get_cq(connection, &cq));
  Check("rpma_write", rpma_write(connection, remote, 0, region, 0, kSize,
                                 RPMA_F_COMPLETION_ON_ERROR, memory));
  for (int i = 0; i < kWords; ++i) {
    char word[8];
    memset(word, 'a' + i, sizeof(word));
    Check("rpma_atomic_write",
          rpma_atomic_write(connection, remote, i * sizeof(word), word,
                            RPMA_F_COMPLETION_ON_ERROR, memory));
  }
  Check("rpma_flush",
        rpma_flush(connection, remote, 0, kSize, RPMA_FLUSH_TYPE_VISIBILITY,
                   RPMA_F_COMPLETION_ALWAYS, remote));
  Complete(cq, remote);
  Check("rpma_read", rpma_read(connection, region, kSize, remote, 0, kSize,
                               RPMA_F_COMPLETION_ALWAYS, cq));
  Complete(cq, cq);
  for (size_t i = kWords * 8; i < kSize; ++i) {
    if (memory[kSize + i] != Byte(i)) {
      printf("byte %zu is read as %u\n", i, memory[kSize + i]);
      return 1;
    }
  }
  Check("rpma_recv", rpma_recv(connection, region, 2 * kSize, kMessage, peer));
  Check("rpma_send", rpma_send(connection, region, 2 * kSize, kMessage,
                               RPMA_F_COMPLETION_ON_ERROR, memory));
  Complete(cq, peer);
  if (memory[2 * kSize] != 0xff) {
    puts("the server's answer is not the one to what was sent");
    return 1;
  }
  Check("rpma_conn_disconnect", rpma_conn_disconnect(connection));
  ExpectEvent(connection, RPMA_CONN_CLOSED);
  Check("rpma_mr_remote_delete", rpma_mr_remote_delete(&remote));
  Check("rpma_conn_delete", rpma_conn_delete(&connection));
  Check("rpma_mr_dereg", rpma_mr_dereg(&region));
  Check("rpma_peer_delete", rpma_peer_delete(&peer));
  free(memory);
  puts("ok");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return strcmp(argv[1], "server") ? Ask(argv[2], argv[3])
                                   : Serve(argv[2], argv[3]);
}
