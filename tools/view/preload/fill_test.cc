#include "tools/view/preload/fill.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tools/view/sysfs_files.h"
#include "tools/view/tree.h"

namespace view {
namespace {

namespace fs = std::filesystem;

constexpr int kDevices = 1000;

std::string Read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class FillTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/fill_test_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    base_ = name;
    for (int i = 0; i < kDevices; ++i) {
      const std::string device = "rxeu" + std::to_string(i);
      files_["sys/class/infiniband/" + device] = {
          true, "../../devices/virtual/infiniband/" + device};
      const std::string folder = "sys/devices/virtual/infiniband/" + device;
      files_[folder + "/node_type"] = {false, "1: CA\n"};
      files_[folder + "/fw-ver"] = {false, "x\n"};  // '-' is before '/'
      files_[folder + "/ports/1/state"] = {false, "4: ACTIVE\n"};
      files_[folder + "/ports/1/counters"] = {false, "none/counters", true};
      files_[folder + "/device/infiniband/" + device] = {true,
                                                         "../../../" + device};
    }
    files_["none/counters/sent"] = {false, "0\n"};
    files_["none/counters/received"] = {false, "0\n"};
    files_["dev/infiniband/uverbs0"] = {true, "/dev/full"};
    WriteIndex();
  }
  void TearDown() override { fs::remove_all(base_); }

  void WriteIndex() {
    absl::StatusOr<Tree> tree = Tree::Open(base_, "1");
    ASSERT_TRUE(tree.ok());
    root_ = tree->root();
    ASSERT_TRUE(tree->WriteIndex(files_).ok());
  }
  void WriteCounters(const Files& files) {
    ASSERT_TRUE(Tree::Open(base_, "1")->WriteCounters(files).ok());
  }

  void Look(const std::string& path, view::Look look) {
    Fill(root_.c_str(), path.c_str(), look);
  }
  // The paths that were created, except the index.
  std::set<std::string> Made() const {
    std::set<std::string> made;
    for (const auto& item : fs::recursive_directory_iterator(root_)) {
      const std::string path = item.path().lexically_relative(root_);
      if (path[0] != '.') made.insert(path);
    }
    return made;
  }
  fs::path At(const std::string& path) const { return root_ + path; }

  std::string base_, root_;
  Files files_;
};

const std::string kClass = "/sys/class/infiniband";

TEST_F(FillTest, AFileCostsThatFile) {
  Look(kClass + "/rxeu500/ports/1/state", Look::kOpen);
  EXPECT_EQ(Read(At(kClass + "/rxeu500/ports/1/state")), "4: ACTIVE\n");
  const std::string device = "sys/devices/virtual/infiniband/rxeu500";
  EXPECT_EQ(Made(), (std::set<std::string>{
                        "sys", "sys/class", "sys/class/infiniband",
                        "sys/class/infiniband/rxeu500", "sys/devices",
                        "sys/devices/virtual", "sys/devices/virtual/infiniband",
                        device, device + "/ports", device + "/ports/1",
                        device + "/ports/1/state"}));
  struct stat s;
  ASSERT_EQ(stat(At(kClass + "/rxeu500/ports/1/state").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0444u);
}

TEST_F(FillTest, AListingCostsItsNames) {
  Look(kClass, Look::kOpen);
  EXPECT_EQ(Made().size(), 3u + kDevices);
  Look(kClass + "/rxeu3", Look::kOpen);
  // Its parent folders and its contents.
  EXPECT_EQ(Made().size(), 3u + kDevices + 4 + 4);
  EXPECT_TRUE(fs::is_directory(At(kClass + "/rxeu3/ports")));
  EXPECT_EQ(Read(At(kClass + "/rxeu3/fw-ver")), "x\n");
}

TEST_F(FillTest, ANameCostsThatName) {
  Look(kClass, Look::kName);
  EXPECT_EQ(Made(), (std::set<std::string>{"sys", "sys/class",
                                           "sys/class/infiniband"}));
  Look("/sys/class/infiniband/nobody/node_type", Look::kName);
  EXPECT_EQ(Made().size(), 3u);
}

TEST_F(FillTest, FilesThatAreTheSame) {
  const std::string folder = kClass + "/rxeu7/ports/1/counters";
  Look(folder, Look::kOpen);
  EXPECT_EQ(Read(At(folder + "/sent")), "0\n");
  EXPECT_EQ(Read(At(folder + "/received")), "0\n");
  EXPECT_FALSE(fs::exists(At("/none")));

  const int held = open(At(folder + "/sent").c_str(), O_RDONLY);
  WriteCounters({{"sys/devices/virtual/infiniband/rxeu7/ports/1/counters/sent",
                  {false, "12345\n"}}});
  Look(folder + "/sent", Look::kOpen);
  EXPECT_EQ(Read(At(folder + "/sent")), "12345\n");
  char text[16];
  EXPECT_EQ(pread(held, text, sizeof(text), 0), 6)
      << "who has it open reads what is new";
  close(held);
  WriteCounters({});
  Look(folder + "/sent", Look::kOpen);
  EXPECT_EQ(Read(At(folder + "/sent")), "0\n");
  Look(kClass + "/rxeu8/ports/1/counters/sent", Look::kOpen);
  EXPECT_EQ(Read(At(kClass + "/rxeu8/ports/1/counters/sent")), "0\n");
}

TEST_F(FillTest, PatternsCostWhatTheyMatch) {
  Look(kClass + "/rxeu1?/node_[gt]ype", Look::kPattern);
  size_t files = 0;
  for (const std::string& path : Made()) files += path.ends_with("/node_type");
  EXPECT_EQ(files, 10u);
  EXPECT_FALSE(fs::exists(At(kClass + "/rxeu20")));
}

TEST_F(FillTest, WalksFindAllBelow) {
  Look(kClass + "/rxeu5/", Look::kBelow);
  const fs::path device = At("/sys/devices/virtual/infiniband/rxeu5");
  EXPECT_TRUE(fs::exists(device / "ports/1/counters/sent"));
  EXPECT_TRUE(fs::is_symlink(device / "device/infiniband/rxeu5"));
  EXPECT_FALSE(fs::exists(At(kClass + "/rxeu6")));
  Look(kClass, Look::kAll);
  EXPECT_TRUE(fs::exists(At(kClass + "/rxeu6/ports/1/counters/sent")));
}

TEST_F(FillTest, WhatIsGoneIsRemoved) {
  Look(kClass, Look::kOpen);
  Look(kClass + "/rxeu1/ports/1/counters", Look::kOpen);
  Look(kClass + "/rxeu2/ports/1/counters", Look::kOpen);
  std::erase_if(files_, [](const auto& item) {
    return item.first.find("rxeu1/") != std::string::npos ||
           item.first.ends_with("rxeu1");
  });
  WriteIndex();
  EXPECT_FALSE(fs::exists(fs::symlink_status(At(kClass + "/rxeu1"))));
  EXPECT_FALSE(fs::exists(At("/sys/devices/virtual/infiniband/rxeu1")));
  EXPECT_TRUE(fs::exists(At(kClass + "/rxeu2/ports/1/counters/sent")));
}

TEST_F(FillTest, WhatIsNoIndexIsLeftAlone) {
  ASSERT_TRUE(Tree::Open(base_, "1")->Put(".index", "something else").ok());
  Look(kClass + "/rxeu1/node_type", Look::kOpen);
  EXPECT_EQ(Made(), std::set<std::string>());
}

}  // namespace
}  // namespace view
