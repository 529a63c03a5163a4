// verbs_pair: two processes perform every operation of a connection with each
// other, compare the received data, and provoke errors. One binary for any
// device: it only uses libibverbs and librdmacm. tests/kernel_peer/run runs one
// end on our device and the other on the kernel's rxe in a guest.
#include <getopt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernel_peer/verbs_pair/rig.h"
#include "tests/kernel_peer/verbs_pair/scenarios.h"
#include "tests/kernel_peer/verbs_pair/wire_up.h"

namespace verbs_pair {
namespace {

constexpr char kUsage[] =
    "usage: verbs_pair -d DEVICE -g GID_INDEX -p PORT [-r] [-k] [-K]\n"
    "                  [-o SCENARIO]... [SERVER]\n"
    "\n"
    "Without SERVER it waits for its peer. -r: this end makes the requests.\n"
    "-k: the device here is the kernel's rxe, -K: the peer's is. -o: only "
    "this\n"
    "scenario; both ends must be given the same. -l lists those\n"
    "that are run without.\n"
    "Prints `ok|failed|skipped NAME[: why]` for each; exit status 1 if one\n"
    "failed.\n";

std::vector<Scenario> AllScenarios() {
  std::vector<Scenario> all;
  for (auto part : {DataScenarios(), PlacementScenarios(), WindowScenarios(),
                    ConnectionScenarios(), ErrorScenarios(),
                    UnreliableScenarios(), CmScenarios()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

ibv_context* OpenDevice(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) {
      context = ibv_open_device(list[i]);
    }
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (context == nullptr) Fail("cannot open device %s", name);
  return context;
}

// The result of a scenario at this end: "ok", "failed: ...", "skipped: ...".
std::string RunScenario(const Scenario& scenario, const Rig& rig) {
  try {
    scenario.run(rig);
    return "ok";
  } catch (const Failure& failure) {
    return "failed: " + failure.what;
  } catch (const NotSupported& reason) {
    return "skipped: " + reason.what;
  }
}

bool StartsWith(const std::string& text, const char* start) {
  return text.rfind(start, 0) == 0;
}

// The combined result. If one end skips, the other one fails.
std::string Together(const std::string& mine, const std::string& theirs) {
  if (mine == "ok" && theirs == "ok") return "ok";
  if (StartsWith(mine, "skipped")) return mine;
  if (StartsWith(theirs, "skipped")) return theirs;
  return "failed: here " + mine + "; at the peer " + theirs;
}

int Run(int argc, char** argv) {
  const char* device = nullptr;
  int gid_index = -1;
  long port = 0;
  Rig rig;
  std::vector<std::string> only;
  for (int option; (option = getopt(argc, argv, "d:g:p:rkKo:lh")) != -1;) {
    switch (option) {
      case 'd':
        device = optarg;
        break;
      case 'g':
        gid_index = std::atoi(optarg);
        break;
      case 'p':
        port = std::atol(optarg);
        break;
      case 'r':
        rig.requester = true;
        break;
      case 'k':
        rig.rxe = true;
        break;
      case 'K':
        rig.peer_rxe = true;
        break;
      case 'o':
        only.push_back(optarg);
        break;
      case 'l':
        for (const Scenario& scenario : AllScenarios()) {
          if (!scenario.on_request) std::puts(scenario.name);
        }
        return 0;
      case 'h':
        std::fputs(kUsage, stdout);
        return 0;
      default:
        std::fputs(kUsage, stderr);
        return 2;
    }
  }
  if (device == nullptr || gid_index < 0 || port < 1 || port > 65535 ||
      argc - optind > 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }

  std::vector<Scenario> chosen;
  for (const Scenario& scenario : AllScenarios()) {
    bool wanted = only.empty() && !scenario.on_request;
    for (const std::string& name : only) wanted |= name == scenario.name;
    if (wanted) chosen.push_back(scenario);
  }
  if (chosen.empty()) Fail("no such scenario");
  rig.context = OpenDevice(device);
  rig.gid_index = gid_index;
  WireUp wire_up(argv[optind], static_cast<uint16_t>(port));
  rig.wire_up = &wire_up;

  bool failed = false;
  for (const Scenario& scenario : chosen) {
    const int64_t start = NowMs();
    const std::string mine = RunScenario(scenario, rig);
    const std::string verdict = Together(mine, wire_up.EndScenario(mine));
    const size_t word = verdict.find(':');
    std::printf("%s %s %lld ms%s\n", verdict.substr(0, word).c_str(),
                scenario.name, static_cast<long long>(NowMs() - start),
                word == std::string::npos ? "" : verdict.substr(word).c_str());
    std::fflush(stdout);
    failed |= StartsWith(verdict, "failed");
  }
  ibv_close_device(rig.context);
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace verbs_pair

int main(int argc, char** argv) {
  try {
    return verbs_pair::Run(argc, argv);
  } catch (const verbs_pair::Failure& failure) {
    std::fprintf(stderr, "verbs_pair: %s\n", failure.what.c_str());
    return 1;
  }
}
