#include "rxe_user/memory/persistence.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Maps pages of `fd`, or anonymous pages.
uint8_t* Map(int fd, size_t bytes, int flags) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

// Kilobytes of the mapping at `at` that have not been written back (proc(5),
// smaps).
int DirtyKilobytes(const uint8_t* at) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  int dirty = 0;
  while (std::getline(smaps, line)) {
    uintptr_t low;
    int kilobytes;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-", &low) == 1 &&
        line.find('-') < line.find(' ')) {
      ours = low == reinterpret_cast<uintptr_t>(at);
    } else if (ours && (std::sscanf(line.c_str(), "Shared_Dirty: %d",
                                    &kilobytes) == 1 ||
                        std::sscanf(line.c_str(), "Private_Dirty: %d",
                                    &kilobytes) == 1)) {
      dirty += kilobytes;
    }
  }
  return dirty;
}

// A file on the disk on which tests write.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/persistence_test_file";
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT_GE(fd_, 0);
    ASSERT_EQ(ftruncate(fd_, 4 * kPage), 0);
    struct statfs system;
    ASSERT_EQ(fstatfs(fd_, &system), 0);
    if (system.f_type == TMPFS_MAGIC) {
      GTEST_SKIP() << "the tests' own files are in memory";
    }
    at_ = Map(fd_, 4 * kPage, MAP_SHARED);
    ASSERT_NE(at_, nullptr);
  }
  void TearDown() override {
    if (at_ != nullptr) munmap(at_, 4 * kPage);
    if (fd_ >= 0) close(fd_);
    unlink(path_.c_str());
  }

  std::string path_;
  int fd_ = -1;
  uint8_t* at_ = nullptr;
};

TEST_F(FileTest, SharedMappingsOfFilesArePersistent) {
  EXPECT_EQ(CheckPersistent(at_, 4 * kPage), 0);
  EXPECT_EQ(CheckPersistent(at_ + 100, 1), 0);
  EXPECT_EQ(CheckPersistent(at_, 4 * kPage + 1), EINVAL);
  uint8_t* copy = Map(fd_, kPage, MAP_PRIVATE);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(CheckPersistent(copy, kPage), EINVAL);
  munmap(copy, kPage);
}

TEST_F(FileTest, PagesReachTheMedium) {
  at_[kPage + 5] = 1;
  at_[2 * kPage] = 2;
  ASSERT_EQ(DirtyKilobytes(at_), 8);
  EXPECT_TRUE(WriteToMedium(at_ + kPage + 5, 1));
  EXPECT_EQ(DirtyKilobytes(at_), 4);
  EXPECT_TRUE(WriteToMedium(at_, 0));
  EXPECT_TRUE(WriteToMedium(at_ + 2 * kPage - 1, 2));
  EXPECT_EQ(DirtyKilobytes(at_), 0);
  ASSERT_EQ(munmap(at_ + 3 * kPage, kPage), 0);
  EXPECT_FALSE(WriteToMedium(at_ + 3 * kPage - 1, 2));
}

TEST(PersistenceTest, MemoryWithoutAMediumIsNot) {
  uint8_t* anonymous = Map(-1, kPage, MAP_PRIVATE | MAP_ANONYMOUS);
  uint8_t* shared = Map(-1, kPage, MAP_SHARED | MAP_ANONYMOUS);
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, kPage), 0);
  uint8_t* of_memory = Map(fd, kPage, MAP_SHARED);
  for (uint8_t* at : {anonymous, shared, of_memory}) {
    ASSERT_NE(at, nullptr);
    EXPECT_EQ(CheckPersistent(at, kPage), EINVAL);
    munmap(at, kPage);
  }
  close(fd);
}

}  // namespace
}  // namespace rxe_user
