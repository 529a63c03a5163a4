// The table of docs/reliability.md, "Congestion": how many senders share one
// link, with and without marks of a switch.
//
//   bazel run //transport/sim:incast_table [-- --senders=N] [--many]
//
// --many: 1,000 senders as well, which takes some minutes.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/sim/incast.h"

namespace {

void Print(const sim::IncastOptions& options) {
  const sim::IncastResult result = sim::RunIncast(options);
  std::printf(
      "| %d | %s | %s | %.3f | %.3f | %.0f | %.0f | %llu | %llu |%s\n",
      options.senders,
      options.opcode == transport::SendOpcode::kRdmaRead ? "READ" : "WRITE",
      options.marks ? "yes" : "no", result.fairness, result.utilisation,
      static_cast<double>(result.longest_queue) / 1024,
      static_cast<double>(result.longest_queue_ever) / 1024,
      static_cast<unsigned long long>(result.dropped),
      static_cast<unsigned long long>(result.marked), result.failed.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool many = false;
  int only = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--many") == 0) {
      many = true;
    } else if (std::strncmp(argv[i], "--senders=", 10) == 0) {
      only = std::atoi(argv[i] + 10);
    } else {
      std::fprintf(stderr, "usage: incast_table [--senders=N] [--many]\n");
      return 2;
    }
  }
  std::printf(
      "| senders | | marks | fairness | used | queue, KiB | at the start | "
      "dropped | marked |\n");
  for (const int senders : {2, 8, 64, 256, 1000}) {
    if (only != 0 ? senders != only : senders == 1000 && !many) continue;
    for (const auto opcode : {transport::SendOpcode::kRdmaWrite,
                              transport::SendOpcode::kRdmaRead}) {
      for (const bool marks : {true, false}) {
        sim::IncastOptions options;
        options.senders = senders;
        options.opcode = opcode;
        options.marks = marks;
        if (senders >= 64) {
          options.warm_up = 100 * transport::kMillisecond;
          options.end = 300 * transport::kMillisecond;
        }
        if (senders >= 256) {
          options.warm_up = 300 * transport::kMillisecond;
          options.end = 500 * transport::kMillisecond;
        }
        if (senders >= 1000) {
          options.warm_up = 1000 * transport::kMillisecond;
          options.end = 2100 * transport::kMillisecond;
        }
        Print(options);
      }
    }
  }
  return 0;
}
