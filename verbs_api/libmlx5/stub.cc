// libmlx5.so.1 for programs that are linked to it.
#include "verbs_api/stub.h"

#include "verbs_api/libmlx5/symbols.inc"
