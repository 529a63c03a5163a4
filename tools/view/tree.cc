#include "tools/view/tree.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/random.h"
#include "tools/view/index.h"
#include "tools/view/index_format.h"

namespace view {
namespace {

namespace fs = std::filesystem;
using rxe_user::ErrnoStatus;
using rxe_user::UniqueFd;

// The number of names to try, in case others have taken the first ones, before
// random names are used.
constexpr int kMaxNames = 8;
constexpr int kMaxRandomNames = 8;
// In bytes. The index of a thousand devices takes 4 MiB.
constexpr uint64_t kMemoryLeft = 16 << 20;

std::string Prefix() { return absl::StrCat("rxe_user-view-", geteuid(), "-"); }

bool IsPlain(const std::string& path) {
  return std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("/_.-", c) != nullptr;
  });
}

// Whether it is a folder of this user that no other user can access.
bool IsOurs(const struct stat& s) {
  return S_ISDIR(s.st_mode) && s.st_uid == geteuid() && (s.st_mode & 077) == 0;
}

std::string Read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

unsigned long long NamespaceNumber(const char* path) {
  struct stat s {};
  return stat(path, &s) == 0 ? s.st_ino : 0;
}

// The start time of a process, in ticks (proc(5)); empty if there is none.
std::string StartTime(const std::string& pid) {
  const std::string text = Read("/proc/" + pid + "/stat");
  // The end of the name, which may contain anything.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return "";
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  // Field 22. The field after the name is field 3.
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

std::string UserFile(pid_t pid) {
  const std::string number = std::to_string(pid);
  const std::string start = StartTime(number);
  if (start.empty()) return "";
  return absl::StrCat(NamespaceNumber("/proc/self/ns/pid"), "-", number, "-",
                      start);
}

bool Lives(const std::string& user_file) {
  std::istringstream parts(user_file);
  std::string space, pid, start;
  std::getline(parts, space, '-');
  std::getline(parts, pid, '-');
  std::getline(parts, start);
  if (space != std::to_string(NamespaceNumber("/proc/self/ns/pid"))) {
    return true;
  }
  return StartTime(pid) == start;
}

// Whether the folder is in memory and has enough space left.
bool IsMemory(const char* folder) {
  struct statfs s {};
  return statfs(folder, &s) == 0 && s.f_type == TMPFS_MAGIC &&
         s.f_bavail * static_cast<uint64_t>(s.f_bsize) >= kMemoryLeft;
}

// Opens and locks the folder `path`. Invalid if the folder is not ours, or if
// it was removed before it was locked (errno is then ENOENT).
UniqueFd Lock(const std::string& path, int operation) {
  UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat opened {
  }, named{};
  if (!fd.valid() || fstat(fd.get(), &opened) != 0) return {};
  if (!IsOurs(opened)) {
    errno = EPERM;
    return {};
  }
  int locked;
  do {
    locked = flock(fd.get(), operation);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 || lstat(path.c_str(), &named) != 0) return {};
  if (named.st_ino != opened.st_ino || named.st_dev != opened.st_dev) {
    errno = ENOENT;
    return {};
  }
  return fd;
}

// The entry at `path`; absent if it is neither a file nor a link.
std::optional<Entry> Present(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::is_symlink(status)) {
    return Entry{true, fs::read_symlink(path, error).string()};
  }
  if (fs::is_regular_file(status)) return Entry{false, Read(path)};
  return std::nullopt;
}

bool Make(const Entry& entry, const std::string& path) {
  if (entry.link) return symlink(entry.text.c_str(), path.c_str()) == 0;
  const UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
  const auto size = static_cast<ssize_t>(entry.text.size());
  return fd.valid() &&
         write(fd.get(), entry.text.data(), entry.text.size()) == size;
}

// Written in one call, so a concurrent reader sees the old or the new line. The
// newline ends the value even while old bytes remain after it.
bool Overwrite(const std::string& path, const std::string& text) {
  if (chmod(path.c_str(), 0644) != 0) return false;
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  const auto size = static_cast<ssize_t>(text.size());
  return fd.valid() && pwrite(fd.get(), text.data(), text.size(), 0) == size &&
         ftruncate(fd.get(), size) == 0 && fchmod(fd.get(), 0444) == 0;
}

// Removes everything below `root`/`folder` that is not in `files`.
void RemoveOthers(const std::string& root, const std::string& folder,
                  const Files& files) {
  std::error_code error;
  for (const auto& item :
       fs::directory_iterator(fs::path(root) / folder, error)) {
    const std::string path = folder + "/" + item.path().filename().string();
    const bool is_folder = item.is_directory(error) && !item.is_symlink(error);
    const auto first = files.lower_bound(path + "/");
    if (is_folder && first != files.end() &&
        first->first.starts_with(path + "/")) {
      RemoveOthers(root, path, files);
    } else if (const auto found = files.find(path);
               found == files.end() || is_folder != found->second.same) {
      fs::remove_all(item.path(), error);
    }
  }
}

}  // namespace

absl::StatusOr<std::string> BaseFolder(const char* xdg_runtime_dir) {
  struct stat s {};
  if (xdg_runtime_dir != nullptr && xdg_runtime_dir[0] == '/' &&
      std::strlen(xdg_runtime_dir) < kLongestRoot / 2 &&
      IsPlain(xdg_runtime_dir) && lstat(xdg_runtime_dir, &s) == 0 &&
      IsOurs(s)) {
    return xdg_runtime_dir;
  }
  if (IsMemory("/dev/shm") && access("/dev/shm", W_OK | X_OK) == 0) {
    return "/dev/shm";
  }
  // A container with a read-only root may still have memory file systems.
  for (const char* folder : {"/tmp", "/dev/shm"}) {
    if (access(folder, W_OK | X_OK) == 0) return folder;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no place for files in XDG_RUNTIME_DIR (",
                   xdg_runtime_dir != nullptr ? xdg_runtime_dir : "not set",
                   "), /tmp or /dev/shm"));
}

