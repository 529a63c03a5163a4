// The tables of docs/reliability.md, "Congestion": how many senders share one
// link, with and without marks of a switch.
//
//   bazel run //transport/sim:incast_table
//       [-- --senders=N] [--many] [--apart-us=N] [--hardware]
//
// --many: 1,000 senders as well, which takes some minutes. --hardware: of READs
// of 64 KiB by a host whose network card answers marks by CNPs, and which does
// nothing else about them.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/sim/incast.h"

namespace {

using transport::kMicrosecond;
using transport::kMillisecond;

struct Arguments {
  bool many = false;
  bool hardware = false;
  int senders = 0;   // 0: all rows
  int apart_us = 0;  // from the beginning of one to that of the next
};

// The number behind `name`, into `value`.
bool Take(const char* argument, const char* name, int* value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  *value = std::atoi(argument + length);
  return true;
}

bool Parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--many") == 0) {
      out->many = true;
    } else if (std::strcmp(argv[i], "--hardware") == 0) {
      out->hardware = true;
    } else if (!Take(argv[i], "--senders=", &out->senders) &&
               !Take(argv[i], "--apart-us=", &out->apart_us)) {
      return false;
    }
  }
  return out->senders >= 0 && out->apart_us >= 0;
}

// When many have found their windows, so long.
void SetTimes(sim::IncastOptions* options) {
  if (options->senders >= 64) {
    options->warm_up = 100 * kMillisecond;
    options->end = 300 * kMillisecond;
  }
  if (options->senders >= 256) {
    options->warm_up = 300 * kMillisecond;
    options->end = 500 * kMillisecond;
  }
  if (options->senders >= 1000) {
    options->warm_up = 1000 * kMillisecond;
    options->end = 2100 * kMillisecond;
  }
}

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
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: incast_table [--senders=N] [--many] [--apart-us=N] "
                 "[--hardware]\n");
    return 2;
  }
  std::printf(
      "| senders | | marks | fairness | used | queue, KiB | at the start | "
      "dropped | marked |\n");
  for (const int senders : {2, 8, 64, 256, 1000}) {
    if (arguments.senders != 0 ? senders != arguments.senders
                               : senders == 1000 && !arguments.many) {
      continue;
    }
    for (const auto opcode : {transport::SendOpcode::kRdmaWrite,
                              transport::SendOpcode::kRdmaRead}) {
      for (const bool marks : {true, false}) {
        if (arguments.hardware && opcode != transport::SendOpcode::kRdmaRead) {
          continue;
        }
        sim::IncastOptions options;
        options.senders = senders;
        options.opcode = opcode;
        options.marks = marks;
        options.hardware_target = arguments.hardware;
        if (arguments.hardware) options.message = 64 * 1024;
        options.apart = arguments.apart_us * kMicrosecond;
        SetTimes(&options);
        Print(options);
      }
    }
  }
  return 0;
}
