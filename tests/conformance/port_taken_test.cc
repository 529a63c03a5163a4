// Another program holds UDP port 4791 of one address or of all, in the network
// namespace of the test.
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

const ibv_gid kNoGid = {};

int HoldIpv4() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_port = htons(4791);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof(a)), 0);
  return fd;
}

int HoldIpv6() {
  const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 a = {};
  a.sin6_family = AF_INET6;
  a.sin6_port = htons(4791);
  a.sin6_addr = in6addr_loopback;
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof(a)), 0);
  return fd;
}

class PortTakenTest : public PairTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0) {
      GTEST_SKIP() << "needs root";
    }
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request = {};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    ASSERT_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
  }

  // Lists the devices, and stores the messages on stderr.
  int List() {
    int count = -1;
    testing::internal::CaptureStderr();
    ibv_device** list = ibv_get_device_list(&count);
    said_ = testing::internal::GetCapturedStderr();
    EXPECT_NE(list, nullptr);
    if (context_ == nullptr && count > 0) context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return count;
  }
  bool Gid(int index, ibv_gid* gid) {
    return ibv_query_gid(context_, 1, index, gid) == 0;
  }

  std::string said_;
};

TEST_F(PortTakenTest, TheOtherAddressIsLeft) {
  const int foreign = HoldIpv4();
  ASSERT_EQ(List(), 1);
  EXPECT_EQ(std::count(said_.begin(), said_.end(), '\n'), 1) << said_;
  for (const std::string& part :
       {std::string("4791 of 127.0.0.1 is taken"),
        "process " + std::to_string(getpid()), std::string("stop it")}) {
    EXPECT_NE(said_.find(part), std::string::npos) << said_;
  }
  ibv_gid gid;
  ASSERT_TRUE(Gid(0, &gid));
  EXPECT_EQ(std::memcmp(&gid, &kNoGid, sizeof(gid)), 0);
  ASSERT_TRUE(Gid(1, &gid));
  EXPECT_EQ(std::memcmp(gid.raw, &in6addr_loopback, sizeof(gid)), 0);
  ibv_gid_entry entries[4];
  EXPECT_EQ(ibv_query_gid_table(context_, entries, 4, 0), 1);

  // The device works, and a port held by our own broker does not count as
  // taken.
  gid_ = gid;
  gid_index_ = 1;
  pd_ = ibv_alloc_pd(context_);
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(List(), 1);
  EXPECT_EQ(said_, "");
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* again = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(again, nullptr);
  ASSERT_EQ(ibv_query_gid(again, 1, 1, &gid), 0);
  EXPECT_EQ(std::memcmp(gid.raw, &in6addr_loopback, sizeof(gid)), 0);
  EXPECT_EQ(ibv_close_device(again), 0);
  close(foreign);
}

TEST_F(PortTakenTest, NoAddressNoDevice) {
  const int fds[] = {HoldIpv4(), HoldIpv6()};
  EXPECT_EQ(List(), 0);
  EXPECT_EQ(std::count(said_.begin(), said_.end(), '\n'), 1) << said_;
  EXPECT_NE(said_.find("4791 of 127.0.0.1, ::1 is taken by process"),
            std::string::npos)
      << said_;
  EXPECT_EQ(List(), 0);
  EXPECT_EQ(said_, "");  // reported before
  for (const int fd : fds) close(fd);
  EXPECT_EQ(List(), 1);
}

}  // namespace
}  // namespace conformance
