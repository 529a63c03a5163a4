// Simulates a lack of memory: a program that links this, and its libraries, use
// its malloc.
#ifndef TESTS_CONFORMANCE_SCARCE_MALLOC_H_
#define TESTS_CONFORMANCE_SCARCE_MALLOC_H_

#include <cerrno>

#include "gtest/gtest.h"

namespace conformance {

// False under a sanitizer that has its own malloc.
bool MallocCanBeRefused();

// The allocations that still succeed in the calling thread. Other threads are
// not limited.
inline constexpr int kUnlimited = -1;
extern thread_local int mallocs_left;

// The same for all threads of this name together. After `granted` allocations
// one fails, or, if `for_long`, all until StopRefusing. One name at a time.
void RefuseThreads(const char* name, int granted, bool for_long = false);
void StopRefusing();
// The allocations that have failed since RefuseThreads.
int RefusedOfThreads();

// Calls `make`, which returns null and sets errno on failure, with increasing
// memory until it succeeds. Returns its result and adds the number of failed
// allocations to `*refused`. The test fails if another error than ENOMEM
// occurs.
template <typename Call>
auto UntilThereIsMemory(const char* what, Call make, int* refused) {
  constexpr int kEnough = 10'000;
  for (int granted = 0; granted < kEnough; ++granted) {
    errno = 0;
    mallocs_left = granted;
    auto* const made = make();
    const int error = errno;
    mallocs_left = kUnlimited;
    if (made != nullptr) {
      *refused += granted;
      return made;
    }
    EXPECT_EQ(error, ENOMEM) << what << " after " << granted;
    if (error != ENOMEM) return make();
  }
  ADD_FAILURE() << what << " was refused for ever";
  return make();
}

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_SCARCE_MALLOC_H_
