// What glibc 2.32 to 2.36 gave a new version or a new place, by the versions
// that glibc 2.17 has as well: so that what is linked here runs on older
// systems
// (--config=portable). Each function hides glibc's own from the objects that it
// is linked with, the C++ runtime's too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// `older` is what this file calls it, `name@node` what the loader looks for.
#define OLDER(type, older, name, node, ...) \
  extern type older(__VA_ARGS__);           \
  __asm__(".symver " #older "," #name "@" node)

// What an architecture began with: all that the older ones had by then.
#if defined(__x86_64__)
#define BASE "GLIBC_2.2.5"
#define SINCE(node) node
#define STAT_VERSION 1
#elif defined(__aarch64__)
#define BASE "GLIBC_2.17"
#define SINCE(node) BASE
#define STAT_VERSION 0
#else
#error "GLIBC_... of this architecture's first release, and _STAT_VER"
#endif

// --- Moved from libdl and libpthread, which older programs load beside libc.

OLDER(void*, older_dlsym, dlsym, BASE, void*, const char*);
HIDDEN void* dlsym(void* handle, const char* name) {
  return older_dlsym(handle, name);
}

OLDER(void*, older_dlvsym, dlvsym, BASE, void*, const char*, const char*);
HIDDEN void* dlvsym(void* handle, const char* name, const char* version) {
  return older_dlvsym(handle, name, version);
}

OLDER(int, older_dladdr, dladdr, BASE, const void*, Dl_info*);
HIDDEN int dladdr(const void* address, Dl_info* info) {
  return older_dladdr(address, info);
}

// A library that is preloaded has no more: it is loaded into programs without
// libpthread, too, and takes the place of stat(2) itself.
#ifndef OLDER_GLIBC_PRELOAD

OLDER(void*, older_dlopen, dlopen, BASE, const char*, int);
HIDDEN void* dlopen(const char* file, int mode) {
  return older_dlopen(file, mode);
}

OLDER(int, older_create, pthread_create, BASE, pthread_t*,
      const pthread_attr_t*, void* (*)(void*), void*);
HIDDEN int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                          void* (*start)(void*), void* argument) {
  return older_create(thread, attributes, start, argument);
}

OLDER(int, older_join, pthread_join, BASE, pthread_t, void**);
HIDDEN int pthread_join(pthread_t thread, void** result) {
  return older_join(thread, result);
}

OLDER(int, older_detach, pthread_detach, BASE, pthread_t);
HIDDEN int pthread_detach(pthread_t thread) { return older_detach(thread); }

OLDER(int, older_once, pthread_once, BASE, pthread_once_t*, void (*)(void));
HIDDEN int pthread_once(pthread_once_t* once, void (*function)(void)) {
  return older_once(once, function);
}

OLDER(int, older_key_create, pthread_key_create, BASE, pthread_key_t*,
      void (*)(void*));
HIDDEN int pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return older_key_create(key, destroy);
}

OLDER(int, older_key_delete, pthread_key_delete, BASE, pthread_key_t);
HIDDEN int pthread_key_delete(pthread_key_t key) {
  return older_key_delete(key);
}

OLDER(void*, older_getspecific, pthread_getspecific, BASE, pthread_key_t);
HIDDEN void* pthread_getspecific(pthread_key_t key) {
  return older_getspecific(key);
}

OLDER(int, older_setspecific, pthread_setspecific, BASE, pthread_key_t,
      const void*);
HIDDEN int pthread_setspecific(pthread_key_t key, const void* value) {
  return older_setspecific(key, value);
}

OLDER(int, older_trylock, pthread_mutex_trylock, BASE, pthread_mutex_t*);
HIDDEN int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  return older_trylock(mutex);
}

OLDER(int, older_timedlock, pthread_mutex_timedlock, BASE, pthread_mutex_t*,
      const struct timespec*);
HIDDEN int pthread_mutex_timedlock(pthread_mutex_t* mutex,
                                   const struct timespec* end) {
  return older_timedlock(mutex, end);
}

OLDER(int, older_rdlock, pthread_rwlock_rdlock, BASE, pthread_rwlock_t*);
HIDDEN int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  return older_rdlock(lock);
}

OLDER(int, older_wrlock, pthread_rwlock_wrlock, BASE, pthread_rwlock_t*);
HIDDEN int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  return older_wrlock(lock);
}

OLDER(int, older_unlock, pthread_rwlock_unlock, BASE, pthread_rwlock_t*);
HIDDEN int pthread_rwlock_unlock(pthread_rwlock_t* lock) {
  return older_unlock(lock);
}

OLDER(int, older_sem_init, sem_init, BASE, sem_t*, int, unsigned);
HIDDEN int sem_init(sem_t* semaphore, int shared, unsigned value) {
  return older_sem_init(semaphore, shared, value);
}

OLDER(int, older_sem_destroy, sem_destroy, BASE, sem_t*);
HIDDEN int sem_destroy(sem_t* semaphore) {
  return older_sem_destroy(semaphore);
}

