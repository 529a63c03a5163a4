// The values in rules for faults, and the names that stand for them.
#ifndef TRANSPORT_FAULTS_RULE_VALUES_H_
#define TRANSPORT_FAULTS_RULE_VALUES_H_

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/types.h"
#include "transport/faults/rule.h"
#include "wire/aeth.h"

namespace transport::faults {

// The row of this name in a table; null if there is none.
template <typename Row, size_t kSize>
const Row* FindRow(const Row (&table)[kSize], std::string_view name) {
  const Row* const row = std::ranges::find(table, name, &Row::name);
  return row != std::end(table) ? row : nullptr;
}

// "name, name": of all rows, or what `name` makes of them.
template <typename Row, size_t kSize, typename Name = std::string_view Row::*>
std::string NamesOf(const Row (&table)[kSize], Name name = &Row::name) {
  std::string names;
  for (const Row& row : table) {
    names += names.empty() ? "" : ", ";
    names += std::invoke(name, row);
  }
  return names;
}

// The parts of `text` between any of `separators`, empty parts too.
std::vector<std::string_view> Split(std::string_view text,
                                    const char* separators);

inline constexpr Time kMaxDelay = 3600 * kSecond;

// The codes of NAKs, by the completion status of the requester.
struct NakText {
  wire::NakCode code;
  std::string_view name;
};
inline constexpr NakText kNaks[] = {
    {wire::NakCode::kInvalidRequest, "REM_INV_REQ_ERR"},
    {wire::NakCode::kRemoteAccess, "REM_ACCESS_ERR"},
    {wire::NakCode::kRemoteOperational, "REM_OP_ERR"},
    {wire::NakCode::kPsnSequence, "PSN_SEQUENCE"},
};

// The statuses of completions that fail.
struct StatusText {
  WcStatus status;
  std::string_view name;
};
inline constexpr StatusText kStatuses[] = {
    {WcStatus::kLocalLengthError, "LOC_LEN_ERR"},
    {WcStatus::kLocalQpOperationError, "LOC_QP_OP_ERR"},
    {WcStatus::kLocalProtectionError, "LOC_PROT_ERR"},
    {WcStatus::kFlushed, "WR_FLUSH_ERR"},
    {WcStatus::kMwBindError, "MW_BIND_ERR"},
    {WcStatus::kBadResponse, "BAD_RESP_ERR"},
    {WcStatus::kLocalAccessError, "LOC_ACCESS_ERR"},
    {WcStatus::kRemoteInvalidRequest, "REM_INV_REQ_ERR"},
    {WcStatus::kRemoteAccessError, "REM_ACCESS_ERR"},
    {WcStatus::kRemoteOperationalError, "REM_OP_ERR"},
    {WcStatus::kRetryExceeded, "RETRY_EXC_ERR"},
    {WcStatus::kRnrRetryExceeded, "RNR_RETRY_EXC_ERR"},
    {WcStatus::kRemoteAborted, "REM_ABORT_ERR"},
    {WcStatus::kFatal, "FATAL_ERR"},
    {WcStatus::kResponseTimeout, "RESP_TIMEOUT_ERR"},
    {WcStatus::kGeneral, "GENERAL_ERR"},
};

// The opcodes of requests that a responder answers. Without DC CONNECT, whose
// BTH names no queue pair.
std::bitset<256> AnsweredRequests();
// Adds the opcodes that `name` stands for, one or a group. False if there are
// none.
bool AddOpcodes(std::string_view name, std::bitset<256>* out);
// The same for messages of the CM, as rxe-user decode prints them.
bool AddMad(std::string_view name, uint16_t* out);

// Each parses all of `text`. False if it has another form.
bool ParseNumber(std::string_view text, uint64_t* out);
// A finite decimal number, not negative.
bool ParseDecimal(std::string_view text, double* out);
// At most kMaxDelay.
bool ParseTime(std::string_view text, Time* out);
bool ParseRange(std::string_view text, Range* out);

// The code of the shortest RNR timer of at least this time. 32: there is none.
uint8_t RnrTimerCode(Time time);

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_RULE_VALUES_H_
