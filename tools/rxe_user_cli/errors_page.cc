// The table of docs/errors.md.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rxe_user/observe/status_text.h"
#include "tools/rxe_user_cli/explain.h"
#include "transport/base/reason.h"

namespace rxe_user_cli {

std::string ErrorsTable() {
  std::string text =
      "| vendor_err | name | status | what happened | whose side | what to do "
      "| "
      "see |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const transport::ReasonText& reason : transport::kReasons) {
    const auto view = [](std::string_view part) {
      return absl::string_view(part.data(), part.size());
    };
    absl::StrAppendFormat(&text, "| %d | `%s` | %d | %s | %s | %s | %s |\n",
                          static_cast<int>(reason.reason), view(reason.name),
                          rxe_user::StatusOf(reason.reason), view(reason.what),
                          view(rxe_user::NameOf(reason.side)),
                          view(reason.advice), view(reason.spec));
  }
  return text;
}

}  // namespace rxe_user_cli
