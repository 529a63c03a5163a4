#include "transport/faults/rule_values.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>
#include <utility>

#include "wire/cm.h"
#include "wire/dc.h"
#include "wire/opcode.h"

namespace transport::faults {
namespace {

using wire::OpcodeInfo;
using wire::Operation;

bool IsData(const OpcodeInfo& info) {
  return info.carries_payload && (info.is_request || info.is_response);
}
bool IsAck(uint8_t opcode) {
  const Operation operation = wire::OperationOf(opcode);
  return opcode != wire::kOpcodeCnp &&
         (operation == Operation::kAcknowledge ||
          operation == Operation::kAtomicAcknowledge);
}

}  // namespace

std::vector<std::string_view> Split(std::string_view text,
                                    const char* separators) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end =
        std::min(text.find_first_of(separators, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::bitset<256> AnsweredRequests() {
  std::bitset<256> opcodes;
  for (size_t i = 0; i < 256; ++i) {
    const auto opcode = static_cast<uint8_t>(i);
    const wire::Transport transport = wire::TransportOf(opcode);
    opcodes[i] = wire::GetOpcodeInfo(opcode).is_request &&
                 opcode != wire::kOpcodeDcConnect &&
                 (transport == wire::Transport::kRc ||
                  transport == wire::Transport::kXrc ||
                  transport == wire::Transport::kDc);
  }
  return opcodes;
}

bool AddOpcodes(std::string_view name, std::bitset<256>* out) {
  bool found = false;
  for (size_t i = 0; i < 256; ++i) {
    const auto opcode = static_cast<uint8_t>(i);
    const OpcodeInfo& info = wire::GetOpcodeInfo(opcode);
    if (!info.known) continue;
    const bool is_in = name == "data"       ? IsData(info)
                       : name == "ack"      ? IsAck(opcode)
                       : name == "request"  ? info.is_request
                       : name == "response" ? info.is_response
                                            : name == info.name;
    if (!is_in) continue;
    out->set(i);
    found = true;
  }
  return found;
}

bool AddMad(std::string_view name, uint16_t* out) {
  for (size_t i = 0; i < kMads; ++i) {
    const auto attribute = static_cast<wire::CmAttribute>(kFirstMad + i);
    if (name != wire::CmAttributeName(attribute)) continue;
    *out = static_cast<uint16_t>(*out | 1u << i);
    return true;
  }
  return false;
}

bool ParseNumber(std::string_view text, uint64_t* out) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out, base);
  return !text.empty() && error == std::errc() && at == end;
}

bool ParseDecimal(std::string_view text, double* out) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  return !text.empty() && error == std::errc() && at == end &&
         std::isfinite(*out) && *out >= 0 && text.front() != '-';
}

bool ParseTime(std::string_view text, Time* out) {
  static constexpr std::pair<std::string_view, Time> kUnits[] = {
      {"ns", 1}, {"us", kMicrosecond}, {"ms", kMillisecond}, {"s", kSecond}};
  for (const auto& [unit, size] : kUnits) {
    if (!text.ends_with(unit)) continue;
    double number;
    if (!ParseDecimal(text.substr(0, text.size() - unit.size()), &number)) {
      continue;
    }
    number *= static_cast<double>(size);
    if (number > static_cast<double>(kMaxDelay)) return false;
    *out = static_cast<Time>(std::llround(number));
    return true;
  }
  return false;
}

bool ParseRange(std::string_view text, Range* out) {
  const size_t dash = text.find('-');
  if (!ParseNumber(text.substr(0, dash), &out->first) || out->first == 0) {
    return false;
  }
  out->last = out->first;
  if (dash == std::string_view::npos) return true;
  const std::string_view last = text.substr(dash + 1);
  if (last.empty()) {
    out->last = UINT64_MAX;
    return true;
  }
  return ParseNumber(last, &out->last) && out->last >= out->first;
}

uint8_t RnrTimerCode(Time time) {
  uint8_t best = 32;
  for (uint8_t code = 0; code < 32; ++code) {
    if (wire::RnrTimerNanos(code) >= time &&
        (best == 32 || wire::RnrTimerNanos(code) < wire::RnrTimerNanos(best))) {
      best = code;
    }
  }
  return best;
}

}  // namespace transport::faults
