// Functions whose symbol is not simply that of their C++ declaration.
#ifndef VERBS_API_SYMBOLS_H_
#define VERBS_API_SYMBOLS_H_

// SYMBOL_VERSION(function, "name@NODE") before the definition of an extern "C"
// `function` exports it as that version of `name`, beside the default one,
// which the version script gives; it has the node, too. Only for shared
// libraries: an executable has no nodes.
#ifdef __clang__
// It has no such attribute (21). Optimization across files would lose what an
// asm statement says; with clang there is none (.bazelrc).
#define SYMBOL_VERSION(function, version)    \
  __asm__(".symver " #function "," version); \
  extern "C" __attribute__((visibility("default")))
#else
#define SYMBOL_VERSION(function, version) \
  extern "C" __attribute__((visibility("default"), symver(version)))
#endif

// NEWER_EXPORT(type, name, parameters...) { ... } defines the exported function
// `name` of headers that are newer than the oldest that we build with. They may
// declare it, with types of their own: C++ knows ours by another name.
#define NEWER_EXPORT(type, name, ...)               \
  extern "C" __attribute__((visibility("default"))) \
  type newer_##name(__VA_ARGS__) __asm__(#name);    \
  type newer_##name(__VA_ARGS__)

#endif  // VERBS_API_SYMBOLS_H_
