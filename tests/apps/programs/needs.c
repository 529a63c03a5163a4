// The requirements of some applications that cannot run here, taken from their
// sources, one line each. Usage: needs DEVICE GID-INDEX INTERFACE. The last
// line is "needs: N checks, N missing"; exits with 1 if any is missing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

static int checks, missing;
static const char* device;
static uint8_t gid_index;

static void Needs(const char* who, const char* what, int holds) {
  ++checks;
  missing += !holds;
  printf("%-9s %s: %s\n", who, what, holds ? "yes" : "MISSING");
}

// The first line of a sysfs file of the device; "" without the file.
static const char* Line(const char* format, int number) {
  static char line[128];
  char name[64], path[PATH_MAX];
  snprintf(name, sizeof(name), format, number);
  snprintf(path, sizeof(path), "/sys/class/infiniband/%s/%s", device, name);
  line[0] = 0;
  FILE* file = fopen(path, "r");
  if (file == NULL) return line;
  if (fgets(line, sizeof(line), file) != NULL) line[strcspn(line, "\n")] = 0;
  fclose(file);
  return line;
}

static int Versioned(void* library, const char* version, const char* names) {
  char list[1024];
  snprintf(list, sizeof(list), "%s", names);
  int all = 1;
  for (char* name = strtok(list, " "); name; name = strtok(NULL, " ")) {
    all &= dlvsym(library, name, version) != NULL;
  }
  return all;
}

struct End {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  char* memory;
};

static int Connect(struct ibv_qp* qp, uint32_t peer, const union ibv_gid* gid) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                        IBV_QP_ACCESS_FLAGS)) {
    return 0;
  }
  attr =
      (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = *gid;
  attr.ah_attr.grh.sgid_index = gid_index;
  attr.ah_attr.grh.hop_limit = 255;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                        IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
    return 0;
  }
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 18};
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                           IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static struct ibv_wc Next(struct ibv_cq* cq) {
  struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
  for (const time_t end = time(NULL) + 20; time(NULL) < end;) {
    if (ibv_poll_cq(cq, 1, &wc) != 0) break;
  }
  return wc;
}

// A connection to itself, with a list of WRITEs that ends with immediate data,
// a receive without a buffer, and a READ, by which NCCL flushes written data.
static void OperationsOfNccl(struct End* e) {
  struct ibv_recv_wr receive = {.wr_id = 100}, *bad_receive;
  struct ibv_sge sges[9];
  struct ibv_send_wr wrs[9], *bad;
  memset(wrs, 0, sizeof(wrs));
  for (int i = 0; i < 9; ++i) {
    sges[i] = (struct ibv_sge){(uintptr_t)e->memory + 64 * (unsigned)i, 64,
                               e->mr->lkey};
    wrs[i].wr_id = (uint64_t)i;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    wrs[i].opcode = i == 8 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wrs[i].imm_data = 77;
    wrs[i].send_flags = i == 8 ? IBV_SEND_SIGNALED : 0;
    wrs[i].wr.rdma.remote_addr = (uintptr_t)e->memory + 2048 + 64 * (unsigned)i;
    wrs[i].wr.rdma.rkey = e->mr->rkey;
    wrs[i].next = i == 8 ? NULL : &wrs[i + 1];
  }
  memset(e->memory, 0x5a, 576);
  int good = ibv_post_recv(e->qp, &receive, &bad_receive) == 0 &&
             ibv_post_send(e->qp, wrs, &bad) == 0;
  for (int i = 0; good && i < 2; ++i) {
    const struct ibv_wc wc = Next(e->cq);
    good = wc.status == IBV_WC_SUCCESS &&
           (wc.wr_id == 8 || (wc.wr_id == 100 && wc.imm_data == 77 &&
                              wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM));
  }
  good = good && memcmp(e->memory, e->memory + 2048, 576) == 0;
  Needs("NCCL", "a list of WRITEs, immediate data without a buffer", good);
  wrs[8].opcode = IBV_WR_RDMA_READ;
  Needs("NCCL", "READ from itself, to flush",
        ibv_post_send(e->qp, &wrs[8], &bad) == 0 &&
            Next(e->cq).status == IBV_WC_SUCCESS);
}

// Events, waited for with edge-triggered epoll on a non-blocking descriptor, as
// in Mooncake and brpc.
static void Events(struct End* e) {
  int fd = e->channel->fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET};
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  struct ibv_sge sge = {(uintptr_t)e->memory, 64, e->mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
  struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1}, *bad;
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.send_flags = IBV_SEND_SOLICITED;
  struct ibv_cq* cq;
  void* cookie;
  Needs("brpc", "events of solicited messages alone",
        ibv_req_notify_cq(e->cq, 1) == 0 &&
            ibv_post_recv(e->qp, &receive, &bad_receive) == 0 &&
            ibv_post_send(e->qp, &send, &bad) == 0 &&
            epoll_wait(epoll, &event, 1, 20000) == 1 &&
            ibv_get_cq_event(e->channel, &cq, &cookie) == 0 && cq == e->cq);
  ibv_ack_cq_events(e->cq, 1);
  Needs("Mooncake", "a channel in epoll by edges, EAGAIN when it is empty",
        Next(e->cq).status == IBV_WC_SUCCESS &&
            ibv_get_cq_event(e->channel, &cq, &cookie) != 0 && errno == EAGAIN);
  fd = e->context->async_fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  struct ibv_async_event async;
  Needs("brpc", "asynchronous events without blocking",
        ibv_get_async_event(e->context, &async) != 0 && errno == EAGAIN);
}

