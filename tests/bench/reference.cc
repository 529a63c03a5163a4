#include "tests/bench/reference.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace reference {
namespace {

constexpr int kBuffer = 8 << 20;  // bytes, of a socket

}  // namespace

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void Die(const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
               std::strerror(errno));
  std::exit(1);
}

Address Parse(const std::string& text) {
  Address a;
  int good;
  if (text.find(':') != std::string::npos) {
    a.at.v6.sin6_family = AF_INET6;
    a.length = sizeof(a.at.v6);
    good = inet_pton(AF_INET6, text.c_str(), &a.at.v6.sin6_addr);
  } else {
    a.at.v4.sin_family = AF_INET;
    a.length = sizeof(a.at.v4);
    good = inet_pton(AF_INET, text.c_str(), &a.at.v4.sin_addr);
  }
  if (good != 1) {
    errno = EINVAL;
    Die(text.c_str());
  }
  return a;
}

InNamespace::InNamespace(const std::string& name) {
  if (name.empty()) return;
  const std::string path = "/run/netns/" + name;
  home_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (home_ < 0 || fd < 0 || setns(fd, CLONE_NEWNET) != 0) Die(path.c_str());
  close(fd);
}

InNamespace::~InNamespace() {
  if (home_ < 0) return;
  if (setns(home_, CLONE_NEWNET) != 0) Die("setns");
  close(home_);
}

UdpSocket OpenUdp(const std::string& text, const std::string& netns, bool gro) {
  const InNamespace there(netns);
  UdpSocket s;
  s.address = Parse(text);
  const bool v6 = s.address.is_v6();
  s.fd = socket(s.address.at.any.sa_family, SOCK_DGRAM, 0);
  if (s.fd < 0) Die("socket");
  const int one = 1;
  const int discover = v6 ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO;
  setsockopt(s.fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
             v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &discover,
             sizeof(discover));
  if (gro) setsockopt(s.fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) {
    if (setsockopt(s.fd, SOL_SOCKET, option, &kBuffer, sizeof(kBuffer)) != 0) {
      setsockopt(s.fd, SOL_SOCKET,
                 option == SO_RCVBUFFORCE ? SO_RCVBUF : SO_SNDBUF, &kBuffer,
                 sizeof(kBuffer));
    }
  }
  if (bind(s.fd, &s.address.at.any, s.address.length) != 0) Die("bind");
  if (getsockname(s.fd, &s.address.at.any, &s.address.length) != 0) {
    Die("getsockname");
  }
  return s;
}

void WriteSegmentSize(size_t bytes, msghdr* message) {
  cmsghdr* header = CMSG_FIRSTHDR(message);
  header->cmsg_level = IPPROTO_UDP;
  header->cmsg_type = UDP_SEGMENT;
  header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
  const uint16_t size = static_cast<uint16_t>(bytes);
  std::memcpy(CMSG_DATA(header), &size, sizeof(size));
}

pid_t ForkChild() {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // the parent has ended already
  }
  return child;
}

uint8_t* SharedMemory(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED) Die("mmap");
  return static_cast<uint8_t*>(p);
}

nlohmann::json Percentiles(std::vector<double> half) {
  std::sort(half.begin(), half.end());
  const auto at = [&](double percent) {
    return half[static_cast<size_t>(percent / 100 *
                                    static_cast<double>(half.size() - 1))];
  };
  nlohmann::json all = nlohmann::json::array();
  for (const double percent :
       {0.0, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
        95.0, 98.0, 99.0, 99.5, 99.9}) {
    all.push_back({percent, at(percent)});
  }
  return {{"min", half.front()},
          {"p50", at(50)},
          {"p99", at(99)},
          {"percentiles", std::move(all)}};
}

}  // namespace reference
