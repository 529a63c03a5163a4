#include "rxe_user/broker/container_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/users.h"
#include "rxe_user/broker/protocol.h"

namespace rxe_user::broker {
namespace {

// Network namespaces may share the folder, so the name contains the namespace.
// Empty where /proc does not identify it.
std::string Path() {
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) != 0) return "";
  return std::string(kContainerFolder) + "/port-broker-" +
         std::to_string(kProtocolVersion) + "-" +
         std::to_string(network.st_ino);
}

SocketAddress AddressOf(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  SocketAddress out;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) return out;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  std::memcpy(&out.storage, &name, sizeof(name));
  out.size = sizeof(name);
  return out;
}

// Whether the folder exists and only its owner can write it: root, our user or
// an unmapped user.
bool IsTrusted(const char* folder) {
  struct stat s {};
  return lstat(folder, &s) == 0 && S_ISDIR(s.st_mode) &&
         (s.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
         (s.st_uid == 0 || s.st_uid == geteuid() || !NamesOneUser(s.st_uid));
}

}  // namespace

absl::StatusOr<UniqueFd> BindContainerSocket(bool make_folder) {
  const std::string path = Path();
  const SocketAddress address = AddressOf(path);
  const auto failed = [&] {
    return ErrnoStatus(errno, "cannot listen at " + path);
  };
  UniqueFd fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return failed();
  // The mode does not depend on the umask. An existing folder is left
  // unchanged.
  if (make_folder &&
      (mkdir(kContainerFolder, 0755) == 0 ? chmod(kContainerFolder, 0755) != 0
                                          : errno != EEXIST)) {
    return failed();
  }
  // A network namespace has one broker, so the file is a dead broker's.
  (void)unlink(path.c_str());
  if (bind(fd.get(), address.get(), address.size) != 0 ||
      chmod(path.c_str(), 0666) != 0) {
    return failed();
  }
  return fd;
}

SocketAddress ContainerSocket() {
  const std::string path = Path();
  if (path.empty() || access(path.c_str(), F_OK) != 0 || !IsTrusted("/run") ||
      !IsTrusted(kContainerFolder)) {
    return {};
  }
  return AddressOf(path);
}

}  // namespace rxe_user::broker
