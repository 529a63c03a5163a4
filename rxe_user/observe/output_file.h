// Opens the file to which a process writes packets or events.
#ifndef RXE_USER_OBSERVE_OUTPUT_FILE_H_
#define RXE_USER_OBSERVE_OUTPUT_FILE_H_

#include <string>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

struct OutputFile {
  UniqueFd fd;          // not valid: failed, with errno set
  std::string path;     // the name that was opened, or that failed
  std::string wanted;   // the name that was wanted
  bool is_file = true;  // not a pipe or device
};

// Opens file `name`, in which %p stands for the process ID. Never overwrites a
// file: if NAME exists, it opens NAME.PID. A pipe or character device serves
// one process. To keep the contents from other users in a folder that they can
// write, the following count as existing files: another user's named pipe, the
// target of another user's link, and a block device. Only the user may read a
// new file.
OutputFile OpenOutputFile(const std::string& name);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_OUTPUT_FILE_H_
