// The folder of a view. Processes of a user that see the same devices share it.
// It is in memory if possible (BaseFolder). It is removed when the last process
// that uses it ends, or by the next process that looks for unused ones.
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

// The longest root, in bytes. The preload library has space for one such path.
inline constexpr size_t kLongestRoot = 200;

// The folder for trees: $XDG_RUNTIME_DIR if only this user can access it and
// its name has no special characters (it becomes part of glob(3) patterns);
// else /dev/shm if it is in memory with space left, because a folder on a disk
// costs ten times as much; else /tmp, or else /dev/shm in any case, whichever
// is writable. kNotFound if there is none.
absl::StatusOr<std::string> BaseFolder(const char* xdg_runtime_dir);

// Identifies a tree: the network namespace and RXE_USER_DEVICES.
std::string TreeKey(const char* rxe_user_devices, const char* rxe_user_mlx5);

// Holds the lock until it is destroyed. Errors: errno_status.h.
class Tree {
 public:
  // Creates the folder if needed, and waits for its lock. If others have taken
  // the first names, the folder gets a random name.
  static absl::StatusOr<Tree> Open(const std::string& base,
                                   const std::string& key);

  const std::string& root() const { return root_; }
  bool made() const { return made_; }  // Open created it

  // Records that process `pid` uses the tree. NotFound if the process does not
  // exist.
  absl::Status Join(pid_t pid);
  // Makes everything below sys and dev match `files`. A changed file keeps its
  // inode, so open descriptors read the new value.
  absl::Status Write(const Files& files);
  // Writes the index of `files`, and removes files below sys and dev that are
  // not in it. Processes create the files when they access them
  // (preload/fill.h).
  absl::Status WriteIndex(const Files& files);
  // Writes the counters that are not 0.
  absl::Status WriteCounters(const Files& files);
  // Stores a text for the next process; Get returns an empty string if there is
  // none. `name` starts with a dot.
  absl::Status Put(const std::string& name, const std::string& text);
  std::string Get(const std::string& name) const;
  // `pid` no longer uses the tree. The last process removes the tree.
  void Leave(pid_t pid);

  // Removes the trees below `base` that belong to this user and that no living
  // process uses, except locked ones. Processes of other PID namespaces count
  // as living, because they cannot be checked.
  static void RemoveUnused(const std::string& base);

 private:
  // The first folder of this user whose name begins with `prefix`, a path in
  // `base`; otherwise a new one.
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
