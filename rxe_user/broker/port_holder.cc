// Finds the process that holds the RoCE port: in /proc/net/udp and udp6, then
// among the descriptors of all processes that we may inspect.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "rxe_user/base/service_thread.h"
#include "rxe_user/base/users.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

// Addresses in these files are words in host order, in hexadecimal.
bool ParseAddress(const std::string& hex, PortSocket& socket) {
  if (hex.size() != 8 && hex.size() != 32) return false;
  uint8_t raw[16];
  for (size_t i = 0; i < hex.size() / 8; ++i) {
    const uint32_t word = static_cast<uint32_t>(
        std::strtoul(hex.substr(8 * i, 8).c_str(), nullptr, 16));
    std::memcpy(raw + 4 * i, &word, sizeof(word));
  }
  socket.v6 = hex.size() == 32;
  if (socket.v6) {
    socket.local = wire::IpAddress::FromGid(raw);
  } else {
    uint32_t v4;
    std::memcpy(&v4, raw, sizeof(v4));
    socket.local = wire::IpAddress::FromV4(v4);
  }
  return true;
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
// Null if it cannot be read.
using Folder = std::unique_ptr<DIR, CloseFolder>;
Folder OpenFolder(const std::string& path) {
  return Folder(opendir(path.c_str()));
}

// Calls f with the target of each open file of the process, until it returns
// true. False if it never did; nullopt if the process may not be inspected.
std::optional<bool> FindFile(const std::string& process,
                             const std::function<bool(std::string_view)>& f) {
  const Folder fds = OpenFolder("/proc/" + process + "/fd");
  if (fds == nullptr) return std::nullopt;
  bool found = false;
  while (const dirent* fd = found ? nullptr : readdir(fds.get())) {
    char target[64];
    const ssize_t n =
        readlinkat(dirfd(fds.get()), fd->d_name, target, sizeof(target));
    if (n > 0) found = f({target, static_cast<size_t>(n)});
  }
  return found;
}

// The inodes of the sockets that the process has open; nullopt as FindFile.
std::optional<std::set<uint64_t>> SocketsOf(pid_t process) {
  constexpr std::string_view kPrefix = "socket:[";
  std::set<uint64_t> inodes;
  const auto note = [&](std::string_view file) {
    if (file.starts_with(kPrefix)) {
      file.remove_prefix(kPrefix.size());
      uint64_t inode = 0;
      std::from_chars(file.data(), file.data() + file.size(), inode);
      inodes.insert(inode);
    }
    return false;
  };
  if (!FindFile(std::to_string(process), note).has_value()) {
    return std::nullopt;
  }
  return inodes;
}

// The ID, as text, of a process that has the socket open. Empty if we can see
// none.
std::string ProcessOf(uint64_t inode) {
  const std::string wanted = "socket:[" + std::to_string(inode) + "]";
  const Folder proc = OpenFolder("/proc");
  if (proc == nullptr) return "";
  std::string found;
  while (const dirent* process =
             found.empty() ? readdir(proc.get()) : nullptr) {
    if (process->d_name[0] < '1' || process->d_name[0] > '9') continue;
    if (FindFile(process->d_name, [&](std::string_view file) {
          return file == wanted;
        }).value_or(false)) {
      found = process->d_name;
    }
  }
  return found;
}

std::string Line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// Whether the process has one of our engines, by the name of the control
// thread.
bool HasEngine(const std::string& process) {
  const std::string base = "/proc/" + process + "/task/";
  const Folder tasks = OpenFolder(base);
  if (tasks == nullptr) return false;
  bool found = false;
  while (const dirent* task = found ? nullptr : readdir(tasks.get())) {
    found = Line(base + task->d_name + "/comm") == kControlThreadName;
  }
  return found;
}

// The kernel's sockets belong to root and are in no process's table of files.
// An ordinary user cannot tell them from sockets of root's processes.
bool MayBeTheKernels(const PortSocket& socket, const std::string& process) {
  return process.empty() && socket.uid == 0 &&
         access("/sys/module/rdma_rxe", F_OK) == 0;
}

// The effective user of a process.
std::optional<uint32_t> UserOf(const std::string& process) {
  std::ifstream in("/proc/" + process + "/status");
  std::string word;
  while (in >> word) {
    uint32_t real, effective;
    if (word == "Uid:" && in >> real >> effective) return effective;
  }
  return std::nullopt;
}

// Whether a broker lent the socket and a user keeps a copy, which does not
// block the next broker (Group::Join). Then the socket belongs to the broker's
// user, or without a broker to ours, since we would start the next one, and a
// process of another user holds it. If no process holds it, it may be in
// transit in a message.
bool IsLent(const PortSocket& socket, const std::string& process,
            const ucred* broker) {
  if (socket.uid != (broker != nullptr ? broker->uid : geteuid())) return false;
  if (process.empty()) {
    return broker != nullptr && socket.inode != 0 &&
           !MayBeTheKernels(socket, process);
  }
  return UserOf(process).value_or(socket.uid) != socket.uid;
}

std::string Describe(const PortSocket& socket, const std::string& process) {
  if (MayBeTheKernels(socket, process)) return "the kernel (rdma_rxe)";
  if (!process.empty()) {
    return "process " + process + " (" + Line("/proc/" + process + "/comm") +
           ")";
  }
  return "a process of user " + std::to_string(socket.uid);
}

// As ProcessOf; nullopt if the socket is gone. A socket without a process may
// have been closed since it was listed, belong to a process that is ending, or
// be in transit between processes. Nothing signals the end of such a state, so
// this retries for an eighth of a second.
std::optional<std::string> LastingProcessOf(const PortSocket& socket) {
  for (useconds_t wait_ms = 1;; wait_ms *= 2) {
    std::string process = ProcessOf(socket.inode);
    if (!process.empty() || socket.inode == 0) return process;
    const auto now = ListPortSockets();
    if (!now.has_value()) return process;
    if (std::ranges::find(*now, socket.inode, &PortSocket::inode) ==
        now->end()) {
      return std::nullopt;
    }
    if (wait_ms > 64) return process;
    usleep(wait_ms * 1000);
  }
}

bool MayConflict(const PortSocket& socket, const wire::IpAddress& ip) {
  // An IPv6 wildcard may cover IPv4 as well.
  return socket.local == ip ||
         (socket.local.is_unspecified() && (socket.v6 || ip.is_v4()));
}

}  // namespace

