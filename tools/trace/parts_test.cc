#include "tools/trace/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tools/trace/sim_recorder.h"
#include "tools/trace/sqlog.h"
#include "tools/trace/text_view.h"
#include "transport/sim/pair.h"

namespace trace {
namespace {

using Make = std::unique_ptr<PartWriter>(std::FILE*);

// The output of a view, and the parts that it was made from.
struct Shown {
  std::string text;
  size_t parts = 0;
  size_t largest = 0;  // packets and events of a file in a part

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
};

Shown Show(const std::vector<std::string>& paths, size_t most, Make* make) {
  Shown shown;
  Parts parts({}, most);
  std::string why;
  for (const std::string& path : paths) {
    EXPECT_TRUE(parts.Open(path, &why)) << why;
  }
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  const auto writer = make(out);
  while (parts.Next()) {
    ++shown.parts;
    for (const Recording* r : parts.recordings()) {
      shown.largest =
          std::max(shown.largest, r->packets.size() + r->events.size());
    }
    EXPECT_TRUE(writer->Write(parts.timeline(), parts.conversation()));
  }
  EXPECT_TRUE(writer->End());
  std::fclose(out);
  shown.text.assign(text, size);
  std::free(text);
  return shown;
}

// Both ends of a connection that loses packets, with events of work requests.
class PartsTest : public testing::TestWithParam<uint64_t> {
 protected:
  PartsTest() {
    sim::PairOptions options;
    options.seed = GetParam();
    pair_ = std::make_unique<sim::Pair>(options);
    a_ = std::make_unique<SimRecorder>(&pair_->net, pair_->a.node, "client", 1);
    b_ = std::make_unique<SimRecorder>(&pair_->net, pair_->b.node, "server", 1);
    std::mt19937 random(static_cast<uint32_t>(options.seed));
    pair_->net.filter = [random](const sim::Node&,
                                 const wire::PacketView&) mutable {
      return random() % 50 != 0;
    };
    pair_->Connect();
    for (int i = 0; i < 600; ++i) {
      rxe_user::trace::PostedEvent post = {};
      post.header.qpn = pair_->a.qp->qpn();
      post.wr_id = static_cast<uint64_t>(i);
      const uint64_t id = a_->Add(post);
      pair_->a.Write(i, 0, 0, 3500);
      pair_->Run();
      rxe_user::trace::CompletedEvent done = {};
      done.header.qpn = post.header.qpn;
      done.posted = id;
      a_->Add(done);
      if (i % 7 == 0) pair_->b.Write(i, 0, 0, 2000);
    }
    pair_->Run();
    const std::string seed = std::to_string(options.seed);
    paths_ = {a_->Write("parts_a" + seed), b_->Write("parts_b" + seed)};
  }

