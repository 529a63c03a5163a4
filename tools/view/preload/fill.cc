#include "tools/view/preload/fill.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tools/view/preload/index.h"

namespace view {
namespace {

// System calls are made directly, as in helper.cc.

constexpr size_t kArena = 256 << 10;  // bytes for paths; mapped on first use
constexpr int kMaxLinks = 40;         // the limit of the kernel
constexpr long kMaxWait = 10;         // for the lock, in seconds
constexpr size_t kSignalSet = 8;      // bytes, the kernel's size

// Memory for strings, freed at the end of a block.
class Arena {
 public:
  Arena()
      : memory_(mmap(nullptr, kArena, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Arena(const Arena&) = delete;
  ~Arena() {
    if (memory_ != MAP_FAILED) munmap(memory_, kArena);
  }
  // Null if no memory is left.
  char* Take(size_t size) {
    if (memory_ == MAP_FAILED || size > kArena - used_) return nullptr;
    char* const taken = static_cast<char*>(memory_) + used_;
    used_ += size;
    return taken;
  }

  class Block {
   public:
    explicit Block(Arena* arena) : arena_(arena), used_(arena->used_) {}
    Block(const Block&) = delete;
    ~Block() { arena_->used_ = used_; }

   private:
    Arena* arena_;
    size_t used_;
  };

 private:
  void* memory_;
  size_t used_ = 0;
};

// The index entry of a path.
struct Node {
  enum class Kind { kNone, kFolder, kFile, kLink };
  Kind kind = Kind::kNone;
  const char* text = "";
  size_t size = 0;
  const char* same = nullptr;  // for a folder: another folder with its contents
};

bool HasWildcard(const char* name, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    if (strchr("*?[\\", name[i]) != nullptr) return true;
  }
  return false;
}

class Filler {
 public:
  explicit Filler(int root) : root_(root) {
    index_.Open(root, kIndexFile);
    counters_.Open(root, kCountersFile);
  }

  // Continues from the existing folder `done` to `rest`.
  void Walk(const char* done, const char* rest, Look look, int links) {
    while (*rest == '/') ++rest;
    if (*rest == 0) {
      if (look == Look::kOpen) List(done, /*below=*/false);
      if (look == Look::kBelow) List(done, /*below=*/true);
      return;
    }
    const size_t length = strcspn(rest, "/");
    const char* const next = rest + length;
    const Arena::Block block(&arena_);
    if (length == 1 && rest[0] == '.') {
      Walk(done, next, look, links);
    } else if (length == 2 && rest[0] == '.' && rest[1] == '.') {
      const char* const end = strrchr(done, '/');
      const size_t kept = end != nullptr ? static_cast<size_t>(end - done) : 0;
      if (const char* parent = Join(done, kept, "", 0)) {
        Walk(parent, next, look, links);
      }
    } else if (look == Look::kPattern && HasWildcard(rest, length)) {
      const char* const pattern = Join(rest, length, "", 0);
      if (pattern == nullptr) return;
      ForEachChild(done, [&](const char* name, size_t name_length) {
        const Arena::Block child(&arena_);
        const char* const whole = Join(name, name_length, "", 0);
        if (whole != nullptr && fnmatch(pattern, whole, FNM_PERIOD) == 0) {
          Enter(done, name, name_length, next, look, links);
        }
      });
    } else {
      Enter(done, rest, length, next, look, links);
    }
  }

  // Creates everything in folder `done`: either names only, or the whole
  // subtree.
  void List(const char* done, bool below) {
    ForEachChild(done, [&](const char* name, size_t length) {
      const Arena::Block block(&arena_);
      const char* const path = Join(done, strlen(done), name, length);
      if (path == nullptr) return;
      const Node node = At(path);
      Make(path, node);
      if (below && node.kind == Node::Kind::kFolder) List(path, true);
    });
  }

 private:
  // "a/b", or one of them if the other is empty. Null if no memory is left.
  const char* Join(const char* a, size_t a_length, const char* b,
                   size_t b_length) {
    char* const joined = arena_.Take(a_length + b_length + 2);
    if (joined == nullptr) return nullptr;
    char* end = joined;
    memcpy(end, a, a_length);
    end += a_length;
    if (a_length != 0 && b_length != 0) *end++ = '/';
    memcpy(end, b, b_length);
    end[b_length] = 0;
    return joined;
  }

