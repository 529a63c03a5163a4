// Asks a tool that watches the program's memory: AddressSanitizer, if the
// program was compiled with it, or valgrind's memcheck, if the program runs
// under it. Without a tool, the calls find nothing. Thread: any.
#ifndef VERBS_API_LIBIBVERBS_MEMORY_TOOLS_H_
#define VERBS_API_LIBIBVERBS_MEMORY_TOOLS_H_

#include <cstddef>

namespace verbs_api {

// "AddressSanitizer" or "memcheck"; null: there is none. Other tools of
// valgrind also count as memcheck, but find nothing. The first call looks for
// the tool.
const char* MemoryTool();

// The first of these bytes that was freed or is outside of an allocation; null:
// none.
const void* FirstFreed(const void* memory, size_t length);

// The first of these bytes that has never been given a value; null: all have
// one, or the tool is AddressSanitizer, which does not know. The bytes must not
// be freed.
const void* FirstUninitialized(const void* memory, size_t length);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_MEMORY_TOOLS_H_
