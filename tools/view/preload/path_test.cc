#include "tools/view/preload/path.h"

#include "gtest/gtest.h"

namespace view {
namespace {

TEST(PathTest, FoldersAndWhatIsBelow) {
  for (const char* path :
       {"/sys/class/infiniband", "/sys/class/infiniband/",
        "/sys/class/infiniband/rxeu0/ports/1/gids/0",
        "/sys/class/infiniband_verbs", "/sys/class/infiniband_verbs/uverbs0",
        "/sys//class///infiniband//rxeu0", "//sys/class/infiniband",
        "/sys/devices/virtual/infiniband/rxeu0",
        "/sys/class/net/eth0/device/infiniband",
        "/sys//class/net//eth0/device/infiniband_verbs/uverbs0",
        "/sys/devices/virtual/infiniband_verbs", "/dev/infiniband",
        "/dev/infiniband/uverbs0"}) {
    EXPECT_TRUE(IsViewed(path)) << path;
  }
}

TEST(PathTest, NothingElse) {
  for (const char* path : {"",
                           "/",
                           "sys/class/infiniband",
                           "/sys",
                           "/sys/class",
                           "/sys/class/",
                           "/sys/class/infinibandx",
                           "/sys/class/infiniband_verbsx",
                           "/sys/class/infiniband_mad",
                           "/sys/class/infini",
                           "/sysx/class",
                           "/sys/class/net/infiniband",
                           "/sys/class/net/eth0/device",
                           "/sys/class/net/device/infiniband",
                           "/sys/class/net/eth0/infiniband",
                           "/sys/devices/infiniband",
                           "/sys/devices/virtual/net",
                           "/dev",
                           "/dev/null",
                           "/dev/infiniband0",
                           "/devices/infiniband",
                           "/tmp/sys/class/infiniband"}) {
    EXPECT_FALSE(IsViewed(path)) << path;
  }
  EXPECT_FALSE(IsViewed(nullptr));
}

TEST(PathTest, TellsWhatCounts) {
  EXPECT_TRUE(IsCounter("/sys/class/infiniband/a/ports/1/counters/x"));
  EXPECT_TRUE(IsCounter("/sys/class/infiniband/a/ports/1/hw_counters/x"));
  EXPECT_FALSE(IsCounter("/sys/class/infiniband/a/ports/1/hw_counters/"));
  EXPECT_FALSE(IsCounter("/sys/class/infiniband/a/ports/1/hw_counters"));
  EXPECT_FALSE(IsCounter("/sys/class/infiniband/a/ports/1/state"));
}

TEST(PathTest, TellsSysFromDev) {
  EXPECT_TRUE(IsInSys("/sys/class/infiniband"));
  EXPECT_TRUE(IsInSys("//sys//class/infiniband/x"));
  EXPECT_FALSE(IsInSys("/dev/infiniband/uverbs0"));
}

}  // namespace
}  // namespace view
