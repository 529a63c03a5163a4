#include "rxe_user/base/environment.h"

#include <stdlib.h>
#include <sys/auxv.h>

namespace rxe_user {

bool IsSecureProgram() { return ::getauxval(AT_SECURE) != 0; }

const char* Environment(const char* variable) {
  return ::secure_getenv(variable);
}

}  // namespace rxe_user
