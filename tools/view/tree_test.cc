#include "tools/view/tree.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace view {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TreeTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tree_test_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    base_ = name;
  }
  void TearDown() override { fs::remove_all(base_); }

  Tree Open(const std::string& key = "1") {
    absl::StatusOr<Tree> tree = Tree::Open(base_, key);
    EXPECT_TRUE(tree.ok()) << tree.status().message();
    return *std::move(tree);
  }

  std::string base_;
};

// A process that runs until it is killed.
class Process {
 public:
  Process() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Process() { End(); }
  void End() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST_F(TreeTest, BecomesWhatIsWritten) {
  Tree tree = Open();
  const fs::path root = tree.root();
  ASSERT_TRUE(tree.Write({{"sys/a/b", {false, "1\n"}},
                          {"sys/a/c", {true, "b"}},
                          {"sys/d/e", {false, "2\n"}},
                          {"dev/x", {true, "/dev/null"}}})
                  .ok());
  EXPECT_EQ(Read(root / "sys/a/c"), "1\n");
  EXPECT_EQ(fs::read_symlink(root / "dev/x"), "/dev/null");
  struct stat before, after;
  ASSERT_EQ(stat((root / "sys/d/e").c_str(), &before), 0);
  EXPECT_EQ(before.st_mode & 0777, 0444u & ~0222u);

  ASSERT_TRUE(tree.Write({{"sys/a/b", {false, "10\n"}},
                          {"sys/a/c", {false, "now a file\n"}},
                          {"sys/d/e", {false, "2\n"}}})
                  .ok());
  EXPECT_EQ(Read(root / "sys/a/b"), "10\n");
  EXPECT_EQ(Read(root / "sys/a/c"), "now a file\n");
  EXPECT_FALSE(fs::exists(fs::symlink_status(root / "dev/x")));
  ASSERT_EQ(stat((root / "sys/d/e").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "what stays is not written anew";

  ASSERT_TRUE(tree.Write({{"sys/d", {false, "a file\n"}}}).ok());
  EXPECT_FALSE(fs::exists(root / "sys/a"));
  EXPECT_EQ(Read(root / "sys/d"), "a file\n");
}

TEST_F(TreeTest, WhoHasAFileOpenReadsWhatIsNew) {
  Tree tree = Open();
  ASSERT_TRUE(tree.Write({{"sys/a", {false, "100\n"}}}).ok());
  const int fd = open((tree.root() + "/sys/a").c_str(), O_RDONLY);
  for (const std::string text : {"7\n", "10000\n", ""}) {
    ASSERT_TRUE(tree.Write({{"sys/a", {false, text}}}).ok());
    char buffer[16];
    const ssize_t got = pread(fd, buffer, sizeof(buffer), 0);
    EXPECT_EQ(std::string(buffer, static_cast<size_t>(got)), text);
    EXPECT_EQ(Read(tree.root() + "/sys/a"), text);
  }
  close(fd);
}

TEST_F(TreeTest, TakesNothingThatOthersPrepared) {
  const std::string root = Open().root();
  fs::remove_all(root);
  // A folder that others can write to, and a link.
  ASSERT_EQ(mkdir(root.c_str(), 0700), 0);
  ASSERT_EQ(chmod(root.c_str(), 0770), 0);
  const std::string second = Open().root();
  EXPECT_NE(second, root);
  fs::remove_all(second);
  ASSERT_EQ(symlink("/", second.c_str()), 0);
  const std::string third = Open().root();
  EXPECT_NE(third, root);
  EXPECT_NE(third, second);
  struct stat s;
  ASSERT_EQ(lstat(third.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode, S_IFDIR | 0700u);
  EXPECT_EQ(s.st_uid, geteuid());
  // The next Open finds the folder again.
  EXPECT_EQ(Open().root(), third);
}

// With 64 folders of another user there used to be no view.
TEST_F(TreeTest, UsesARandomNameIfOthersHaveTakenTheFirstOnes) {
  const std::string first = Open().root();
  for (int i = 0; i < 100; ++i) {
    const std::string taken = i == 0 ? first : first + "-" + std::to_string(i);
    fs::remove_all(taken);
    ASSERT_EQ(symlink("/", taken.c_str()), 0);
  }
  const std::string root = Open().root();
  ASSERT_FALSE(fs::is_symlink(root));
  EXPECT_TRUE(root.starts_with(first + "-")) << root;
  EXPECT_TRUE(fs::is_directory(root));
  // The next call finds the folder.
  EXPECT_EQ(Open().root(), root);
}

TEST_F(TreeTest, NothingThatIsAnotherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string root = Open().root();
  ASSERT_EQ(chown(root.c_str(), 12345, 12345), 0);
  EXPECT_NE(Open().root(), root);
}

TEST_F(TreeTest, TheLastOneRemovesIt) {
  Process one, two;
  const std::string root = Open().root();
  ASSERT_TRUE(Open().Join(one.pid()).ok());
  ASSERT_TRUE(Open().Join(two.pid()).ok());
  Open().Leave(one.pid());
  EXPECT_TRUE(fs::exists(root));
  Open().Leave(two.pid());
  EXPECT_FALSE(fs::exists(root));
  EXPECT_TRUE(absl::IsNotFound(Open().Join(0)));
}

TEST_F(TreeTest, TheDeadDoNotCount) {
  Process one, two;
  const std::string root = Open().root();
  ASSERT_TRUE(Open().Join(one.pid()).ok());
  ASSERT_TRUE(Open().Join(two.pid()).ok());
  one.End();
  Open().Leave(two.pid());
  EXPECT_FALSE(fs::exists(root));
}

TEST_F(TreeTest, RemovesOnlyWhatNobodyUses) {
  Process living, dead;
  Tree used = Open("used");
  ASSERT_TRUE(used.Join(living.pid()).ok());
  const std::string used_root = used.root();
  { const Tree release = std::move(used); }
  Tree unused = Open("unused");
  ASSERT_TRUE(unused.Join(dead.pid()).ok());
  const std::string unused_root = unused.root();
  dead.End();
  // A process holds the tree's lock, so the tree is in use.
  Tree::RemoveUnused(base_);
  EXPECT_TRUE(fs::exists(unused_root));
  { const Tree release = std::move(unused); }
  Tree::RemoveUnused(base_);
  EXPECT_FALSE(fs::exists(unused_root));
  EXPECT_TRUE(fs::exists(used_root));
}

TEST_F(TreeTest, BaseIsThisUsersAndPlain) {
  const std::string other = *BaseFolder(nullptr);
  EXPECT_TRUE(other == "/dev/shm" || other == "/tmp") << other;
  EXPECT_EQ(*BaseFolder("relative"), other);
  EXPECT_EQ(*BaseFolder("/nowhere/at/all"), other);
  EXPECT_EQ(*BaseFolder(base_.c_str()), base_);
  const std::string pattern = base_ + "/a*";
  ASSERT_EQ(mkdir(pattern.c_str(), 0700), 0);
  EXPECT_EQ(*BaseFolder(pattern.c_str()), other);
  ASSERT_EQ(chmod(base_.c_str(), 0755), 0);
  EXPECT_EQ(*BaseFolder(base_.c_str()), other);
}

TEST_F(TreeTest, KeysTellSettingsApart) {
  EXPECT_EQ(TreeKey(nullptr, nullptr), TreeKey("", ""));
  EXPECT_EQ(TreeKey("a=lo", nullptr), TreeKey("a=lo", nullptr));
  EXPECT_NE(TreeKey("a=lo", nullptr), TreeKey("b=lo", nullptr));
  EXPECT_NE(TreeKey("a=lo", nullptr), TreeKey("a=lo", "1"));
}

}  // namespace
}  // namespace view
