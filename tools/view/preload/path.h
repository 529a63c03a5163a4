// The paths that the view covers.
#ifndef TOOLS_VIEW_PRELOAD_PATH_H_
#define TOOLS_VIEW_PRELOAD_PATH_H_

namespace view {

// Whether `path`, which may be null, is one of these folders or below one:
// infiniband and infiniband_verbs in /sys/class, in /sys/devices/virtual, and
// in the `device` of every interface in /sys/class/net; /dev/infiniband.
// Slashes may be repeated. "." and ".." before that are not resolved. Context:
// any, including a signal handler and a child of vfork.
bool IsViewed(const char* path);

// Whether the path is, or may be, a counter file.
bool IsCounter(const char* viewed_path);

// Whether the path is in /sys, where files cannot be created and ours cannot be
// written to.
bool IsInSys(const char* viewed_path);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_PATH_H_
