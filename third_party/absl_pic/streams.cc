// Objects of Abseil and libnl address `stderr` and `stdout` as programs may and
// shared libraries may not: as if those lay within them. abi_library() links
// with
// --wrap, which leads them to these copies, hidden in each library.

#include <cstdio>

extern "C" {

extern std::FILE* __real_stderr;
extern std::FILE* __real_stdout;
std::FILE* __wrap_stderr = nullptr;
std::FILE* __wrap_stdout = nullptr;

// Before every other constructor of the library.
__attribute__((constructor(101))) static void CopyStreams() {
  __wrap_stderr = __real_stderr;
  __wrap_stdout = __real_stdout;
}

}  // extern "C"
