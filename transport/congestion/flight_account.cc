#include "transport/congestion/flight_account.h"

namespace transport {

void FlightAccount::Begin(const Path& path, bool idle) {
  if (IsCurrent(path)) return;
  switch (allowance_) {
    case Allowance::kShareAlone:
      // Otherwise the queue pair is new, and others on the path are answered.
      if (!idle || !path.answered()) break;
      if (path.has_unanswered()) {
        allowance_ = Allowance::kShareOfWindow;
      } else {
        allowance_ = Allowance::kWindow;
        silences_seen_ = path.silences();
      }
      break;
    case Allowance::kWindow:
      allowance_ = Allowance::kShareOfWindow;
      break;
    case Allowance::kShareOfWindow:
      break;
  }
}

void FlightAccount::OnAnswer(Path* path) {
  if (allowance_ == Allowance::kShareAlone) path->OnAnswer(bytes_);
  allowance_ = Allowance::kWindow;
  silences_seen_ = path->silences();
}

void FlightAccount::FallSilent(Path* path) {
  if (allowance_ == Allowance::kShareAlone) return;
  path->OnSilence(bytes_, allowance_ == Allowance::kWindow);
  allowance_ = Allowance::kShareAlone;
  silences_seen_ = 0;
}

void FlightAccount::Leave(Path* path) {
  if (bytes_ > 0) Set(path, 0);
  *this = {};
}

}  // namespace transport
