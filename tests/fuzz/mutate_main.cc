// Runs a libFuzzer target without libFuzzer: on every frame of the captures,
// whole and as a bare packet, then on seeded mutations of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/golden/golden_files.h"
#include "wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

// From an allocation of exactly that size, for the sanitizers.
void RunTarget(const Bytes& input) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

// Short ones, since headers are what matters.
std::vector<Bytes> Seeds() {
  std::vector<Bytes> seeds;
  for (const std::string& path : golden::KernelRxeFiles()) {
    for (const golden::CapturedFrame& captured : golden::ReadCapture(path)) {
      wire::Frame frame;
      if (captured.bytes.size() > 300 ||
          wire::DecodeFrame(captured.link_type, captured.bytes, &frame) !=
              wire::FrameKind::kUdp) {
        continue;
      }
      seeds.emplace_back(frame.udp_payload.begin(), frame.udp_payload.end());
      Bytes with_link_type = {static_cast<uint8_t>(captured.link_type)};
      with_link_type.insert(with_link_type.end(), captured.bytes.begin(),
                            captured.bytes.end());
      seeds.push_back(std::move(with_link_type));
    }
  }
  return seeds;
}

TEST(FuzzTest, SurvivesMutatedCaptures) {
  const std::vector<Bytes> seeds = Seeds();
  ASSERT_GT(seeds.size(), 100u);
  for (const Bytes& seed : seeds) RunTarget(seed);

  std::mt19937 random(1);
  for (int i = 0; i < 300'000; ++i) {
    Bytes input = seeds[random() % seeds.size()];
    for (uint32_t changes = random() % 4; changes > 0; --changes) {
      input[random() % input.size()] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) input.resize(random() % (input.size() + 8));
    if (random() % 4 == 0 && !input.empty()) {
      input[0] = static_cast<uint8_t>(random());
    }
    RunTarget(input);
  }
}

}  // namespace
