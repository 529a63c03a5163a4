// The folder of a view. Processes of a user that see the same devices share it.
// It is in memory if possible (BaseFolder), and is removed when its last
// process ends, or by the next one that looks.
//
//   ROOT/sys, ROOT/dev       files that programs have accessed (sysfs_files.h)
//   ROOT/.index, .counters   all files of the view (index_format.h)
//   ROOT/.users/NS-PID-TIME  an empty file for each process that uses it: its
//                            PID namespace, process ID, and start time
//
// Other users cannot plant a tree: it is used only if it is a folder of this
// user that no other user can enter. Every access holds its lock (flock).
#ifndef TOOLS_VIEW_TREE_H_
#define TOOLS_VIEW_TREE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "tools/view/sysfs_files.h"

namespace view {

// Longest root in bytes. The preload library has space for one.
inline constexpr size_t kLongestRoot = 200;

// The folder for trees: $XDG_RUNTIME_DIR if only this user can access it and
// its name has no special characters (it becomes part of glob(3) patterns);
// else /dev/shm if it is in memory with space left, because a folder on a disk
// costs ten times as much; else /tmp; else /dev/shm in any case. The first that
// is writable. kNotFound if there is none.
// is none.
absl::StatusOr<std::string> BaseFolder(const char* xdg_runtime_dir);

// Identifies a tree: the network namespace and RXE_USER_DEVICES.
std::string TreeKey(const char* rxe_user_devices, const char* rxe_user_mlx5);

// Holds the lock until it is destroyed. Errors: errno_status.h.
class Tree {
 public:
  // Creates the folder if needed, and waits for its lock. The folder gets a
  // random name if others have taken the names that are tried first.
  static absl::StatusOr<Tree> Open(const std::string& base,
                                   const std::string& key);

  const std::string& root() const { return root_; }
  bool made() const { return made_; }  // by Open; else it existed before

  // Records that process `pid` uses the tree. NotFound if it does not exist.
  absl::Status Join(pid_t pid);
  // Makes everything below sys and dev match `files`. A changed file keeps its
  // inode, so open descriptors read the new value.
  absl::Status Write(const Files& files);
  // Writes the index of `files`, and removes files below sys and dev that are
  // not in it. Processes create files on access (preload/fill.h).
  absl::Status WriteIndex(const Files& files);
  // Writes the counters that are not 0.
  absl::Status WriteCounters(const Files& files);
  // Stores text for the next process; Get returns an empty string if there is
  // none. `name` starts with a dot.
  absl::Status Put(const std::string& name, const std::string& text);
  std::string Get(const std::string& name) const;
  // `pid` does not use the tree any more. The last process removes it.
  void Leave(pid_t pid);

  // Removes the trees below `base` that belong to this user and that no living
  // process uses, except locked ones. Processes of other PID namespaces count
  // as living, because they cannot be checked.
  static void RemoveUnused(const std::string& base);

 private:
  // The first folder of this user whose name begins with `prefix`, a path in
  // `base`; else a new one.
  static absl::StatusOr<Tree> OpenRandom(const std::string& base,
                                         const std::string& prefix);
  Tree(std::string root, rxe_user::UniqueFd lock)
      : root_(std::move(root)), lock_(std::move(lock)) {}
  // Whether a process uses it. Removes entries of processes that have ended.
  bool Used();

  std::string root_;
  rxe_user::UniqueFd lock_;  // the folder's descriptor
  bool made_ = false;
};

}  // namespace view

#endif  // TOOLS_VIEW_TREE_H_
