// Warnings on stderr.
#ifndef RXE_USER_BASE_WARN_ONCE_H_
#define RXE_USER_BASE_WARN_ONCE_H_

#include <string>

namespace rxe_user {

// "rxe_user: LINE" on stderr. It never waits, so it may be called with locks
// held: a line that stderr (a full pipe) does not take at once is lost. No
// cancellation point. Thread: any.
void Warn(const std::string& line);

// Warn, the first time that it is said: what is wrong is found over and over.
// Thread: any.
void WarnOnce(const std::string& line);

// The same, once for each `topic`, whatever the line; for 256 topics of a
// process at most, since a peer may choose what they are about. Says nothing
// where there is no memory.
void WarnOnceAbout(const std::string& topic, const std::string& line);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_WARN_ONCE_H_
