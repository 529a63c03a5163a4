#include "rxe_user/observe/output_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rxe_user/base/users.h"

namespace rxe_user {
namespace {

// The number of names that are tried.
constexpr int kMaxNames = 100;
std::string WithPid(std::string name, bool* had_pid) {
  const std::string pid = std::to_string(::getpid());
  *had_pid = false;
  for (size_t at = 0; (at = name.find("%p", at)) != std::string::npos;
       at += pid.size()) {
    name.replace(at, 2, pid);
    *had_pid = true;
  }
  return name;
}

// Whether `path` names a descriptor of this process, as /dev/stdout does.
bool NamesOwnDescriptor(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/stderr" ||
         path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

// A pipe without a name, which can only be reached through a descriptor.
bool IsUnnamedPipe(int fd) {
  struct statfs s {};
  return ::fstatfs(fd, &s) == 0 && s.f_type == PIPEFS_MAGIC;
}

enum class FileKind { kShared, kOther, kFailed };

// Classifies the file at `path`. kShared: a character device or a pipe of this
// user, with its status in `*file`; a link to one is followed if the link
// belongs to this user or root. kOther: anything else, which is not written to,
// whoever created it. kFailed: errno is set.
FileKind Classify(const std::string& path, struct stat* file) {
  const UniqueFd named(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!named.valid()) {  // ENOENT: just removed
    return errno == ENOENT ? FileKind::kOther : FileKind::kFailed;
  }
  if (::fstat(named.get(), file) != 0) return FileKind::kFailed;
  const bool own_descriptor = NamesOwnDescriptor(path);
  UniqueFd target;
  if (S_ISLNK(file->st_mode)) {
    if (!own_descriptor && file->st_uid != 0 && !IsOwnUser(file->st_uid)) {
      return FileKind::kOther;
    }
    target.Reset(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!target.valid()) {
      return errno == ENOENT || errno == ELOOP ? FileKind::kOther
                                               : FileKind::kFailed;
    }
    if (::fstat(target.get(), file) != 0) return FileKind::kFailed;
  }
  if (S_ISDIR(file->st_mode)) {
    errno = EISDIR;
    return FileKind::kFailed;
  }
  const bool own_pipe =
      S_ISFIFO(file->st_mode) &&
      (IsOwnUser(file->st_uid) ||
       IsUnnamedPipe(target.valid() ? target.get() : named.get()));
  return S_ISCHR(file->st_mode) || own_pipe ? FileKind::kShared
                                            : FileKind::kOther;
}

// Opens the pipe or device `seen`, which only one process can use at a time.
// Invalid on failure, with errno set.
UniqueFd OpenShared(const std::string& path, const struct stat& seen) {
  UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat opened {};
  if (!fd.valid() || ::fstat(fd.get(), &opened) != 0) return UniqueFd();
  if (opened.st_dev != seen.st_dev || opened.st_ino != seen.st_ino) {
    errno = EPERM;  // another file has replaced it
    return UniqueFd();
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd();
  // The writer thread may block.
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

}  // namespace

OutputFile OpenOutputFile(const std::string& wanted_name) {
  OutputFile file;
  bool had_pid;
  file.wanted = WithPid(wanted_name, &had_pid);
  file.path = file.wanted;
  for (int i = 1; i <= kMaxNames; ++i) {
    file.fd.Reset(::open(file.path.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOCTTY | O_CLOEXEC,
                         0600));
    if (file.fd.valid() || errno != EEXIST) return file;
    struct stat there;
    switch (Classify(file.path, &there)) {
      case FileKind::kShared:
        file.is_file = false;
        file.fd = OpenShared(file.path, there);
        return file;
      case FileKind::kFailed:
        return file;
      case FileKind::kOther:
        break;
    }
    file.path = file.wanted;
    if (!had_pid) file.path += "." + std::to_string(::getpid());
    if (had_pid || i > 1) {
      file.path += "." + std::to_string(i + (had_pid ? 1 : 0));
    }
  }
  file.path = file.wanted;
  errno = EEXIST;
  return file;
}

}  // namespace rxe_user
