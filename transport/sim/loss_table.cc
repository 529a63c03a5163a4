// The table of docs/reliability.md: goodput of long transfers under loss,
// reordering and outages, compared with plain go-back-N.
//
//   bazel run //transport/sim:loss_table [-- --json] [--only=READ] [--seeds=N]
//       [--mbps=N] [--rtt-us=N] [--message-kib=N] [--overtaking]
//       [--keeps-nothing]
//
// --overtaking: a reordered packet is not delayed by up to two round trips, but
// overtakes everything in flight, in both directions, as with netem.
// --keeps-nothing: the peer drops packets after a gap.
//
// Transfers 256 MiB, or as much as takes two seconds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "transport/sim/go_back_n.h"
#include "transport/sim/transfer.h"

namespace sim {
namespace {

uint64_t seeds = 5;  // each row is the mean of these
std::string only;    // WRITE or READ
LinkProfile link = TransferLink();
bool overtaking = false;
bool keeps_nothing = false;
uint32_t message_bytes = 1 << 20;

struct Row {
  const char* operation;
  uint32_t path_mtu;
  std::string network;
  double goodput = 0;  // Gb/s
  double lossless = 0;
  double go_back_n = 0;  // Gb/s
  double spurious = 0;
  double window = 0;         // KiB
  double longest_pause = 0;  // ms
  double timeouts = 0;
  double probes = 0;
  bool done = true;
};

struct Network {
  const char* name;
  uint32_t loss;
  uint32_t reorder;
  Time outage;
};

uint32_t Messages() {
  const uint64_t bytes =
      std::min<uint64_t>(256 << 20, link.bytes_per_us * 2'000'000);
  return static_cast<uint32_t>(std::max<uint64_t>(bytes / message_bytes, 16));
}

Row Measure(transport::SendOpcode opcode, uint32_t path_mtu,
            const Network& network) {
  Row row;
  row.operation = opcode == transport::SendOpcode::kRdmaRead ? "READ" : "WRITE";
  row.path_mtu = path_mtu;
  row.network = network.name;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    TransferOptions options;
    options.opcode = opcode;
    options.seed = seed;
    options.path_mtu = path_mtu;
    options.message_bytes = message_bytes;
    options.messages = Messages();
    options.depth = std::max(4u, (4u << 20) / message_bytes / 4);
    options.link = link;
    options.link.loss = network.loss;
    (overtaking ? options.link.overtake : options.link.reorder) =
        network.reorder;
    options.peer_keeps_nothing = keeps_nothing;
    options.outage_start = 20 * transport::kMillisecond;
    options.outage = network.outage;
    const TransferResult result = RunTransfer(options);
    // The model's timer suits the link of the table only.
    GoBackNResult other;
    if (link.delay == TransferLink().delay &&
        link.bytes_per_us == TransferLink().bytes_per_us) {
      other = RunGoBackN(options, result.mean_in_flight);
    }
    row.done = row.done && result.done;
    if (!result.done) std::fprintf(stderr, "%s\n", result.failed.c_str());
    const double share = 1.0 / static_cast<double>(seeds);
    row.goodput += result.goodput() * 8 / 1000 * share;
    row.go_back_n += other.goodput * 8 / 1000 * share;
    row.spurious += result.spurious() * share;
    row.window += static_cast<double>(result.mean_in_flight) / 1024 * share;
    row.longest_pause = std::max(
        row.longest_pause, static_cast<double>(result.longest_pause) / 1e6);
    row.timeouts += result.requester.timeouts * share;
    row.probes += result.requester.probes * share;
  }
  return row;
}

void PrintText(const std::vector<Row>& rows) {
  std::printf("%-5s %5s %-14s %9s %9s %9s %9s %9s %8s %8s %7s\n", "", "MTU",
              "network", "Gb/s", "of it all", "GBN Gb/s", "times GBN",
              "spurious", "KiB", "pause", "timeout");
  for (const Row& row : rows) {
    std::printf(
        "%-5s %5u %-14s %9.2f %9.3f %9.2f %9.2f %8.2f%% %8.0f %5.1f ms %7.1f "
        "%.0f%s\n",
        row.operation, row.path_mtu, row.network.c_str(), row.goodput,
        row.goodput / row.lossless, row.go_back_n, row.goodput / row.go_back_n,
        row.spurious * 100, row.window, row.longest_pause, row.timeouts,
        row.probes, row.done ? "" : "  FAILED");
  }
}

void PrintJson(const std::vector<Row>& rows) {
  std::printf("[");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::printf(
        "%s\n  {\"operation\": \"%s\", \"path_mtu\": %u, \"network\": \"%s\", "
        "\"gbps\": %.3f, \"of_lossless\": %.4f, \"go_back_n_gbps\": %.3f, "
        "\"spurious\": %.5f, \"mean_window_kib\": %.1f, "
        "\"longest_pause_ms\": %.3f, \"timeouts\": %.1f, \"probes\": %.1f, "
        "\"done\": %s}",
        i == 0 ? "" : ",", row.operation, row.path_mtu, row.network.c_str(),
        row.goodput, row.goodput / row.lossless, row.go_back_n, row.spurious,
        row.window, row.longest_pause, row.timeouts, row.probes,
        row.done ? "true" : "false");
  }
  std::printf("\n]\n");
}