  void Enter(const char* done, const char* name, size_t length,
             const char* rest, Look look, int links) {
    const char* const path = Join(done, strlen(done), name, length);
    if (path == nullptr) return;
    const Node node = At(path);
    Make(path, node);
    if (node.kind == Node::Kind::kFolder) {
      Walk(path, rest, look, links);
    } else if (node.kind == Node::Kind::kLink && links > 0 &&
               // Other links lead to the system's own files.
               node.text[0] != '/') {
      const char* const onward = Join(node.text, node.size, rest, strlen(rest));
      if (onward != nullptr) Walk(done, onward, look, links - 1);
    }
  }

  bool StartsWith(uint32_t i, const char* prefix, size_t length) const {
    return i < index_.size() && strncmp(index_.Path(i), prefix, length) == 0;
  }

  Node Of(const char* path, const IndexEntry& entry) const {
    switch (entry.kind) {
      case IndexKind::kSame:
        return {Node::Kind::kFolder, "", 0, index_.Text(entry)};
      case IndexKind::kLink:
        return {Node::Kind::kLink, index_.Text(entry), entry.text_size,
                nullptr};
      case IndexKind::kFile:
        break;
    }
    if (const IndexEntry* counter = counters_.Find(path)) {
      return {Node::Kind::kFile, counters_.Text(*counter), counter->text_size,
              nullptr};
    }
    return {Node::Kind::kFile, index_.Text(entry), entry.text_size, nullptr};
  }

  Node At(const char* path) {
    const size_t length = strlen(path);
    if (length == 0) return {Node::Kind::kFolder, "", 0, nullptr};
    if (const IndexEntry* entry = index_.Find(path)) return Of(path, *entry);
    const Arena::Block block(&arena_);
    const char* const below = Below(path);
    if (below == nullptr) return {};
    if (StartsWith(index_.LowerBound(below), below, length + 1)) {
      return {Node::Kind::kFolder, "", 0, nullptr};
    }
    const char* const name = strrchr(path, '/');
    if (name == nullptr) return {};
    const char* const parent =
        Join(path, static_cast<size_t>(name - path), "", 0);
    const IndexEntry* const same =
        parent != nullptr ? index_.Find(parent) : nullptr;
    if (same == nullptr || same->kind != IndexKind::kSame) return {};
    const char* const there =
        Join(index_.Text(*same), same->text_size, name + 1, strlen(name + 1));
    const IndexEntry* const entry =
        there != nullptr ? index_.Find(there) : nullptr;
    return entry != nullptr ? Of(path, *entry) : Node{};
  }

  // Calls `call(name, length)` for each name in the folder.
  template <typename Call>
  void ForEachChild(const char* folder, Call call) {
    const Arena::Block block(&arena_);
    const Node node = At(folder);
    if (node.kind != Node::Kind::kFolder) return;
    const char* const prefix = Below(node.same != nullptr ? node.same : folder);
    if (prefix == nullptr) return;
    const size_t length = strlen(prefix);
    for (uint32_t i = index_.LowerBound(prefix);
         StartsWith(i, prefix, length);) {
      const char* const name = index_.Path(i) + length;
      const size_t name_length = strcspn(name, "/");
      call(name, name_length);
      if (name[name_length] == 0) {
        ++i;
        continue;
      }
      // Skip the subtree: '0' is the character after '/'.
      const Arena::Block behind(&arena_);
      char* const end = arena_.Take(length + name_length + 2);
      if (end == nullptr) return;
      memcpy(end, prefix, length);
      memcpy(end + length, name, name_length);
      memcpy(end + length + name_length, "0", 2);
      i = index_.LowerBound(end);
    }
  }

  // "folder/", or empty for the root.
  const char* Below(const char* folder) {
    const size_t length = strlen(folder);
    char* const below = arena_.Take(length + 2);
    if (below == nullptr) return nullptr;
    memcpy(below, folder, length);
    memcpy(below + length, length != 0 ? "/" : "", length != 0 ? 2 : 1);
    return below;
  }

  void Remove(const char* path) {
    if (syscall(SYS_unlinkat, root_, path, 0) != 0) {
      syscall(SYS_unlinkat, root_, path, AT_REMOVEDIR);
    }
  }

