#include "verbs_api/rsockets/settings.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "verbs_api/rsockets/protocol.h"
#include "verbs_api/rsockets/send_window.h"

namespace rsockets {
namespace {

// Large enough for all uses, and twice of it fits an int.
constexpr uint64_t kMaxBuffer = uint64_t{1} << 29;
constexpr uint64_t kMaxInline = 1024;

std::optional<uint64_t> ReadNumber(const std::string& file) {
  std::ifstream in(file);
  int64_t value;
  if (!(in >> value) || value < 0) return std::nullopt;
  return static_cast<uint64_t>(value);
}

}  // namespace

void Settings::SetSendBuffer(uint64_t bytes) {
  send_buffer = static_cast<uint32_t>(std::clamp<uint64_t>(
      bytes, uint64_t{2} * SendWindow::kLowWater, kMaxBuffer));
}

void Settings::SetReceiveBuffer(uint64_t bytes) {
  // Two halves of equal size.
  receive_buffer = static_cast<uint32_t>(
      std::clamp<uint64_t>(bytes, 2, kMaxBuffer) & ~uint64_t{1});
}

uint32_t Settings::QueueSize(uint64_t entries) {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(entries, kMinQueue, kMaxQueue));
}

Settings Settings::Read(const std::string& folder) {
  Settings s;
  const auto number = [&](const char* name) {
    return ReadNumber(folder + "/" + name);
  };
  if (const auto n = number("mem_default")) s.SetReceiveBuffer(*n);
  if (const auto n = number("wmem_default")) s.SetSendBuffer(*n);
  if (const auto n = number("sqsize_default")) s.send_queue = QueueSize(*n);
  if (const auto n = number("rqsize_default")) s.receive_queue = QueueSize(*n);
  if (const auto n = number("inline_default")) {
    s.inline_data = static_cast<uint32_t>(std::min(*n, kMaxInline));
  }
  if (const auto n = number("iomap_size")) {
    s.iomap_entries = RoundIomapEntries(
        static_cast<uint32_t>(std::min<uint64_t>(*n, UINT32_MAX)));
  }
  if (const auto n = number("polling_time")) {
    s.polling_us = static_cast<uint32_t>(std::min<uint64_t>(*n, 1000));
  }
  return s;
}

const Settings& Settings::Default() {
  static const Settings settings = Read("/etc/rdma/rsocket");
  return settings;
}

}  // namespace rsockets
