#include "verbs_api/libibverbs/refusal.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <new>
#include <string>

#include "rxe_user/observe/refusals.h"

namespace verbs_api {
namespace {

// Of the calling thread's current call. Characters, since a thread_local object
// with a destructor would need one more registration for each thread.
thread_local char noted[160];

// "PostSend" implements ibv_post_send(3).
std::string CallName(const char* function) {
  const std::string name = function;
  if (name.starts_with("ibv_") || name.starts_with("rdma_")) return name;
  std::string call = "ibv";
  for (const char c : name) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0) call += '_';
    call += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return call;
}

}  // namespace

int Because(int error, const char* check) {
  const size_t size =
      std::min(std::char_traits<char>::length(check), sizeof(noted) - 1);
  std::char_traits<char>::copy(noted, check, size);
  noted[size] = '\0';
  return error;
}

int Because(int error, const std::string& check) {
  return Because(error, check.c_str());
}

void ReportRefusal(const char* function, int error) noexcept {
  const int before = errno;
  try {
    const std::string check = noted;
    noted[0] = '\0';
    rxe_user::NoteRefusal(CallName(function).c_str(), error, check);
  } catch (const std::bad_alloc&) {
    // Not noted.
  }
  errno = before;
}

}  // namespace verbs_api
