// libefa.so.1 for programs that are linked to it.
#include "verbs_api/stand_in.h"

#include "verbs_api/libefa/symbols.inc"
