// The folder in which a view stands, shared by the processes of a user that
// see the same devices: in memory if there is such a folder (BaseFolder), and
// there only as long as one of them lives or until the next of them looks.
//
//   ROOT/sys, ROOT/dev       what programs have looked at (sysfs_files.h)
//   ROOT/.index, .counters   all that they may look at (index_format.h)
//   ROOT/.users/NS-PID-TIME  an empty file for each process that uses it: its
//                            PID namespace, number, and start time
//
// Nobody else can prepare it: it is taken only if it is a folder of this user
// that no other may enter. Who reads or changes it holds its lock (flock).
#ifndef TOOLS_VIEW_TREE_H_
#define TOOLS_VIEW_TREE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "tools/view/sysfs_files.h"

namespace view {

// Longer names, in bytes, are not used: the preload library keeps one.
inline constexpr size_t kLongestRoot = 200;

// Where trees stand: $XDG_RUNTIME_DIR if it is this user's alone and its name
// is plain (it becomes part of patterns, glob(3)), or else /dev/shm if that is
// memory that is left, since a folder on a disk costs ten times as much, /tmp,
// or /dev/shm whatever it is: the first that can be written. kNotFound if there
// is none.
absl::StatusOr<std::string> BaseFolder(const char* xdg_runtime_dir);

// What tells trees apart: the network namespace and what RXE_USER_DEVICES says.
std::string TreeKey(const char* rxe_user_devices);

// Locked as long as it lives. Errors: errno_status.h.
class Tree {
 public:
  // Makes the folder if it is not there, and waits for its lock. Where others
  // have taken the names that are tried first, its name is random.
  static absl::StatusOr<Tree> Open(const std::string& base,
                                   const std::string& key);

  const std::string& root() const { return root_; }
  bool made() const { return made_; }  // by Open; else it was there

  // Notes that process `pid` uses the tree. NotFound if there is none.
  absl::Status Join(pid_t pid);
  // Makes everything below sys and dev as `files` says. A file that changes
  // stays the same file: who has it open reads what is new.
  absl::Status Write(const Files& files);
  // Writes the index of `files`, and removes what was made below sys and dev
  // and is not in it. Processes make what they look at (preload/fill.h).
  absl::Status WriteIndex(const Files& files);
  // The counters that are not 0.
  absl::Status WriteCounters(const Files& files);
  // What a process has left for the next one; empty if none has. `name` begins
  // with a dot.
  absl::Status Put(const std::string& name, const std::string& text);
  std::string Get(const std::string& name) const;
  // `pid` uses it no longer. Who is the last removes the tree.
  void Leave(pid_t pid);

  // Removes the trees below `base` that belong to this user and that no living
  // process uses, those that are locked aside. Processes of other PID
  // namespaces cannot be told, and count as living.
  static void RemoveUnused(const std::string& base);

 private:
  // The first folder of this user whose name begins with `prefix`, a path in
  // `base`; else a new one.
  static absl::StatusOr<Tree> OpenRandom(const std::string& base,
                                         const std::string& prefix);
  Tree(std::string root, rxe_user::UniqueFd lock)
      : root_(std::move(root)), lock_(std::move(lock)) {}
  // Whether a process uses it; forgets those that have ended.
  bool Used();

  std::string root_;
  rxe_user::UniqueFd lock_;  // the folder itself
  bool made_ = false;
};

}  // namespace view

#endif  // TOOLS_VIEW_TREE_H_