  std::unique_ptr<sim::Pair> pair_;
  std::unique_ptr<SimRecorder> a_;
  std::unique_ptr<SimRecorder> b_;
  std::vector<std::string> paths_;
};

TEST_P(PartsTest, TextIsThatOfTheWhole) {
  for (const auto& paths : {paths_, {paths_[0]}, {paths_[1]}}) {
    const Shown whole = Show(paths, SIZE_MAX, MakeTextWriter);
    const Shown parts = Show(paths, 400, MakeTextWriter);
    EXPECT_EQ(whole.parts, 1u);
    EXPECT_GT(parts.parts, 5u);
    EXPECT_LE(parts.largest, 400u);
    EXPECT_EQ(parts.Lines(), whole.Lines());
  }
}

TEST_P(PartsTest, QlogIsThatOfTheWhole) {
  const Shown whole = Show(paths_, SIZE_MAX, MakeSqlogWriter);
  const Shown parts = Show(paths_, 400, MakeSqlogWriter);
  EXPECT_GT(parts.parts, 8u);
  EXPECT_EQ(parts.Lines(), whole.Lines());
}

// In JSON, messages follow the part in which they begin.
TEST_P(PartsTest, JsonIsThatOfTheWhole) {
  auto whole = Show(paths_, SIZE_MAX, MakeJsonWriter).Lines();
  const Shown shown = Show(paths_, 400, MakeJsonWriter);
  auto parts = shown.Lines();
  EXPECT_GT(shown.parts, 8u);
  EXPECT_EQ(nlohmann::json::parse(whole.front())["type"], "file");
  EXPECT_EQ(parts.back(), whole.back());
  std::sort(whole.begin(), whole.end());
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PartsTest, testing::Range<uint64_t>(1, 4));

// Times to which a clock jumps do not end a part early: everything is shown,
// once.
TEST(PartsOfOddFilesTest, TimesThatAreNotInOrder) {
  sim::Pair pair;
  SimRecorder a(&pair.net, pair.a.node, "client", 1, 0);
  pair.Connect();
  std::vector<uint8_t> bytes;
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    rxe_user::trace::PostedEvent post = {};
    post.header.id = static_cast<uint64_t>(i) + 1;
    post.header.qpn = 17;
    post.header.time = kSimStart + static_cast<int64_t>(random() % 1'000'000);
    rxe_user::trace::AppendEvent(post, &bytes);
  }
  const std::string path = a.Write("parts_odd");
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const Shown whole = Show({path}, SIZE_MAX, MakeTextWriter);
  const Shown parts = Show({path}, 100, MakeTextWriter);
  EXPECT_GT(parts.parts, 20u);
  EXPECT_LE(parts.largest, 100u);
  EXPECT_EQ(parts.Lines().size(), whole.Lines().size());
}

// The first parts of two captures have no packet in common; a later part
// compares their clocks.
TEST(PartsOfOddFilesTest, ACaptureThatBeginsLater) {
  constexpr int64_t kAhead = 50'000'000;
  sim::Pair pair;
  SimRecorder a(&pair.net, pair.a.node, "client", 1);
  SimRecorder b(&pair.net, pair.b.node, "server", 2, kAhead);
  const size_t begin = b.bytes().size();
  pair.Connect();
  const auto write = [&pair] {
    for (int i = 0; i < 120; ++i) {
      pair.a.Write(i, 0, 0, 3500);
      pair.Run();
    }
  };
  write();
  const size_t unseen = b.bytes().size() - begin;
  write();
  const std::string late = b.Write("parts_late");
  std::vector<uint8_t> bytes = b.bytes();
  bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(begin),
              bytes.begin() + static_cast<ptrdiff_t>(begin + unseen));
  std::ofstream(late, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  Parts parts({}, 200);
  std::string why;
  ASSERT_TRUE(parts.Open(a.Write("parts_early"), &why)) << why;
  ASSERT_TRUE(parts.Open(late, &why)) << why;
  ASSERT_TRUE(parts.Next());
  EXPECT_EQ(parts.timeline().offsets[1], 0);
  while (parts.Next()) {
  }
  const Timeline& last = parts.timeline();
  EXPECT_LE(std::abs(last.offsets[1] - kAhead), last.uncertainties[1]);
  const Counts counts = CountPackets(last);
  EXPECT_GT(counts.packets, 20u);
  EXPECT_EQ(counts.lost, 0u);
  EXPECT_EQ(counts.strangers, 0u);
}

TEST(PartsOfOddFilesTest, AFileThatDoesNotFit) {
  sim::Pair pair;
  SimRecorder a(&pair.net, pair.a.node, "client", 1, 0);
  pair.Connect();
  for (int i = 0; i < 20; ++i) pair.a.Write(i, 0, 0, 3500);
  pair.Run();
  const std::string path = a.Write("parts_limit");
  Recording all;
  ASSERT_TRUE(ReadRecording(path, &all));
  EXPECT_EQ(all.error, "");
  EXPECT_GT(all.packets.size(), 80u);
  Recording some;
  ASSERT_TRUE(ReadRecording(path, &some, 50));
  EXPECT_EQ(some.packets.size() + some.events.size(), 50u);
  EXPECT_TRUE(some.error.starts_with("only its first 50 packets and events"))
      << some.error;
}

}  // namespace
}  // namespace trace
