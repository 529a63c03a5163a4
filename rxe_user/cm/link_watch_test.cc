#include "rxe_user/cm/link_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

using Change = LinkWatch::Change;

// A message as the kernel sends it; without an address if `last` is 0.
std::vector<uint8_t> Message(uint16_t type, int interface, uint8_t last,
                             uint8_t family = AF_UNSPEC) {
  std::vector<uint8_t> bytes(NLMSG_SPACE(sizeof(ifinfomsg)) + RTA_SPACE(6));
  auto* header = reinterpret_cast<nlmsghdr*>(bytes.data());
  header->nlmsg_type = type;
  header->nlmsg_len = NLMSG_LENGTH(sizeof(ifinfomsg));
  auto* link = static_cast<ifinfomsg*>(NLMSG_DATA(header));
  link->ifi_family = family;
  link->ifi_index = interface;
  if (last != 0) {
    auto* address = IFLA_RTA(link);
    address->rta_type = IFLA_ADDRESS;
    address->rta_len = RTA_LENGTH(6);
    const uint8_t value[6] = {2, 0, 0, 0, 0, last};
    std::memcpy(RTA_DATA(address), value, sizeof(value));
    header->nlmsg_len += RTA_SPACE(6);
  }
  bytes.resize(NLMSG_ALIGN(header->nlmsg_len));
  return bytes;
}

std::vector<Change> Read(LinkWatch& watch, const std::vector<uint8_t>& bytes) {
  std::vector<Change> changes;
  watch.Read(bytes, &changes);
  return changes;
}

TEST(LinkWatchTest, ANewAddressIsReported) {
  LinkWatch watch;
  EXPECT_TRUE(Read(watch, Message(RTM_NEWLINK, 7, 1)).empty());
  EXPECT_TRUE(Read(watch, Message(RTM_NEWLINK, 7, 1)).empty());
  EXPECT_TRUE(Read(watch, Message(RTM_NEWLINK, 7, 0)).empty());
  EXPECT_TRUE(Read(watch, Message(RTM_NEWLINK, 8, 2)).empty());
  EXPECT_EQ(Read(watch, Message(RTM_NEWLINK, 7, 2)),
            (std::vector<Change>{{7, InterfaceChange::kAddress}}));
  EXPECT_TRUE(Read(watch, Message(RTM_NEWLINK, 7, 2)).empty());
}

TEST(LinkWatchTest, ALostInterfaceIsReportedButNotABridgePort) {
  LinkWatch watch;
  EXPECT_TRUE(Read(watch, Message(RTM_DELLINK, 7, 1, AF_BRIDGE)).empty());
  std::vector<uint8_t> two = Message(RTM_DELLINK, 7, 1);
  const std::vector<uint8_t> other = Message(RTM_DELLINK, 9, 0);
  two.insert(two.end(), other.begin(), other.end());
  EXPECT_EQ(Read(watch, two),
            (std::vector<Change>{{7, InterfaceChange::kGone},
                                 {9, InterfaceChange::kGone}}));
}

TEST(LinkWatchTest, GarbageIsIgnored) {
  LinkWatch watch;
  EXPECT_TRUE(Read(watch, {}).empty());
  std::vector<uint8_t> cut = Message(RTM_DELLINK, 7, 1);
  cut.resize(sizeof(nlmsghdr) + 4);
  EXPECT_TRUE(Read(watch, cut).empty());
  EXPECT_TRUE(Read(watch, Message(RTM_NEWADDR, 7, 1)).empty());
}

}  // namespace
}  // namespace rxe_user