static void Files(struct ibv_context* context, const char* interface) {
  char path[PATH_MAX], real[PATH_MAX];
  snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", device);
  Needs("NCCL", "the real path of device",
        realpath(path, real) != NULL && strlen(real) > 3);
  Needs("NCCL", "gid_attrs/types",
        strcmp(Line("ports/1/gid_attrs/types/%d", gid_index), "RoCE v2") == 0);
  Needs("Mooncake", "gid_attrs/ndevs",
        strcmp(Line("ports/1/gid_attrs/ndevs/%d", gid_index), interface) == 0);
  Needs("Mooncake", "device/numa_node", Line("device/numa_node", 0)[0] != 0);
  struct ibv_gid_entry entry;
  Needs("Mooncake", "ibv_query_gid_ex",
        ibv_query_gid_ex(context, 1, gid_index, &entry, 0) == 0 &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2);
}

static void Library(struct ibv_pd* pd, char* memory, size_t size) {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW);
  Needs("NCCL", "functions by their versions",
        Versioned(library, "IBVERBS_1.1",
                  "ibv_get_device_list ibv_free_device_list ibv_open_device "
                  "ibv_close_device ibv_get_async_event ibv_ack_async_event "
                  "ibv_query_device ibv_query_port ibv_query_gid ibv_query_qp "
                  "ibv_alloc_pd ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr "
                  "ibv_create_cq ibv_destroy_cq ibv_create_qp ibv_modify_qp "
                  "ibv_destroy_qp ibv_fork_init ibv_event_type_str") &&
            Versioned(library, "IBVERBS_1.8", "ibv_reg_mr_iova2") &&
            Versioned(library, "IBVERBS_1.10", "ibv_query_ece ibv_set_ece") &&
            Versioned(library, "IBVERBS_1.12", "ibv_reg_dmabuf_mr"));
  Needs("brpc", "functions by their names",
        dlsym(library, "ibv_create_comp_channel") &&
            dlsym(library, "ibv_get_cq_event") &&
            dlsym(library, "ibv_ack_cq_events"));
  struct ibv_mr* mr = ibv_reg_mr(
      pd, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  Needs("NCCL", "relaxed ordering", mr != NULL && ibv_dereg_mr(mr) == 0);
  errno = 0;
  mr = ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
  // Otherwise NCCL would pass GPU memory.
  Needs("NCCL", "DMA-BUF is refused as unsupported",
        mr == NULL && (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT));
}

static void Attributes(struct ibv_context* context) {
  struct ibv_device_attr attr;
  struct ibv_port_attr port;
  if (ibv_query_device(context, &attr) || ibv_query_port(context, 1, &port)) {
    Needs("all", "attributes", 0);
    return;
  }
  Needs("NCCL", "an active Ethernet port with a speed and a width",
        port.state == IBV_PORT_ACTIVE &&
            port.link_layer == IBV_LINK_LAYER_ETHERNET && port.active_speed &&
            port.active_width);
  Needs("SPDK", "shared receive queues of 4,096, READs, 16 entries",
        attr.max_srq_wr >= 4096 && attr.max_qp_rd_atom >= 1 &&
            attr.max_sge >= 16);
  Needs("Valkey", "a completion vector", context->num_comp_vectors >= 1);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  device = argv[1];
  gid_index = (uint8_t)atoi(argv[2]);
  Needs("NCCL", "ibv_fork_init before all", ibv_fork_init() == 0);
  struct End e = {.context = NULL};
  struct ibv_device** list = ibv_get_device_list(NULL);
  for (int i = 0; list != NULL && list[i] != NULL; ++i) {
    if (strcmp(ibv_get_device_name(list[i]), device) == 0) {
      e.context = ibv_open_device(list[i]);
    }
  }
  union ibv_gid gid;
  if (e.context == NULL || ibv_query_gid(e.context, 1, gid_index, &gid)) {
    fprintf(stderr, "needs: there is no %s\n", device);
    return 2;
  }
  const size_t size = 4096;
  struct ibv_device_attr attr;
  ibv_query_device(e.context, &attr);
  e.memory = aligned_alloc(4096, size);
  e.pd = ibv_alloc_pd(e.context);
  e.channel = ibv_create_comp_channel(e.context);
  e.cq = ibv_create_cq(e.context, 2048, NULL, e.channel, 0);
  e.mr = ibv_reg_mr(e.pd, e.memory, size,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ);
  struct ibv_qp_init_attr init = {.send_cq = e.cq, .recv_cq = e.cq};
  init.qp_type = IBV_QPT_RC;
  init.cap = (struct ibv_qp_cap){1024, 1024, (uint32_t)attr.max_sge, 1, 0};
  e.qp = ibv_create_qp(e.pd, &init);
  Needs("Valkey", "1,024 requests of as many entries as the device has",
        e.qp != NULL);
  if (e.qp == NULL) return 1;
  Library(e.pd, e.memory, size);
  Attributes(e.context);
  Files(e.context, argv[3]);
  if (Connect(e.qp, e.qp->qp_num, &gid)) {
    OperationsOfNccl(&e);
    Events(&e);
  } else {
    Needs("NCCL", "a queue pair that is connected to itself", 0);
  }
  printf("needs: %d checks, %d missing\n", checks, missing);
  return missing != 0;
}
