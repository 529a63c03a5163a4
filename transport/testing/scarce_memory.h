// For tests of what happens when there is no memory. Who links this has its
// operator new.
#ifndef TRANSPORT_TESTING_SCARCE_MEMORY_H_
#define TRANSPORT_TESTING_SCARCE_MEMORY_H_

namespace transport {

// Asked by each allocation, of any thread: true refuses it. Null: none is
// refused. Set while there is one thread.
extern bool (*refuse_allocation)();

// A function for `refuse_allocation`: refuses all when so many more have been
// granted.
inline constexpr int kUnlimited = -1;
extern int allocations_left;  // kUnlimited at first
bool RefuseWhenNoneIsLeft();

}  // namespace transport

#endif  // TRANSPORT_TESTING_SCARCE_MEMORY_H_
