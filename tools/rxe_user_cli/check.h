// `rxe-user check`: checks captures and recordings against rules of the
// specification.
#ifndef TOOLS_RXE_USER_CLI_CHECK_H_
#define TOOLS_RXE_USER_CLI_CHECK_H_

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace rxe_user_cli {

struct CheckOptions {
  std::vector<std::string> files;  // pcap or pcapng; "-" is standard input
  // For captures that do not tell sent from received packets: addresses whose
  // packets were captured where they were sent.
  std::vector<std::string> locals;
  // As in ibv_modify_qp(3), for captures that do not contain them.
  std::optional<uint8_t> retry_count;
  std::optional<uint8_t> timeout;
  double cnp_interval_us = 4;
  // Rules and lints whose findings are left out, by name: "icrc", "peer-mtu".
  std::vector<std::string> without;
  bool latencies = false;  // also print a table of latencies
  bool json = false;
};

// The names of all rules and lints, for `without`.
std::vector<std::string> CheckNames();

// Writes a line for each finding to `out`, and the latencies. The attributes of
// queue pairs in all recordings are compared with those of their peers. Returns
// the exit status: 0 without findings, 1 with, 2 if a file cannot be read to
// its end or an option is wrong, with one line on `err`. What could be read is
// checked. A closed reader of `out` (EPIPE) is not an error.
int RunCheck(const CheckOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_CHECK_H_
