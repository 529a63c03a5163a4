#include "verbs_api/libibverbs/memory_tools.h"

#include <dlfcn.h>

#include <cstdint>

// Some architectures and systems have no valgrind.
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_DISABLE_ERROR_REPORTING
#define VALGRIND_ENABLE_ERROR_REPORTING
#define VALGRIND_CHECK_MEM_IS_ADDRESSABLE(memory, length) \
  ((void)(memory), (void)(length), 0)
#define VALGRIND_CHECK_MEM_IS_DEFINED(memory, length) \
  ((void)(memory), (void)(length), 0)
#endif

namespace verbs_api {
namespace {

// Returns the first byte that was freed or is outside of an allocation, or
// null.
using AddressSanitizer = const void* (*)(const void* address, size_t length);

struct Tool {
  // Exported by a program with AddressSanitizer, or by libasan.so; else null.
  AddressSanitizer first_poisoned = nullptr;
  bool is_memcheck = false;
};

const Tool& Find() {
  static const Tool tool = {
      .first_poisoned = reinterpret_cast<AddressSanitizer>(
          dlsym(RTLD_DEFAULT, "__asan_region_is_poisoned")),
      .is_memcheck = RUNNING_ON_VALGRIND != 0,
  };
  return tool;
}

// The result of a request to memcheck. Memcheck would also print what it finds
// as an error of the program, so this thread's errors are not reported
// meanwhile.
template <typename Request>
const void* AskMemcheck(const Request& request) {
  VALGRIND_DISABLE_ERROR_REPORTING;
  const auto found = static_cast<uintptr_t>(request());
  VALGRIND_ENABLE_ERROR_REPORTING;
  return reinterpret_cast<const void*>(found);
}

}  // namespace

const char* MemoryTool() {
  const Tool& tool = Find();
  return tool.first_poisoned != nullptr ? "AddressSanitizer"
         : tool.is_memcheck             ? "memcheck"
                                        : nullptr;
}

const void* FirstFreed(const void* memory, size_t length) {
  const Tool& tool = Find();
  if (tool.first_poisoned != nullptr) {
    return tool.first_poisoned(memory, length);
  }
  if (!tool.is_memcheck) return nullptr;
  return AskMemcheck(
      [&] { return VALGRIND_CHECK_MEM_IS_ADDRESSABLE(memory, length); });
}

const void* FirstUninitialized(const void* memory, size_t length) {
  if (!Find().is_memcheck) return nullptr;
  return AskMemcheck(
      [&] { return VALGRIND_CHECK_MEM_IS_DEFINED(memory, length); });
}

}  // namespace verbs_api
