// _exit(2), which shells use to exit.
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/view/preload/viewed_call.h"

#define VIEW_EXIT(name)                       \
  VIEW_DEFINE(void, name, (int status)) {     \
    view::Leave();                            \
    for (;;) syscall(SYS_exit_group, status); \
  }
VIEW_EXIT(_exit)
VIEW_EXIT(_Exit)
