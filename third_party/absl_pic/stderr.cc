// Abseil's objects address `stderr` as programs may and shared libraries may
// not: as if it lay within them. abi_library() links with --wrap=stderr, which
// leads them to this copy, hidden in each library.

#include <cstdio>

extern "C" {

extern std::FILE* __real_stderr;
std::FILE* __wrap_stderr = nullptr;

// Before every other constructor of the library.
__attribute__((constructor(101))) static void CopyStderr() {
  __wrap_stderr = __real_stderr;
}

}  // extern "C"
