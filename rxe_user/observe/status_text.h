// A dictionary of failures: IBV_WC_*, our reasons (transport/base/reason.h),
// and the syndromes that mlx5 devices report in vendor_err.
#ifndef RXE_USER_OBSERVE_STATUS_TEXT_H_
#define RXE_USER_OBSERVE_STATUS_TEXT_H_

#include <cstdint>
#include <string_view>

#include "transport/base/reason.h"

namespace rxe_user {

struct StatusText {
  uint32_t status;
  std::string_view name;  // "IBV_WC_RETRY_EXC_ERR"
  transport::Side side;
  std::string_view what;
  std::string_view advice;
  std::string_view spec;
};

struct SyndromeText {
  uint32_t vendor_err;
  uint32_t status;  // the status that comes with it
  std::string_view what;
  // Publicly documented; otherwise only seen in published reports.
  bool certain;
};

// Null if there is no such number.
const StatusText* FindStatus(uint32_t status);
const SyndromeText* FindSyndrome(uint32_t vendor_err);

// The status with which a work request fails for `reason`. If a responder
// refuses a request of its peer, no work request of its own fails, and the
// status is 5 (the queues are flushed).
uint32_t StatusOf(transport::Reason reason);

// "this side", "the peer's side" ...
std::string_view NameOf(transport::Side side);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_STATUS_TEXT_H_
