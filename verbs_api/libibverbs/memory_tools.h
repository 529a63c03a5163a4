// What a tool that watches the program's memory knows of it: AddressSanitizer,
// with which the program was compiled, or valgrind's memcheck, under which it
// runs. Without one, the calls find nothing. Thread: any.
#ifndef VERBS_API_LIBIBVERBS_MEMORY_TOOLS_H_
#define VERBS_API_LIBIBVERBS_MEMORY_TOOLS_H_

#include <cstddef>

namespace verbs_api {

// "AddressSanitizer" or "memcheck"; null: there is none. Other tools of
// valgrind count as memcheck, and know nothing of memory. The first call looks
// for it.
const char* MemoryTool();

// The first byte that was freed or is outside of an allocation; null: none of
// them is.
const void* FirstFreed(const void* memory, size_t length);

// The first byte that has never been given a value; null: all have one.
// AddressSanitizer does not know. The bytes must not be freed.
const void* FirstUninitialized(const void* memory, size_t length);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_MEMORY_TOOLS_H_
