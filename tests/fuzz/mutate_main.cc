// Runs a libFuzzer target without libFuzzer: on every seed, then on mutations
// from a fixed random seed.
//
//   NAME_test --inputs=N CORPUS-FILE...

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using fuzz::Bytes;

int inputs = 0;
std::vector<std::string> corpus;

// Copies to an allocation of exactly that size, for the sanitizers.
void RunTarget(const Bytes& input) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

std::vector<Bytes> Seeds() {
  std::vector<Bytes> seeds = fuzz::MadeSeeds();
  for (const std::string& path : corpus) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    seeds.emplace_back(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
  }
  return seeds;
}

TEST(FuzzTest, SurvivesMutatedSeeds) {
  const std::vector<Bytes> seeds = Seeds();
  ASSERT_FALSE(seeds.empty());
  for (const Bytes& seed : seeds) RunTarget(seed);

  std::mt19937 random(1);
  for (int i = 0; i < inputs; ++i) {
    Bytes input = seeds[random() % seeds.size()];
    for (uint32_t changes = random() % 4; changes > 0 && !input.empty();
         --changes) {
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

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kInputs = "--inputs=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kInputs)) {
      std::from_chars(argument.data() + kInputs.size(),
                      argument.data() + argument.size(), inputs);
    } else {
      corpus.emplace_back(argument);
    }
  }
  return RUN_ALL_TESTS();
}
