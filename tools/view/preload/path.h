// Which paths are ours to answer.
#ifndef TOOLS_VIEW_PRELOAD_PATH_H_
#define TOOLS_VIEW_PRELOAD_PATH_H_

namespace view {

// Whether `path`, which may be null, is one of these folders, or below one:
// infiniband and infiniband_verbs in /sys/class, /sys/devices/virtual and the
// `device` of every interface in /sys/class/net; /dev/infiniband. Slashes may
// be repeated; components "." and ".." before that are not resolved. Any
// context: a signal handler, a child of vfork.
bool IsViewed(const char* path);

// Whether it is, or may be, a file that counts.
bool IsCounter(const char* viewed_path);

// Whether it is in /sys, whose files nobody can make or, here, write.
bool IsInSys(const char* viewed_path);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_PATH_H_
