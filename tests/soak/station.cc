#include "tests/soak/station.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/soak/pattern.h"

namespace soak {
namespace {

constexpr int kCompletions = 4096;

template <typename T>
T* Made(T* object, const char* what) {
  if (object == nullptr) Die(what, errno);
  return object;
}

void Gone(int error, const char* what) {
  if (error != 0) Die(what, error);
}

}  // namespace

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void Die(const std::string& what, int error) {
  std::fprintf(stderr, "soak_peer: %s: %s\n", what.c_str(),
               std::strerror(error));
  std::fflush(stderr);
  _exit(3);
}

Memory::Memory(size_t bytes) : size_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Die("mmap", errno);
  data_ = static_cast<uint8_t*>(memory);
}

Memory::~Memory() { munmap(data_, size_); }

ibv_gid GidOf(const std::string& address) {
  ibv_gid gid = {};
  if (address.find(':') != std::string::npos) {
    if (inet_pton(AF_INET6, address.c_str(), gid.raw) != 1) {
      Die(address, EINVAL);
    }
    return gid;
  }
  gid.raw[10] = gid.raw[11] = 0xff;
  if (inet_pton(AF_INET, address.c_str(), gid.raw + 12) != 1) {
    Die(address, EINVAL);
  }
  return gid;
}

Device::Device(ibv_context* context, uint64_t key) : context_(context) {
  pd_ = Made(ibv_alloc_pd(context_), "ibv_alloc_pd");
  channel_ = Made(ibv_create_comp_channel(context_), "ibv_create_comp_channel");
  cq_ = Made(ibv_create_cq(context_, kCompletions, this, channel_, 0),
             "ibv_create_cq");
  ibv_srq_init_attr attr = {};
  attr.attr.max_wr = kShared;
  attr.attr.max_sge = 1;
  srq_ = Made(ibv_create_srq(pd_, &attr), "ibv_create_srq");
  FillPattern(readable_.data(), readable_.size(), key);
  readable_mr_ = Made(ibv_reg_mr(pd_, readable_.data(), readable_.size(),
                                 IBV_ACCESS_REMOTE_READ),
                      "ibv_reg_mr");
  shared_mr_ = Made(ibv_reg_mr(pd_, shared_memory_.data(),
                               shared_memory_.size(), IBV_ACCESS_LOCAL_WRITE),
                    "ibv_reg_mr");
  for (size_t i = 0; i < kShared; ++i) PostShared(i);
  for (const int fd : {channel_->fd, context_->async_fd}) {
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      Die("fcntl", errno);
    }
  }
}

Device::~Device() {
  Gone(ibv_destroy_srq(srq_), "ibv_destroy_srq");
  Gone(ibv_dereg_mr(shared_mr_), "ibv_dereg_mr");
  Gone(ibv_dereg_mr(readable_mr_), "ibv_dereg_mr");
  Gone(ibv_destroy_cq(cq_), "ibv_destroy_cq");
  Gone(ibv_destroy_comp_channel(channel_), "ibv_destroy_comp_channel");
  Gone(ibv_dealloc_pd(pd_), "ibv_dealloc_pd");
  Gone(ibv_close_device(context_), "ibv_close_device");
}

int Device::FindGid(const ibv_gid& gid) const {
  ibv_port_attr port;
  if (ibv_query_port(context_, 1, &port) != 0) return -1;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid entry;
    if (ibv_query_gid(context_, 1, i, &entry) == 0 &&
        std::memcmp(entry.raw, gid.raw, sizeof(gid.raw)) == 0) {
      return i;
    }
  }
  return -1;
}

void Device::PostShared(size_t index) {
  ibv_sge sge = {shared_memory_.address(index * kMaxBytes), kMaxBytes,
                 shared_mr_->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = kReceiveId + index;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad;
  Gone(ibv_post_srq_recv(srq_, &wr, &bad), "ibv_post_srq_recv");
}

Device* Station::Find(const std::string& address, int* gid_index) {
  const ibv_gid gid = GidOf(address);
  for (const auto& device : devices_) {
    *gid_index = device->FindGid(gid);
    if (*gid_index >= 0) return device.get();
  }
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr) return nullptr;
  Device* found = nullptr;
  for (ibv_device** each = list; *each != nullptr && found == nullptr; ++each) {
    bool open = false;
    for (const auto& device : devices_) {
      open = open || std::strcmp(ibv_get_device_name(device->context()->device),
                                 ibv_get_device_name(*each)) == 0;
    }
    ibv_context* const context = open ? nullptr : ibv_open_device(*each);
    if (context == nullptr) continue;
    auto device = std::make_unique<Device>(context, key_);
    *gid_index = device->FindGid(gid);
    if (*gid_index < 0) continue;
    found = device.get();
    devices_.push_back(std::move(device));
  }
  ibv_free_device_list(list);
  return found;
}

}  // namespace soak