std::optional<std::vector<PortSocket>> ListPortSockets() {
  std::vector<PortSocket> sockets;
  for (const bool v6 : {false, true}) {
    std::ifstream in(v6 ? "/proc/thread-self/net/udp6"
                        : "/proc/thread-self/net/udp");
    if (!in && !v6) return std::nullopt;
    std::string line;
    std::getline(in, line);  // the headings
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queue, timer, retransmit;
      PortSocket socket;
      uint32_t timeout;
      fields >> number >> local >> remote >> state >> queue >> timer >>
          retransmit >> socket.uid >> timeout >> socket.inode;
      const size_t colon = local.find(':');
      if (!fields || colon == std::string::npos) continue;
      if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) ==
              wire::kRoceUdpPort &&
          ParseAddress(local.substr(0, colon), socket)) {
        sockets.push_back(socket);
      }
    }
  }
  return sockets;
}

static bool IsUserOf(const ucred& broker, uid_t uid) {
  return broker.uid == kUnknownUser ? uid == 0 || IsOwnUser(uid)
                                    : uid == broker.uid;
}

std::string ForeignHolder(const std::vector<PortSocket>& sockets,
                          const wire::IpAddress& ip, const ucred* broker) {
  std::optional<std::set<uint64_t>> of_broker;
  if (broker != nullptr && broker->pid != 0) of_broker = SocketsOf(broker->pid);
  for (const PortSocket& socket : sockets) {
    if (!MayConflict(socket, ip)) continue;
    if (broker != nullptr && socket.inode != 0) {
      // Where we may not inspect the broker, all sockets of its user count as
      // its own.
      if (of_broker.has_value() ? of_broker->contains(socket.inode)
                                : IsUserOf(*broker, socket.uid)) {
        continue;
      }
    }
    // A process with one of our engines soon hands its sockets to the next
    // broker.
    const std::optional<std::string> process = LastingProcessOf(socket);
    if (!process.has_value()) continue;
    if (!process->empty() && HasEngine(*process)) continue;
    if (IsLent(socket, *process, broker)) continue;
    return Describe(socket, *process);
  }
  return "";
}

std::string PortHolder(const LocalAddress& local) {
  for (const PortSocket& socket :
       ListPortSockets().value_or(std::vector<PortSocket>())) {
    if (MayConflict(socket, local.address)) {
      return Describe(socket, ProcessOf(socket.inode));
    }
  }
  return "";
}

bool AnyoneOnPort() {
  const auto sockets = ListPortSockets();
  if (sockets.has_value()) return !sockets->empty();
  // Without /proc. A socket of all addresses conflicts with every other one.
  for (const char* any : {"0.0.0.0", "::"}) {
    const LocalAddress all = {*wire::IpAddress::Parse(any), 0};
    if (!BindUdp(all, wire::kRoceUdpPort, Sharing::kExclusive).valid() &&
        errno == EADDRINUSE) {
      return true;
    }
  }
  return false;
}

std::string PortTakenText(const LocalAddress& local) {
  return PortTakenText(local.ToString(), PortHolder(local));
}

std::string PortTakenText(const std::string& addresses,
                          const std::string& holder) {
  std::string text = "UDP port " + std::to_string(wire::kRoceUdpPort) + " of " +
                     addresses + " is taken by " +
                     (holder.empty() ? "another socket" : holder);
  if (holder.starts_with("the kernel")) {
    text +=
        ": unload it (modprobe -r rdma_rxe; deleting its device does not free "
        "the port)";
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
