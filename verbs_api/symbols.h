// Macros for functions whose symbol differs from their C++ declaration.
#ifndef VERBS_API_SYMBOLS_H_
#define VERBS_API_SYMBOLS_H_

// SYMBOL_VERSION(function, "name@NODE") stands before the definition of an
// extern "C" `function` and exports it as that version of `name`. The version
// script gives the default version and must define NODE. Only for shared
// libraries: an executable has no version nodes.
#ifdef __clang__
// Clang (up to 21) has no such attribute. An asm statement would be lost by
// optimization across files, which we do not use with clang (.bazelrc).
#define SYMBOL_VERSION(function, version)    \
  __asm__(".symver " #function "," version); \
  extern "C" __attribute__((visibility("default")))
#else
#define SYMBOL_VERSION(function, version) \
  extern "C" __attribute__((visibility("default"), symver(version)))
#endif

// NEWER_EXPORT(type, name, parameters...) { ... } defines the exported function
// `name`, which is newer than the oldest header that we build with. A newer
// header may declare it with other types, so in C++ our function has another
// name.
#define NEWER_EXPORT(type, name, ...)               \
  extern "C" __attribute__((visibility("default"))) \
  type newer_##name(__VA_ARGS__) __asm__(#name);    \
  type newer_##name(__VA_ARGS__)

#endif  // VERBS_API_SYMBOLS_H_
