// Measures how long two processors take to pass a word to each other and back.
// Virtual machines move their processors between host cores that share a cache
// and cores that do not. Passing packets then takes twice as long, and figures
// from before and after are not comparable.
#include <pthread.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/bench/reference.h"

namespace {

constexpr int kRoundTrips = 2000;  // about a millisecond
constexpr int kTries = 5;

void RunOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) {
    reference::Die("sched_setaffinity");
  }
}

void AwaitValue(const std::atomic<int>& word, int value) {
  while (word.load(std::memory_order_acquire) != value) {
  }
}

// Nanoseconds per round trip.
double RoundTrip(int here, int there) {
  std::atomic<int> word = 0;
  std::thread answers([&] {
    RunOn(there);
    for (int i = 0; i <= kRoundTrips; ++i) {
      AwaitValue(word, 2 * i + 1);
      word.store(2 * i + 2, std::memory_order_release);
    }
  });
  RunOn(here);
  const auto ask = [&](int i) {
    word.store(2 * i + 1, std::memory_order_release);
    AwaitValue(word, 2 * i + 2);
  };
  ask(0);  // both threads have started
  const double begin = reference::Now();
  for (int i = 1; i <= kRoundTrips; ++i) ask(i);
  const double took = reference::Now() - begin;
  answers.join();
  return took / kRoundTrips * 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "How long two processors take to hand a word to each other and back, the "
      "first two that this program may use: {\"round_trip_ns\": NUMBER}, or "
      "null where it may use one only");
  bool json = true;
  app.add_flag("--json", json, "what it prints in any case");
  CLI11_PARSE(app, argc, argv);

  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    reference::Die("sched_getaffinity");
  }
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE && processors.size() < 2; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  nlohmann::json out = {{"round_trip_ns", nullptr}};
  if (processors.size() == 2) {
    double least = RoundTrip(processors[0], processors[1]);
    for (int i = 1; i < kTries; ++i) {
      least = std::min(least, RoundTrip(processors[0], processors[1]));
    }
    out["round_trip_ns"] = least;
  }
  std::printf("%s\n", out.dump().c_str());
}
