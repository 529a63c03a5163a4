// A status that comes from errno, and tells that number again at the edge where
// the caller is given one.
#ifndef RXE_USER_BASE_ERRNO_STATUS_H_
#define RXE_USER_BASE_ERRNO_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rxe_user {

// "WHAT: the text of `error`", and for too many open files what to do.
absl::Status ErrnoStatus(int error, absl::string_view what);

// The number that ErrnoStatus was given; 0 when there was none.
int ErrnoOf(const absl::Status& status);

// Whether it failed because no more files can be open, in this process or in
// the system. It says nothing about what was asked for.
bool IsOutOfFiles(const absl::Status& status);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_ERRNO_STATUS_H_
