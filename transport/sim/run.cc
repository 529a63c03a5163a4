#include "transport/sim/run.h"

#include "absl/strings/str_cat.h"

namespace sim {

bool Run::Execute() {
  Play();
  statistics_ = {{"bytes", network_.bytes()},
                 {"events", network_.events()},
                 {"packets", network_.packets()},
                 {"undetected", network_.undetected()},
                 {"virtual us", network_.now() / transport::kMicrosecond}};
  Count(&statistics_);
  return !checker_.failed();
}

void Run::Fail(const std::string& text) {
  checker_.Fail(absl::StrCat("at ", network_.now(), " ns: ", text));
}

void Run::CheckIdle(Node& node) {
  if (node.endpoint().HasTransmit()) Fail("HasTransmit on an idle host");
  if (node.endpoint().NextTimeout() != transport::kNever) {
    Fail("a timer on an idle host");
  }
}

}  // namespace sim