OLDER(int, older_sem_wait, sem_wait, BASE, sem_t*);
HIDDEN int sem_wait(sem_t* semaphore) { return older_sem_wait(semaphore); }

OLDER(int, older_sem_post, sem_post, BASE, sem_t*);
HIDDEN int sem_post(sem_t* semaphore) { return older_sem_post(semaphore); }

OLDER(int, older_setclock, pthread_condattr_setclock, SINCE("GLIBC_2.3.3"),
      pthread_condattr_t*, clockid_t);
HIDDEN int pthread_condattr_setclock(pthread_condattr_t* attributes,
                                     clockid_t clock) {
  return older_setclock(attributes, clock);
}

OLDER(int, older_setname, pthread_setname_np, SINCE("GLIBC_2.12"), pthread_t,
      const char*);
HIDDEN int pthread_setname_np(pthread_t thread, const char* name) {
  return older_setname(thread, name);
}

OLDER(int, older_sigmask, pthread_sigmask, BASE, int, const sigset_t*,
      sigset_t*);
HIDDEN int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  return older_sigmask(how, set, old);
}

// --- Functions that were inline, with the version of the structure.

OLDER(int, older_stat, __xstat, BASE, int, const char*, struct stat*);
OLDER(int, older_lstat, __lxstat, BASE, int, const char*, struct stat*);
OLDER(int, older_fstat, __fxstat, BASE, int, int, struct stat*);

HIDDEN int stat(const char* file, struct stat* out) {
  return older_stat(STAT_VERSION, file, out);
}
HIDDEN int lstat(const char* file, struct stat* out) {
  return older_lstat(STAT_VERSION, file, out);
}
HIDDEN int fstat(int descriptor, struct stat* out) {
  return older_fstat(STAT_VERSION, descriptor, out);
}
// The same, with 64-bit sizes in both.
HIDDEN int stat64(const char* file, struct stat64* out) {
  return older_stat(STAT_VERSION, file, (struct stat*)out);
}
HIDDEN int lstat64(const char* file, struct stat64* out) {
  return older_lstat(STAT_VERSION, file, (struct stat*)out);
}
HIDDEN int fstat64(int descriptor, struct stat64* out) {
  return older_fstat(STAT_VERSION, descriptor, (struct stat*)out);
}

// --- New functions.

// For std::condition_variable. Older systems wait by the wall clock: if that
// is set meanwhile, the wait is longer or shorter by as much.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition,
                                  pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* end) {
  const long second = 1000000000;
  struct timespec now, wall;
  if (clock_gettime(clock, &now) != 0) return EINVAL;
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += end->tv_sec - now.tv_sec;
  wall.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += second;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= second) {
    wall.tv_nsec -= second;
    ++wall.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// For std::random_device. Linux 3.17 has the call; before it, nothing that is
// as good can be had without a descriptor.
HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  for (;;) {
    if (syscall(SYS_getrandom, &value, sizeof(value), 0) ==
        (long)sizeof(value)) {
      return value;
    }
    if (errno != EINTR) __builtin_trap();
  }
}

// glibc 2.30.
HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// The C++ runtime leaves out atomic operations while it is true.
HIDDEN char __libc_single_threaded = 0;

OLDER(int, older_weak_key_create, __pthread_key_create, BASE, pthread_key_t*,
      void (*)(void*));
HIDDEN int __pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return older_weak_key_create(key, destroy);
}

// --- Starting a program.

#ifdef OLDER_GLIBC_PROGRAM

typedef void (*Initializer)(int, char**, char**);
extern Initializer __preinit_array_start[] HIDDEN;
extern Initializer __preinit_array_end[] HIDDEN;
extern Initializer __init_array_start[] HIDDEN;
extern Initializer __init_array_end[] HIDDEN;
extern void _init(void) HIDDEN;

// Constructors, which older programs run by themselves and newer ones leave to
// glibc.
static void Initialize(int argc, char** argv, char** environment) {
  Initializer* i;
  for (i = __preinit_array_start; i < __preinit_array_end; ++i) {
    (*i)(argc, argv, environment);
  }
  _init();
  for (i = __init_array_start; i < __init_array_end; ++i) {
    (*i)(argc, argv, environment);
  }
}

extern int older_start_main(int (*)(int, char**, char**), int, char**,
                            Initializer, void (*)(void), void (*)(void), void*);
__asm__(".symver older_start_main,__libc_start_main@" BASE);
HIDDEN int __libc_start_main(int (*program)(int, char**, char**), int argc,
                             char** argv, Initializer unused,
                             void (*unused_too)(void), void (*loader_end)(void),
                             void* stack_end) {
  (void)unused;
  (void)unused_too;
  return older_start_main(program, argc, argv, Initialize, 0, loader_end,
                          stack_end);
}

#endif  // OLDER_GLIBC_PROGRAM
#endif  // OLDER_GLIBC_PRELOAD
