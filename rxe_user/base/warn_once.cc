#include "rxe_user/base/warn_once.h"

#include <stdio.h>

#include <mutex>
#include <set>

#include "rxe_user/base/fork_guard.h"

namespace rxe_user {

void WarnOnce(const std::string& line) { WarnOnceAbout(line, line); }

void WarnOnceAbout(const std::string& topic, const std::string& line) {
  static auto* const mutex = new ForkSafeMutex;
  static auto* const warned = new std::set<std::string>;
  {
    const std::lock_guard lock(*mutex);
    if (!warned->insert(topic).second) return;
  }
  ::fprintf(stderr, "rxe_user: %s\n", line.c_str());
}

}  // namespace rxe_user
