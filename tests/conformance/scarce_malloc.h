// For tests of what happens when there is no memory: who links this has its
// malloc, and so have the libraries that it is linked to.
#ifndef TESTS_CONFORMANCE_SCARCE_MALLOC_H_
#define TESTS_CONFORMANCE_SCARCE_MALLOC_H_

#include <cerrno>

#include "gtest/gtest.h"

namespace conformance {

// Not under a sanitizer that has a malloc of its own.
bool MallocCanBeRefused();

// How many allocations the calling thread is still granted; other threads get
// all that they want.
inline constexpr int kUnlimited = -1;
extern thread_local int mallocs_left;

// The same for all threads of this name together, of whom one allocation is
// refused when so many have been granted, or, if `for_long`, all until
// StopRefusing. One name at a time.
void RefuseThreads(const char* name, int granted, bool for_long = false);
void StopRefusing();
// How many it were since RefuseThreads.
int RefusedOfThreads();

// Calls `make`, which returns null and sets errno on failure, with more and
// more memory until it has enough: what it returned then. How many places there
// were to fail at is added to `*refused`. A failure of the test if another
// error comes than ENOMEM.
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
