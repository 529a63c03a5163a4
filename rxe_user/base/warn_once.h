// Warnings on stderr.
#ifndef RXE_USER_BASE_WARN_ONCE_H_
#define RXE_USER_BASE_WARN_ONCE_H_

#include <string>

namespace rxe_user {

// "rxe_user: LINE" on stderr, the first time that it is said: what is wrong is
// found over and over. Thread: any.
void WarnOnce(const std::string& line);

// The same, once for each `topic`, whatever the line.
void WarnOnceAbout(const std::string& topic, const std::string& line);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_WARN_ONCE_H_
