// Functions that return paths: realpath(3), getcwd(3), glob(3), ftw(3),
// nftw(3). They return the paths that the program knows.
#include <ftw.h>
#include <glob.h>
#include <stddef.h>

#include "tools/view/preload/viewed_call.h"

using view::Look;
using view::Viewed;
using view::WithoutRoot;

VIEW_DEFINE(char*, realpath, (const char* path, char* resolved)) {
  return WithoutRoot(Viewed(path, Look::kName, [=](const char* p) {
    return REAL(char*, realpath, const char*, char*)(p, resolved);
  }));
}

VIEW_DEFINE(char*, __realpath_chk,
            (const char* path, char* resolved, size_t room)) {
  return WithoutRoot(Viewed(path, Look::kName, [=](const char* p) {
    return REAL(char*, __realpath_chk, const char*, char*, size_t)(p, resolved,
                                                                   room);
  }));
}

VIEW_DEFINE(char*, canonicalize_file_name, (const char* path)) {
  return WithoutRoot(Viewed(path, Look::kName, [=](const char* p) {
    return REAL(char*, canonicalize_file_name, const char*)(p);
  }));
}

VIEW_DEFINE(char*, getcwd, (char* buffer, size_t size)) {
  return WithoutRoot(REAL(char*, getcwd, char*, size_t)(buffer, size));
}

VIEW_DEFINE(char*, __getcwd_chk, (char* buffer, size_t size, size_t room)) {
  return WithoutRoot(
      REAL(char*, __getcwd_chk, char*, size_t, size_t)(buffer, size, room));
}

VIEW_DEFINE(char*, get_current_dir_name, ()) {
  return WithoutRoot(REAL(char*, get_current_dir_name)());
}

// glob_t and glob64_t are the same type. With GLOB_ALTDIRFUNC the pattern is
// not changed.
#define VIEW_GLOB(name)                                                     \
  VIEW_DEFINE(                                                              \
      int, name,                                                            \
      (const char* pattern, int flags, void* on_error, glob_t* found)) {    \
    const auto real = REAL(int, name, const char*, int, void*, glob_t*);    \
    if (!view::IsViewed(pattern) || (flags & GLOB_ALTDIRFUNC) != 0) {       \
      return real(pattern, flags, on_error, found);                         \
    }                                                                       \
    const size_t before = (flags & GLOB_APPEND) != 0 ? found->gl_pathc : 0; \
    const int result = Viewed(pattern, Look::kPattern, [=](const char* p) { \
      return real(p, flags, on_error, found);                               \
    });                                                                     \
    if (result != 0) return result;                                         \
    const size_t first = (flags & GLOB_DOOFFS) != 0 ? found->gl_offs : 0;   \
    for (size_t i = before; i < found->gl_pathc; ++i) {                     \
      WithoutRoot(found->gl_pathv[first + i]);                              \
    }                                                                       \
    return 0;                                                               \
  }
VIEW_GLOB(glob)
VIEW_GLOB(glob64)

namespace view {
namespace {

using FtwCall = int (*)(const char*, const void*, int);
using NftwCall = int (*)(const char*, const void*, int, FTW*);

// The callback of this thread's walk, since libc passes no argument through.
__attribute__((visibility("hidden"),
               tls_model("initial-exec"))) __thread FtwCall ftw_call;
__attribute__((visibility("hidden"),
               tls_model("initial-exec"))) __thread NftwCall nftw_call;

int OnFtw(const char* path, const void* s, int type) {
  return ftw_call(path + RootLength(path), s, type);
}

int OnNftw(const char* path, const void* s, int type, FTW* place) {
  const size_t root = RootLength(path);
  FTW known = *place;
  known.base -= static_cast<int>(root);
  return nftw_call(path + root, s, type, &known);
}

}  // namespace
}  // namespace view

// A walk may start another walk.
#define VIEW_FTW(name)                                                      \
  VIEW_DEFINE(int, name, (const char* path, view::FtwCall call, int fds)) { \
    const auto real = REAL(int, name, const char*, view::FtwCall, int);     \
    if (!view::IsViewed(path)) return real(path, call, fds);                \
    const view::FtwCall outer = view::ftw_call;                             \
    view::ftw_call = call;                                                  \
    const int result = Viewed(path, Look::kAll, [=](const char* p) {        \
      return real(p, view::OnFtw, fds);                                     \
    });                                                                     \
    view::ftw_call = outer;                                                 \
    return result;                                                          \
  }
VIEW_FTW(ftw)
VIEW_FTW(ftw64)

#define VIEW_NFTW(name)                                                       \
  VIEW_DEFINE(int, name,                                                      \
              (const char* path, view::NftwCall call, int fds, int flags)) {  \
    const auto real = REAL(int, name, const char*, view::NftwCall, int, int); \
    if (!view::IsViewed(path)) return real(path, call, fds, flags);           \
    const Look look = (flags & FTW_PHYS) != 0 ? Look::kBelow : Look::kAll;    \
    const view::NftwCall outer = view::nftw_call;                             \
    view::nftw_call = call;                                                   \
    const int result = Viewed(path, look, [=](const char* p) {                \
      return real(p, view::OnNftw, fds, flags);                               \
    });                                                                       \
    view::nftw_call = outer;                                                  \
    return result;                                                            \
  }
VIEW_NFTW(nftw)
VIEW_NFTW(nftw64)
