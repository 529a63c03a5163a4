#include "rxe_user/broker/accounts.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

namespace rxe_user::broker {
namespace {

// Further lines are ignored.
constexpr int kMaxLines = 10'000;

template <typename Line>
void ForEachLine(const std::string& path, const Line& line) {
  std::ifstream in(path);
  std::string text;
  for (int i = 0; i < kMaxLines && std::getline(in, text); ++i) {
    std::vector<std::string_view> fields;
    std::string_view rest = text;
    for (;;) {
      const size_t end = rest.find(':');
      fields.push_back(rest.substr(0, end));
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
    line(fields);
  }
}

std::optional<uint32_t> NumberOf(std::string_view text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

timespec ChangeOf(const std::string& path) {
  struct stat s {};
  return stat(path.c_str(), &s) == 0 ? s.st_ctim : timespec{};
}

bool Same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

void Accounts::Refresh() {
  const timespec now[2] = {ChangeOf(subuid_), ChangeOf(passwd_)};
  if (Same(now[0], changed_[0]) && Same(now[1], changed_[1])) return;
  Read();
  std::copy_n(now, 2, changed_);
}

uid_t Accounts::Of(uid_t uid) const {
  const auto range = std::ranges::find_if(ranges_, [uid](const Range& r) {
    return r.first <= uid && uid <= r.last;
  });
  return range == ranges_.end() ? uid : range->owner;
}

void Accounts::Read() {
  std::map<std::string, uid_t, std::less<>> users;
  ForEachLine(passwd_, [&](const auto& fields) {
    if (fields.size() < 3) return;
    if (const auto uid = NumberOf(fields[2])) users.emplace(fields[0], *uid);
  });
  ranges_.clear();
  ForEachLine(subuid_, [&](const auto& fields) {
    if (fields.size() != 3) return;
    const auto first = NumberOf(fields[1]), count = NumberOf(fields[2]);
    if (!first.has_value() || !count.has_value() || *count == 0) return;
    const auto user = users.find(fields[0]);
    const uid_t owner = user != users.end()
                            ? user->second
                            : NumberOf(fields[0]).value_or(*first);
    const uint32_t most = ~uint32_t{0} - *first;
    ranges_.push_back({*first, *first + std::min(*count - 1, most), owner});
  });
}

}  // namespace rxe_user::broker
