// Warnings on stderr.
#ifndef RXE_USER_BASE_WARN_ONCE_H_
#define RXE_USER_BASE_WARN_ONCE_H_

#include <string>

namespace rxe_user {

// Prints "rxe_user: LINE" on stderr. Never blocks, so it may be called with
// locks held: a line that stderr (a full pipe) does not accept at once is lost.
// No cancellation point. Thread: any.
void Warn(const std::string& line);

// As Warn, but only the first time for the same line. Thread: any.
void WarnOnce(const std::string& line);

// As WarnOnce, but once for each `topic`, whatever the line. At most 256 topics
// in a process, since peers may choose them. Prints nothing if there is no
// memory.
void WarnOnceAbout(const std::string& topic, const std::string& line);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_WARN_ONCE_H_
