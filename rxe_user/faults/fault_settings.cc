#include "rxe_user/faults/fault_settings.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "rxe_user/base/environment.h"
#include "rxe_user/base/unique_fd.h"
#include "transport/faults/profiles.h"
#include "transport/faults/rule_parser.h"

namespace rxe_user {
namespace {

using transport::faults::kMaxRuleText;

using Clock = std::chrono::steady_clock;

// How long the writer of a pipe may take.
constexpr std::chrono::seconds kPatience{5};

// Waits until there are bytes to read, or the writer has closed. False with
// errno.
bool AwaitBytes(int fd, Clock::time_point until) {
  pollfd readable = {.fd = fd, .events = POLLIN, .revents = 0};
  int n;
  do {
    const int64_t left_ns = std::max<int64_t>(
        std::chrono::nanoseconds(until - Clock::now()).count(), 0);
    const timespec left = {.tv_sec = left_ns / 1'000'000'000,
                           .tv_nsec = left_ns % 1'000'000'000};
    n = ::ppoll(&readable, 1, &left, nullptr);
  } while (n < 0 && errno == EINTR);
  if (n == 0) errno = ETIMEDOUT;
  return n > 0;
}

// Reads a regular file, or a pipe, to its end. False with errno.
bool ReadFile(const std::string& name, std::string* out) {
  // O_NONBLOCK: a pipe that nobody writes must not block open.
  const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return false;
  const Clock::time_point until = Clock::now() + kPatience;
  char part[4096];
  for (;;) {
    if (!AwaitBytes(fd.get(), until)) return false;
    const ssize_t n = ::read(fd.get(), part, sizeof(part));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return false;
    if (n == 0) return true;
    out->append(part, static_cast<size_t>(n));
    if (out->size() > kMaxRuleText) {
      errno = EFBIG;
      return false;
    }
  }
}

// "lossy, wifi, ...".
std::string ProfileNames() {
  std::string names;
  for (const transport::faults::Profile& profile :
       transport::faults::kProfiles) {
    names += names.empty() ? "" : ", ";
    names += profile.name;
  }
  return names;
}

}  // namespace

bool IsRuleFile(std::string_view value) {
  if (transport::faults::LooksLikeRules(value)) return false;
  struct stat s {};
  if (::stat(std::string(value).c_str(), &s) == 0) return true;
  if (transport::faults::FindProfile(value) != nullptr) return false;
  // A file name rarely contains a blank; a misspelled rule does.
  return value.find_first_of(" \t\n;") == std::string_view::npos;
}

std::optional<std::string> LoadFaultRules(
    std::string_view value, std::vector<transport::faults::Rule>* out) {
  if (!IsRuleFile(value)) {
    if (const auto* const profile = transport::faults::FindProfile(value)) {
      value = profile->rules;
    }
    const auto error = transport::faults::ParseRules(value, out);
    if (!error) return std::nullopt;
    return error->ToString();
  }
  const std::string name(value);
  std::string text;
  if (!ReadFile(name, &text)) {
    return name + ": " + std::strerror(errno) +
           (errno == ENOENT ? "; it is neither a file nor a rule such as "
                              "'drop tx op=data nth=3', nor a profile: " +
                                  ProfileNames()
                            : "");
  }
  const auto error = transport::faults::ParseRules(text, out);
  if (!error) return std::nullopt;
  return name + ": " + error->ToString();
}

std::optional<std::string> ParseFaultSeed(std::string_view text,
                                          uint64_t* seed) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *seed);
  if (!text.empty() && error == std::errc() && at == end) return std::nullopt;
  return "the seed '" + std::string(text) +
         "' is no number from 0 to 18446744073709551615";
}

std::optional<std::string> ReadFaultSettings(FaultSettings* out) {
  const char* const value = Environment("RXE_USER_FAULTS");
  if (value == nullptr || *value == '\0') return std::nullopt;
  if (const char* const seed = Environment("RXE_USER_FAULTS_SEED");
      seed != nullptr && *seed != '\0') {
    if (auto wrong = ParseFaultSeed(seed, &out->seed)) {
      return "RXE_USER_FAULTS_SEED: " + *wrong;
    }
  }
  if (value != kNoFaultRules) {
    // It is read again for each list of devices, and for the first device.
    struct stat s {};
    if (IsRuleFile(value) && ::stat(value, &s) == 0 && !S_ISREG(s.st_mode) &&
        std::strcmp(value, "/dev/null") != 0) {
      return std::string("RXE_USER_FAULTS: ") + value +
             " is not a regular file; rxe-user run --faults reads a pipe";
    }
    if (auto wrong = LoadFaultRules(value, &out->rules)) {
      return "RXE_USER_FAULTS: " + *wrong;
    }
  }
  out->on = true;
  return std::nullopt;
}

}  // namespace rxe_user
