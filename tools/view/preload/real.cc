#include "tools/view/preload/real.h"

#include <dlfcn.h>

namespace view {
namespace {

#define VIEW_NAME(name) #name,
constexpr const char* kNames[] = {VIEW_FUNCTIONS(VIEW_NAME)};
#undef VIEW_NAME

void* addresses[kReals];

// The first constructor, so that nothing is looked up later, where dlsym may
// not be called (a signal handler, a child of fork).
__attribute__((constructor(101))) void FindAll() {
  for (int i = 0; i < kReals; ++i) Real(static_cast<RealIndex>(i));
}

}  // namespace

void* Real(RealIndex index) {
  void* address = __atomic_load_n(&addresses[index], __ATOMIC_RELAXED);
  if (__builtin_expect(address == nullptr, 0)) {
    address = dlsym(RTLD_NEXT, kNames[index]);
    __atomic_store_n(&addresses[index], address, __ATOMIC_RELAXED);
  }
  return address;
}

}  // namespace view