std::vector<Row> MeasureAll() {
  const Network networks[] = {{"no loss", 0, 0, 0},
                              {"0.1 % loss", 1'000, 0, 0},
                              {"1 % loss", 10'000, 0, 0},
                              {"5 % loss", 50'000, 0, 0},
                              {"5 % reordered", 0, 50'000, 0},
                              {"100 ms outage", 0, 0, 100'000'000}};
  std::vector<Row> rows;
  for (const auto opcode :
       {transport::SendOpcode::kRdmaWrite, transport::SendOpcode::kRdmaRead}) {
    const bool read = opcode == transport::SendOpcode::kRdmaRead;
    if (!only.empty() && only != (read ? "READ" : "WRITE")) continue;
    for (const uint32_t path_mtu : {1024u, 4096u}) {
      double lossless = 0;
      for (const Network& network : networks) {
        Row row = Measure(opcode, path_mtu, network);
        if (lossless == 0) lossless = row.goodput;
        row.lossless = lossless;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strncmp(argv[i], "--only=", 7) == 0) {
      sim::only = argv[i] + 7;
    } else if (std::strncmp(argv[i], "--seeds=", 8) == 0) {
      sim::seeds = std::strtoull(argv[i] + 8, nullptr, 10);
    } else if (std::strncmp(argv[i], "--mbps=", 7) == 0) {
      sim::link.bytes_per_us = std::strtoull(argv[i] + 7, nullptr, 10) / 8;
    } else if (std::strncmp(argv[i], "--rtt-us=", 9) == 0) {
      sim::link.delay =
          std::strtoll(argv[i] + 9, nullptr, 10) * transport::kMicrosecond / 2;
    } else if (std::strcmp(argv[i], "--overtaking") == 0) {
      sim::overtaking = true;
    } else if (std::strcmp(argv[i], "--keeps-nothing") == 0) {
      sim::keeps_nothing = true;
    } else if (std::strncmp(argv[i], "--message-kib=", 14) == 0) {
      sim::message_bytes = std::strtoul(argv[i] + 14, nullptr, 10) << 10;
    } else {
      std::fprintf(stderr,
                   "usage: loss_table [--json] [--only=READ] [--seeds=N]\n");
      return 2;
    }
  }
  const std::vector<sim::Row> rows = sim::MeasureAll();
  json ? sim::PrintJson(rows) : sim::PrintText(rows);
  for (const sim::Row& row : rows) {
    if (!row.done) return 1;
  }
  return 0;
}
