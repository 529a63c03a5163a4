// Environment variables, for all settings of the library.
#ifndef RXE_USER_BASE_ENVIRONMENT_H_
#define RXE_USER_BASE_ENVIRONMENT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rxe_user {

// Whether this program has privileges that its caller lacks (setuid, setgid,
// file capabilities; AT_SECURE of getauxval(3)). The environment is then the
// caller's and must be ignored.
bool IsSecureProgram();

// The value of a variable, as secure_getenv(3) returns it: null if it is not
// set, and always in a secure program. Thread: any, while no thread changes the
// environment.
const char* Environment(const char* variable);

// The names of the library's settings. All begin with RXE_USER_.
std::span<const std::string_view> SettingNames();
// Variables that look like settings but are not, in the environment's order;
// none in a secure program. RXE_USER_TEST_ is reserved for tests. Thread: as
// above.
std::vector<std::string> UnknownSettings();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_ENVIRONMENT_H_
