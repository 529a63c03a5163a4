// The functions that our functions replace: those of libc, or of another
// preloaded library.
#ifndef TOOLS_VIEW_PRELOAD_REAL_H_
#define TOOLS_VIEW_PRELOAD_REAL_H_

// Every function that this library replaces.
// clang-format off
#define VIEW_FUNCTIONS(X) \
  X(open) X(open64) X(__open_2) X(__open64_2) X(openat) X(openat64) \
  X(__openat_2) X(__openat64_2) X(fopen) X(fopen64) X(freopen) X(freopen64) \
  X(stat) X(stat64) X(lstat) X(lstat64) X(fstatat) X(fstatat64) X(statx) \
  X(__xstat) X(__xstat64) X(__lxstat) X(__lxstat64) X(__fxstatat) \
  X(__fxstatat64) X(access) X(euidaccess) X(eaccess) X(faccessat) \
  X(opendir) X(scandir) X(scandir64) X(scandirat) X(scandirat64) \
  X(readlink) X(readlinkat) X(__readlink_chk) X(__readlinkat_chk) \
  X(realpath) X(__realpath_chk) X(canonicalize_file_name) X(glob) X(glob64) \
  X(ftw) X(ftw64) X(nftw) X(nftw64) X(chdir) X(fchdir) X(getcwd) X(__getcwd_chk) \
  X(get_current_dir_name) X(getxattr) X(lgetxattr) X(listxattr) \
  X(llistxattr) X(read) X(__read_chk) X(pread) X(pread64) X(__pread_chk) \
  X(__pread64_chk)
// clang-format on

namespace view {

#define VIEW_INDEX(name) kReal_##name,
enum RealIndex { VIEW_FUNCTIONS(VIEW_INDEX) kReals };
#undef VIEW_INDEX

// The address of a function; null if this libc does not have it. Looked up when
// the library is loaded, or earlier by the first call.
void* Real(RealIndex index);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_REAL_H_
