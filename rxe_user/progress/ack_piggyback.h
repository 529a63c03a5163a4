// Whether an acknowledgement waits for a post of the application to go with.
#ifndef RXE_USER_PROGRESS_ACK_PIGGYBACK_H_
#define RXE_USER_PROGRESS_ACK_PIGGYBACK_H_

#include <algorithm>

#include "rxe_user/progress/app_activity.h"
#include "transport/base/types.h"

namespace rxe_user {

// Sent alone, an acknowledgement wakes the peer for nothing, and takes the core
// that the application makes its answer on: ib_write_lat 64 B 11.5 us rather
// than 5.1, ib_send_lat 8.0 rather than 5.1.
class AckPiggyback {
 public:
  // A post that comes so soon after an arrival answers it, and the next answer
  // is waited for as long. Where threads take each other's cores an answer may
  // take so much.
  static constexpr transport::Time kAnswerGap = 200 * transport::kMicrosecond;
  // So many arrivals in a row have to have been answered before one is waited
  // for: a post after each of them is then no chance.
  static constexpr int kAnswersExpected = 4;

  void OnPost(transport::Time now) {
    if (unanswered_ == kLongAgo) return;
    const bool at_once = now - unanswered_ < kAnswerGap;
    answers_ = at_once ? std::min(answers_ + 1, kAnswersExpected) : 0;
    unanswered_ = kLongAgo;
  }
  // Something that asks for an acknowledgement has been taken in. True: it is
  // likely to be answered at once.
  bool OnArrival(transport::Time now) {
    if (unanswered_ != kLongAgo) answers_ = 0;  // the last one was not
    unanswered_ = now;
    return answers_ >= kAnswersExpected;
  }

 private:
  transport::Time unanswered_ = kLongAgo;  // the last arrival, if it is
  int answers_ = 0;                        // in a row, up to kAnswersExpected
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_ACK_PIGGYBACK_H_
