#include "tools/view/preload/real.h"

#include <dlfcn.h>
#include <string.h>

extern "C" __attribute__((weak)) decltype(dlvsym) dlvsym;

namespace view {
namespace {

#define VIEW_NAME(name) #name,
constexpr const char* kNames[] = {VIEW_FUNCTIONS(VIEW_NAME)};
#undef VIEW_NAME

// Functions with two versions in glibc. Before glibc 2.36, dlsym with RTLD_NEXT
// finds the older one (glibc bug 14932), for example a realpath that refuses to
// allocate.
struct Version {
  const char* name;
  const char* node;  // on x86-64; elsewhere only glob has two, with this node
};
constexpr Version kNewer[] = {{"realpath", "GLIBC_2.3"},
                              {"glob", "GLIBC_2.27"},
                              {"glob64", "GLIBC_2.27"},
                              {"nftw", "GLIBC_2.3.3"},
                              {"nftw64", "GLIBC_2.3.3"}};

void* addresses[kReals];

void* Find(const char* name) {
  for (const Version& newer : kNewer) {
    if (strcmp(name, newer.name) != 0) continue;
    if (dlvsym == nullptr) break;  // musl, which has one version
    if (void* address = dlvsym(RTLD_NEXT, name, newer.node)) return address;
  }
  return dlsym(RTLD_NEXT, name);
}

// The first constructor looks up everything, since dlsym must not be called
// later in a signal handler or a child of fork.
__attribute__((constructor(101))) void FindAll() {
  for (int i = 0; i < kReals; ++i) Real(static_cast<RealIndex>(i));
}

}  // namespace

void* Real(RealIndex index) {
  void* address = __atomic_load_n(&addresses[index], __ATOMIC_RELAXED);
  if (__builtin_expect(address == nullptr, 0)) {
    address = Find(kNames[index]);
    __atomic_store_n(&addresses[index], address, __ATOMIC_RELAXED);
  }
  return address;
}

}  // namespace view