  void Make(const char* path, const Node& node) {
    switch (node.kind) {
      case Node::Kind::kNone:
        break;
      case Node::Kind::kFolder:
        MakeFolder(path);
        break;
      case Node::Kind::kFile:
        MakeFile(path, node.text, node.size);
        break;
      case Node::Kind::kLink:
        MakeLink(path, node.text, node.size);
        break;
    }
  }

  // Modes are set separately, because the program's umask applies to creation.
  void MakeFolder(const char* path) {
    if (syscall(SYS_mkdirat, root_, path, 0755) == 0) {
      syscall(SYS_fchmodat, root_, path, 0755);
    }
  }

  void MakeLink(const char* path, const char* target, size_t size) {
    const Arena::Block block(&arena_);
    char* const present = arena_.Take(size + 1);
    if (present == nullptr) return;
    const long got = syscall(SYS_readlinkat, root_, path, present, size + 1);
    if (got == static_cast<long>(size) && memcmp(present, target, size) == 0) {
      return;
    }
    if (got >= 0 || errno != ENOENT) Remove(path);
    syscall(SYS_symlinkat, target, root_, path);
  }

  // Overwrites the same file, so that an open descriptor reads the new value.
  // Written in one call, so a concurrent reader sees the old or the new line.
  // The newline ends the value even while old bytes remain after it.
  void MakeFile(const char* path, const char* text, size_t size) {
    const Arena::Block block(&arena_);
    const long present =
        syscall(SYS_openat, root_, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    long fd = -1;
    if (present >= 0) {
      char* const before = arena_.Take(size + 1);
      const long got = before != nullptr
                           ? syscall(SYS_pread64, present, before, size + 1, 0)
                           : -1;
      const bool same =
          got == static_cast<long>(size) && memcmp(before, text, size) == 0;
      if (!same && syscall(SYS_fchmod, present, 0644) == 0) {
        fd = syscall(SYS_openat, root_, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC,
                     0);
      }
      syscall(SYS_close, present);
      if (same) return;
    } else {
      if (errno != ENOENT) Remove(path);
      fd = syscall(SYS_openat, root_, path,
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    }
    if (fd < 0) return;
    syscall(SYS_pwrite64, fd, text, size, 0);
    syscall(SYS_ftruncate, fd, size);
    syscall(SYS_fchmod, fd, 0444);
    syscall(SYS_close, fd);
  }

  const int root_;
  Index index_, counters_;
  Arena arena_;
};

long Seconds() {
  timespec now = {};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// Locks the root with signals blocked; `*before` gets the old mask. Signals are
// blocked because a handler that uses the view would wait for the thread that
// it interrupted. They are not blocked while another process has the lock. The
// wait is limited by time, not by the number of tries: with many waiters, each
// may repeatedly find the lock held by another one.
bool Lock(int root, unsigned long* before) {
  const unsigned long all = ~0ul;
  const long deadline = Seconds() + kMaxWait;
  while (Seconds() < deadline) {
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, before, kSignalSet);
    if (syscall(SYS_flock, root, LOCK_EX | LOCK_NB) == 0) return true;
    const bool taken = errno == EWOULDBLOCK;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, nullptr, kSignalSet);
    if (!taken) return false;
    if (syscall(SYS_flock, root, LOCK_SH) == 0) {
      syscall(SYS_flock, root, LOCK_UN);
    }
  }
  return false;
}

}  // namespace

void Fill(const char* root, const char* path, Look look) {
  const long fd = syscall(SYS_openat, AT_FDCWD, root,
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return;
  unsigned long before = 0;
  if (Lock(static_cast<int>(fd), &before)) {
    {
      Filler filler(static_cast<int>(fd));
      // The application expands braces, so create all alternatives.
      const bool braces =
          look == Look::kPattern && strchr(path, '{') != nullptr;
      if (look == Look::kAll || braces) {
        filler.List("", /*below=*/true);
      } else {
        filler.Walk("", path, look, kMaxLinks);
      }
    }
    syscall(SYS_flock, fd, LOCK_UN);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, kSignalSet);
  }
  syscall(SYS_close, fd);
}

}  // namespace view
