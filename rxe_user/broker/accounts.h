// Maps user IDs to the users to whose quotas they count.
#ifndef RXE_USER_BROKER_ACCOUNTS_H_
#define RXE_USER_BROKER_ACCOUNTS_H_

#include <sys/types.h>
#include <time.h>

#include <string>
#include <utility>
#include <vector>

namespace rxe_user::broker {

// A user may have a range of subordinate IDs (subuid(5)) and become any of them
// (newuidmap(1)). Their use counts as that user's. A range whose owner is not
// in the passwd file counts as one user, the first of the range. Ranges granted
// otherwise, by name services or by root, are unknown here: each of their IDs
// counts as a user. Thread: one at a time.
class Accounts {
 public:
  explicit Accounts(std::string subuid = "/etc/subuid",
                    std::string passwd = "/etc/passwd")
      : subuid_(std::move(subuid)), passwd_(std::move(passwd)) {}

  // Reads the files if they have changed.
  void Refresh();
  // The user to whose quotas `uid` counts: its owner, or itself.
  uid_t Of(uid_t uid) const;

 private:
  struct Range {
    uid_t first;
    uid_t last;
    uid_t owner;
  };
  void Read();

  const std::string subuid_;
  const std::string passwd_;
  timespec changed_[2] = {};  // ctime of each file when it was read
  std::vector<Range> ranges_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_ACCOUNTS_H_
