// Statuses that carry an errno value, for callers that return errno.
#ifndef RXE_USER_BASE_ERRNO_STATUS_H_
#define RXE_USER_BASE_ERRNO_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rxe_user {

// "WHAT: the text of `error`", and a remedy for too many open files.
absl::Status ErrnoStatus(int error, absl::string_view what);

// The errno value of ErrnoStatus; 0 if there is none.
int ErrnoOf(const absl::Status& status);

// Whether it failed because this process or the system has too many open files,
// which says nothing about the requested object.
bool IsOutOfFiles(const absl::Status& status);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_ERRNO_STATUS_H_
