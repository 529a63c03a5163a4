// libefa.so.1 for programs that are linked to it.
#include "verbs_api/stub.h"

#include "verbs_api/libefa/symbols.inc"
