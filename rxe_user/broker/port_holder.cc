// Who holds the RoCE port: /proc/net/udp and udp6, then the descriptors of all
// processes that may be looked at.
#include <dirent.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {
namespace {

struct Row {
  wire::IpAddress local;
  bool wildcard = false;
  bool v6 = false;
  uint64_t inode = 0;
  uint32_t uid = 0;
};

// Addresses there are words in host order, printed in hexadecimal.
bool ParseAddress(const std::string& hex, Row& row) {
  if (hex.size() != 8 && hex.size() != 32) return false;
  uint8_t raw[16];
  for (size_t i = 0; i < hex.size() / 8; ++i) {
    const uint32_t word = static_cast<uint32_t>(
        std::strtoul(hex.substr(8 * i, 8).c_str(), nullptr, 16));
    std::memcpy(raw + 4 * i, &word, sizeof(word));
  }
  row.v6 = hex.size() == 32;
  if (row.v6) {
    row.local = wire::IpAddress::FromGid(raw);
  } else {
    uint32_t v4;
    std::memcpy(&v4, raw, sizeof(v4));
    row.local = wire::IpAddress::FromV4(v4);
  }
  row.wildcard = row.local.is_unspecified();
  return true;
}

// Calls f for every socket on the RoCE port until it returns true.
bool FindRow(const std::function<bool(const Row&)>& f) {
  for (const char* path :
       {"/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"}) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);  // the headings
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queue, timer, retransmit;
      Row row;
      uint32_t timeout;
      fields >> number >> local >> remote >> state >> queue >> timer >>
          retransmit >> row.uid >> timeout >> row.inode;
      const size_t colon = local.find(':');
      if (!fields || colon == std::string::npos) continue;
      if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != kRocePort ||
          !ParseAddress(local.substr(0, colon), row)) {
        continue;
      }
      if (f(row)) return true;
    }
  }
  return false;
}

// "process 123 (iperf3)"; empty if no process that we may look at has it.
std::string ProcessOf(uint64_t inode) {
  const std::string wanted = "socket:[" + std::to_string(inode) + "]";
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return "";
  std::string found;
  while (const dirent* process = readdir(proc)) {
    if (process->d_name[0] < '1' || process->d_name[0] > '9') continue;
    const std::string base = std::string("/proc/") + process->d_name;
    DIR* fds = opendir((base + "/fd").c_str());
    if (fds == nullptr) continue;
    while (const dirent* fd = readdir(fds)) {
      char target[64];
      const std::string link = base + "/fd/" + fd->d_name;
      const ssize_t n = readlink(link.c_str(), target, sizeof(target));
      if (n > 0 && wanted == std::string_view(target, static_cast<size_t>(n))) {
        std::string name;
        std::getline(std::ifstream(base + "/comm"), name);
        found = std::string("process ") + process->d_name + " (" + name + ")";
        break;
      }
    }
    closedir(fds);
    if (!found.empty()) break;
  }
  closedir(proc);
  return found;
}

std::string Describe(const Row& row) {
  // A socket without a file is the kernel's own.
  if (row.inode == 0) return "the kernel (rdma_rxe)";
  const std::string process = ProcessOf(row.inode);
  if (!process.empty()) return process;
  return "a process of user " + std::to_string(row.uid);
}

}  // namespace

std::string PortHolder(const Address& address) {
  std::string holder;
  FindRow([&](const Row& row) {
    const bool hit = row.local == address.ip ||
                     // An IPv6 wildcard may hold IPv4 as well.
                     (row.wildcard && (row.v6 || address.ip.is_v4()));
    if (hit) holder = Describe(row);
    return hit;
  });
  return holder;
}

bool AnyoneOnPort() {
  return FindRow([](const Row&) { return true; });
}

std::string PortTakenText(const Address& address) {
  const std::string holder = PortHolder(address);
  std::string text = "UDP port " + std::to_string(kRocePort) + " of " +
                     address.ToString() + " is taken by " +
                     (holder.empty() ? "another socket" : holder);
  if (holder.starts_with("the kernel")) {
    text +=
        ": remove the kernel's device (rdma link delete, or modprobe -r "
        "rdma_rxe)";
  } else if (holder.find("(rxe-user-port-b") != std::string::npos) {
    text +=
        ": wait until the programs that use it have ended, or use the same "
        "version of rxe_user as they do";
  } else {
    text += ": stop it, or use another address or network namespace";
  }
  return text;
}

}  // namespace rxe_user::broker
