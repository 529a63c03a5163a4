// Simulates lack of memory in tests. Replaces operator new of the program that
// links it.
#ifndef TRANSPORT_TESTING_SCARCE_MEMORY_H_
#define TRANSPORT_TESTING_SCARCE_MEMORY_H_

namespace transport {

// Called for each allocation of any thread: true makes it fail. Null: none
// fails. Set it while there is one thread.
extern bool (*refuse_allocation)();

// For `refuse_allocation`: grants `allocations_left` more allocations, then
// fails.
inline constexpr int kUnlimited = -1;
extern int allocations_left;  // initially kUnlimited
bool RefuseWhenNoneIsLeft();

}  // namespace transport

#endif  // TRANSPORT_TESTING_SCARCE_MEMORY_H_
