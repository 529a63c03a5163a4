// With the same seed, each packet (queue pair, opcode, PSN, iteration) that
// occurs has the same fate, whatever the load, and with one lane or four.
//
// RXE_USER_TEST_FATE_RUNS: how many runs (10), half of them with four lanes.
// With 100 of them, set --test_timeout=3600.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/observe/trace_events.h"
#include "tests/expect/installed_fixture.h"
#include "tools/trace/recording.h"
#include "wire/opcode.h"

namespace {

namespace events = rxe_user::trace;

using expect_test::Result;

// The queue pair's place in the order of creation, opcode, PSN, and iteration.
using Key = std::tuple<size_t, uint8_t, uint32_t, uint32_t>;
// The rule that hit the packet, and the delay that it drew; 0: none.
using Fate = std::pair<uint32_t, uint64_t>;
using Fates = std::map<Key, Fate>;

std::string ToString(const Key& key) {
  const auto& [qp, opcode, psn, iteration] = key;
  return "queue pair @" + std::to_string(qp) + ", " +
         wire::GetOpcodeInfo(opcode).name + ", PSN " + std::to_string(psn) +
         ", iteration " + std::to_string(iteration);
}

// Processes that compete for the cores.
class OtherPrograms {
 public:
  OtherPrograms() {
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile uint64_t count = 0;;) count = count + 1;
      }
      programs_.push_back(pid);
    }
  }
  ~OtherPrograms() {
    for (const pid_t pid : programs_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> programs_;
};

class FateTest : public expect_test::InstalledTest {
 protected:
  // The fates of the packets that a run has sent.
  Fates Run(const char* lanes, const char* seed) {
    const std::string path = root_ / "a.pcapng";
    expect_test::fs::remove(path);
    const Result r = Execute(
        {"run", "--faults", "drop tx p=5%; delay 100us~1ms tx op=data p=10%",
         "--faults-seed", seed, "--trace", path, "--", "expect_program", "load",
         "exit0"},
        [lanes] { setenv("RXE_USER_LANES", lanes, 1); });
    EXPECT_EQ(r.status, 0) << r.err;
    std::istringstream words(r.out.substr(r.out.find("pairs") + 5));
    std::map<uint32_t, size_t> places;
    for (uint32_t number; words >> number;) {
      places.emplace(number, places.size() + 1);
    }
    EXPECT_EQ(places.size(), 8u) << r.out;

    trace::Recording recording;
    EXPECT_TRUE(trace::ReadRecording(path, &recording));
    EXPECT_EQ(recording.error, "");
    std::unordered_map<uint64_t, Fate> hit;  // by the packet's event
    for (const trace::Event& event : recording.events) {
      if (const auto fault = event.As<events::FaultEvent>()) {
        hit[fault->header.cause] = {fault->rule, fault->delay};
      }
      if (const auto missed = event.As<events::MissedEvent>()) {
        ADD_FAILURE() << "the recording is not complete";
      }
    }
    Fates fates;
    std::map<std::tuple<size_t, uint8_t, uint32_t>, uint32_t> iterations;
    size_t used = 0;
    for (const trace::Packet& packet : recording.packets) {
      if (packet.direction != wire::pcapng::Direction::kSent) continue;
      const auto place = places.find(packet.own_qpn);
      if (place == places.end()) {
        ADD_FAILURE() << "a packet of queue pair " << packet.own_qpn;
        continue;
      }
      const uint32_t iteration =
          ++iterations[{place->second, packet.opcode, packet.psn}];
      const auto found = hit.find(packet.event);
      used += found != hit.end();
      fates[{place->second, packet.opcode, packet.psn, iteration}] =
          found != hit.end() ? found->second : Fate();
    }
    EXPECT_EQ(used, hit.size());
    return fates;
  }
};

TEST_F(FateTest, OneSeedIsOneFate) {
  const char* const wanted = getenv("RXE_USER_TEST_FATE_RUNS");
  const int runs = wanted != nullptr ? std::atoi(wanted) : 10;
  ASSERT_GE(runs, 2);
  Fates all;
  std::map<Key, int> occurred;
  {
    const OtherPrograms others;
    for (int run = 0; run < runs; ++run) {
      const char* const lanes = run % 2 == 0 ? "1" : "4";
      const Fates fates = Run(lanes, "7");
      for (const auto& [key, fate] : fates) {
        const auto [first, is_new] = all.emplace(key, fate);
        EXPECT_EQ(first->second, fate)
            << ToString(key) << ", run " << run << ", lanes " << lanes;
        ++occurred[key];
      }
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
  // Each run sends data, and retransmits some.
  size_t always = 0;
  size_t again = 0;
  size_t hit = 0;
  size_t compared = 0;
  for (const auto& [key, count] : occurred) {
    always += count == runs;
    again += count > 1 && std::get<3>(key) > 1;
    hit += count > 1 && all[key].first != 0;
    compared += static_cast<size_t>(count);
  }
  EXPECT_GE(always, 4u * 120);
  EXPECT_GT(again, 10u);
  EXPECT_GT(hit, 40u);
  std::printf(
      "%d runs: %zu packets compared, %zu different ones, of which %zu "
      "occurred "
      "in each run, and %zu, hit by a rule, in two or more\n",
      runs, compared, all.size(), always, hit);
  // Another seed gives other fates.
  size_t differ = 0;
  for (const auto& [key, fate] : Run("1", "8")) {
    const auto known = all.find(key);
    differ += known != all.end() && known->second != fate;
  }
  EXPECT_GT(differ, 20u);
}

}  // namespace
