#include "rxe_user/base/errno_status.h"

#include <errno.h>
#include <string.h>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace rxe_user {
namespace {

constexpr char kErrno[] = "rxe_user/errno";

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view what) {
  const char* remedy = error == EMFILE ? "; raise the limit (ulimit -n)" : "";
  absl::Status status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(what, ": ", ::strerror(error), remedy));
  status.SetPayload(kErrno, absl::Cord(absl::StrCat(error)));
  return status;
}

int ErrnoOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrno);
  int error = 0;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(*payload), &error)) {
    return 0;
  }
  return error;
}

bool IsOutOfFiles(const absl::Status& status) {
  const int error = ErrnoOf(status);
  return error == EMFILE || error == ENFILE;
}

}  // namespace rxe_user
