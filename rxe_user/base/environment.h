// What the environment says, for every setting of the library.
#ifndef RXE_USER_BASE_ENVIRONMENT_H_
#define RXE_USER_BASE_ENVIRONMENT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rxe_user {

// Whether this program has rights that its caller has not (setuid, setgid, file
// capabilities; AT_SECURE of getauxval(3)): then the environment is the
// caller's, and not to be heeded.
bool IsSecureProgram();

// The value of a variable, as of secure_getenv(3): null if it is not set, and
// always in a secure program. Thread: any, while nobody changes the
// environment.
const char* Environment(const char* variable);

// The names of the library's settings, which all begin with RXE_USER_.
std::span<const std::string_view> SettingNames();
// What of the environment looks like a setting and is none, in its order; never
// in a secure program. RXE_USER_TEST_ is what tests tell each other. Thread: as
// above.
std::vector<std::string> UnknownSettings();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_ENVIRONMENT_H_
