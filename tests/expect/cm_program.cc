// A program of rdma_cm(7) for tests of rxe-user: a server and its client, in
// one process; with the argument `synchronous`, an id without a channel; with
// `rare`, calls that few programs make. Prints the first call that fails, with
// its errno, and ends with 5.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

// Newer headers declare these functions, some with other types. So they have
// other names here.
extern "C" {
int resolve_addrinfo(
    rdma_cm_id* id, const char* node, const char* service,
    const rdma_addrinfo* hints) __asm__("rdma_resolve_addrinfo");
int query_addrinfo(rdma_cm_id* id,
                   rdma_addrinfo** info) __asm__("rdma_query_addrinfo");
int write_cm_event(rdma_cm_id* id, int event, int status,
                   uint64_t arg) __asm__("rdma_write_cm_event");
}

namespace {

// Events of the newer header.
constexpr int kAddrinfoResolved = 16;
constexpr int kUserEvent = 18;

constexpr int kPatienceMs = 2000;

void Need(bool done, const char* call) {
  if (done) return;
  std::printf("%s: %s\n", call, std::strerror(errno));
  std::exit(5);
}

// Takes the next event of the channel, which must have this type. Returns its
// id.
rdma_cm_id* Await(rdma_event_channel* channel, int type) {
  rdma_cm_event* event = nullptr;
  Need(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  if (static_cast<int>(event->event) != type) {
    std::printf("%s in place of %d\n", rdma_event_str(event->event), type);
    std::exit(6);
  }
  rdma_cm_id* const id = event->id;
  Need(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
  return id;
}

void CreateQueuePair(rdma_cm_id* id) {
  ibv_qp_init_attr init = {};
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  Need(rdma_create_qp(id, nullptr, &init) == 0, "rdma_create_qp");
}

sockaddr_in Loopback() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// For a synchronous id, the library itself takes and acknowledges the events.
int UseSynchronousId() {
  rdma_cm_id* id = nullptr;
  Need(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0,
       "rdma_create_id");
  sockaddr_in to = Loopback();
  to.sin_port = htons(1);
  Need(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to),
                         kPatienceMs) == 0,
       "rdma_resolve_addr");
  Need(rdma_resolve_route(id, kPatienceMs) == 0, "rdma_resolve_route");
  Need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  std::printf("destroyed\n");
  return 0;
}

int UseRareCalls() {
  rdma_event_channel* const channel = rdma_create_event_channel();
  Need(channel != nullptr, "rdma_create_event_channel");
  rdma_cm_id* id = nullptr;
  Need(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0,
       "rdma_create_id");
  ibv_ece ece = {};
  ece.vendor_id = 1;
  Need(rdma_set_local_ece(id, &ece) == 0, "rdma_set_local_ece");
  Need(rdma_get_remote_ece(id, &ece) == 0, "rdma_get_remote_ece");
  Need(write_cm_event(id, kUserEvent, 0, 1) == 0, "rdma_write_cm_event");
  Await(channel, kUserEvent);
  Need(resolve_addrinfo(id, "127.0.0.1", "7471", nullptr) == 0,
       "rdma_resolve_addrinfo");
  Await(channel, kAddrinfoResolved);
  rdma_addrinfo* info = nullptr;
  Need(query_addrinfo(id, &info) == 0, "rdma_query_addrinfo");
  rdma_freeaddrinfo(info);
  Need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
  std::printf("destroyed\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc > 1 && std::strcmp(argv[1], "synchronous") == 0) {
    return UseSynchronousId();
  }
  if (argc > 1 && std::strcmp(argv[1], "rare") == 0) return UseRareCalls();
  rdma_event_channel* const at_server = rdma_create_event_channel();
  Need(at_server != nullptr, "rdma_create_event_channel");
  rdma_event_channel* const at_client = rdma_create_event_channel();
  Need(at_client != nullptr, "rdma_create_event_channel");
  rdma_cm_id* listener = nullptr;
  rdma_cm_id* client = nullptr;
  Need(rdma_create_id(at_server, &listener, nullptr, RDMA_PS_TCP) == 0,
       "rdma_create_id");
  Need(rdma_create_id(at_client, &client, nullptr, RDMA_PS_TCP) == 0,
       "rdma_create_id");
  sockaddr_in address = Loopback();
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  Need(rdma_bind_addr(listener, to) == 0, "rdma_bind_addr");
  Need(rdma_listen(listener, 1) == 0, "rdma_listen");
  address.sin_port = rdma_get_src_port(listener);

  // Tries again, as a patient program does.
  int tries = 1;
  while (rdma_resolve_addr(client, nullptr, to, kPatienceMs) != 0) {
    Need(errno == EAGAIN && tries < 3, "rdma_resolve_addr");
    ++tries;
  }
  Await(at_client, RDMA_CM_EVENT_ADDR_RESOLVED);
  Need(rdma_resolve_route(client, kPatienceMs) == 0, "rdma_resolve_route");
  Await(at_client, RDMA_CM_EVENT_ROUTE_RESOLVED);
  CreateQueuePair(client);
  rdma_conn_param param = {};
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  Need(rdma_connect(client, &param) == 0, "rdma_connect");
  rdma_cm_id* const server = Await(at_server, RDMA_CM_EVENT_CONNECT_REQUEST);
  CreateQueuePair(server);
  Need(rdma_accept(server, &param) == 0, "rdma_accept");
  Await(at_client, RDMA_CM_EVENT_ESTABLISHED);
  Await(at_server, RDMA_CM_EVENT_ESTABLISHED);
  Need(rdma_disconnect(client) == 0, "rdma_disconnect");
  Await(at_server, RDMA_CM_EVENT_DISCONNECTED);
  Need(rdma_disconnect(server) == 0, "rdma_disconnect");
  Await(at_client, RDMA_CM_EVENT_DISCONNECTED);
  for (rdma_cm_id* const id : {client, server}) {
    rdma_destroy_qp(id);
    Need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  }
  Need(rdma_destroy_id(listener) == 0, "rdma_destroy_id");
  rdma_destroy_event_channel(at_client);
  rdma_destroy_event_channel(at_server);
  std::printf("connected, tries %d\n", tries);
  return 0;
}