std::string TreeKey(const char* rxe_user_devices, const char* rxe_user_mlx5) {
  std::string settings = rxe_user_devices != nullptr ? rxe_user_devices : "";
  if (rxe_user_mlx5 != nullptr && *rxe_user_mlx5 != '\0') {
    absl::StrAppend(&settings, "\n", rxe_user_mlx5);
  }
  return absl::StrCat(NamespaceNumber("/proc/self/ns/net"), "-",
                      absl::Hex(std::hash<std::string>()(settings)));
}

absl::StatusOr<Tree> Tree::Open(const std::string& base,
                                const std::string& key) {
  const std::string name = base + "/" + Prefix() + key;
  for (int i = 0; i < kMaxNames;) {
    const std::string root = i == 0 ? name : absl::StrCat(name, "-", i);
    const bool made = mkdir(root.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) return ErrnoStatus(errno, root);
    UniqueFd lock = Lock(root, LOCK_EX);
    if (lock.valid()) {
      Tree tree(root, std::move(lock));
      tree.made_ = made;
      return tree;
    }
    // The last user has just removed it: try again.
    if (errno != ENOENT) ++i;
  }
  return OpenRandom(base, name + "-");
}

absl::StatusOr<Tree> Tree::OpenRandom(const std::string& base,
                                      const std::string& prefix) {
  const auto open = [](const std::string& root) -> std::optional<Tree> {
    UniqueFd lock = Lock(root, LOCK_EX);
    if (!lock.valid()) return std::nullopt;
    return Tree(root, std::move(lock));
  };
  // Another process may have created one.
  std::error_code error;
  for (const auto& item : fs::directory_iterator(base, error)) {
    if (!item.path().string().starts_with(prefix)) continue;
    if (std::optional<Tree> tree = open(item.path())) return *std::move(tree);
  }
  int failed = EPERM;
  for (int i = 0; i < kMaxRandomNames; ++i) {
    const std::string root =
        absl::StrCat(prefix, absl::Hex(rxe_user::SecureRandom32()));
    if (mkdir(root.c_str(), 0700) != 0) {
      failed = errno;
    } else if (std::optional<Tree> tree = open(root)) {
      tree->made_ = true;
      return *std::move(tree);
    }
  }
  return ErrnoStatus(failed, prefix);
}

absl::Status Tree::Join(pid_t pid) {
  const std::string name = UserFile(pid);
  if (name.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  }
  const std::string users = root_ + "/.users";
  if (mkdir(users.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, users);
  }
  const std::string file = users + "/" + name;
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return fd.valid() ? absl::OkStatus() : ErrnoStatus(errno, file);
}

absl::Status Tree::Write(const Files& files) {
  RemoveOthers(root_, "sys", files);
  RemoveOthers(root_, "dev", files);
  const std::string fresh = root_ + "/.new";
  for (const auto& [path, entry] : files) {
    const fs::path place = fs::path(root_) / path;
    const std::optional<Entry> present = Present(place);
    if (present == entry) continue;
    if (present.has_value() && !present->link && !entry.link) {
      if (!Overwrite(place, entry.text)) {
        return ErrnoStatus(errno, place.string());
      }
      continue;
    }
    std::error_code error;
    fs::create_directories(place.parent_path(), error);
    unlink(fresh.c_str());
    if (!Make(entry, fresh) || rename(fresh.c_str(), place.c_str()) != 0) {
      return ErrnoStatus(errno, place.string());
    }
  }
  return absl::OkStatus();
}

absl::Status Tree::Put(const std::string& name, const std::string& text) {
  const std::string fresh = root_ + "/.new", place = root_ + "/" + name;
  unlink(fresh.c_str());
  if (!Make({false, text}, fresh) ||
      rename(fresh.c_str(), place.c_str()) != 0) {
    return ErrnoStatus(errno, place);
  }
  return absl::OkStatus();
}

std::string Tree::Get(const std::string& name) const {
  return Read(root_ + "/" + name);
}

absl::Status Tree::WriteIndex(const Files& files) {
  RemoveOthers(root_, "sys", files);
  RemoveOthers(root_, "dev", files);
  return Put(kIndexFile, MakeIndex(files));
}

absl::Status Tree::WriteCounters(const Files& files) {
  return Put(kCountersFile, MakeIndex(files));
}

bool Tree::Used() {
  bool used = false;
  std::error_code error;
  for (const auto& user : fs::directory_iterator(root_ + "/.users", error)) {
    if (Lives(user.path().filename())) {
      used = true;
    } else {
      fs::remove(user.path(), error);
    }
  }
  return used;
}

void Tree::Leave(pid_t pid) {
  std::error_code error;
  const std::string name = UserFile(pid);
  if (!name.empty()) fs::remove(root_ + "/.users/" + name, error);
  if (!Used()) fs::remove_all(root_, error);
}

void Tree::RemoveUnused(const std::string& base) {
  std::error_code error;
  for (const auto& item : fs::directory_iterator(base, error)) {
    if (!item.path().filename().string().starts_with(Prefix())) continue;
    UniqueFd lock = Lock(item.path(), LOCK_EX | LOCK_NB);
    if (!lock.valid()) continue;
    Tree tree(item.path(), std::move(lock));
    if (!tree.Used()) fs::remove_all(tree.root_, error);
  }
}

}  // namespace view
