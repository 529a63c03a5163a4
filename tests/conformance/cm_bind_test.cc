// Addresses and ports of ids: rdma_bind_addr(3), and the options of
// rdma_set_option(3) by which ids share a port.
#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

class BindTest : public CmTest {};

TEST_F(BindTest, BindToAnAddressGivesItsDevice) {
  for (const int family : {AF_INET, AF_INET6}) {
    rdma_cm_id* id = NewId();
    ASSERT_EQ(rdma_bind_addr(id, CmAddress::Loopback(family).get()), 0)
        << std::strerror(errno);
    ASSERT_NE(id->verbs, nullptr);
    EXPECT_EQ(id->port_num, 1);
    // The default domain exists before the queue pair.
    ASSERT_NE(id->pd, nullptr);
    EXPECT_EQ(id->pd->context, id->verbs);
    EXPECT_NE(rdma_get_src_port(id), 0);
    EXPECT_EQ(rdma_get_local_addr(id)->sa_family, family);
    ibv_gid gid;
    bool found = false;
    for (int i = 0; ibv_query_gid(id->verbs, 1, i, &gid) == 0; ++i) {
      found |= std::memcmp(gid.raw, id->route.addr.addr.ibaddr.sgid.raw,
                           sizeof(gid.raw)) == 0;
    }
    EXPECT_TRUE(found);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST_F(BindTest, BindToAllAddressesGivesNoDevice) {
  rdma_cm_id* id = NewId();
  ASSERT_EQ(rdma_bind_addr(id, CmAddress::Any(AF_INET6).get()), 0)
      << std::strerror(errno);
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_NE(rdma_get_src_port(id), 0);
  EXPECT_EQ(rdma_get_dst_port(id), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(BindTest, BindToAnotherHostsAddressFails) {
  rdma_cm_id* id = NewId();
  EXPECT_EQ(rdma_bind_addr(id, CmAddress::Of("192.0.2.1").get()), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  sockaddr none = {};
  EXPECT_EQ(rdma_bind_addr(id, &none), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_bind_addr(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(BindTest, APortIsTakenInItsPortSpace) {
  CmAddress address = CmAddress::Loopback(AF_INET, 7471);
  CmAddress all = CmAddress::Any(AF_INET, 7471);
  rdma_cm_id* first = NewId();
  rdma_cm_id* second = NewId();
  rdma_cm_id* datagrams = NewId(RDMA_PS_UDP);
  ASSERT_EQ(rdma_bind_addr(first, address.get()), 0) << std::strerror(errno);
  EXPECT_EQ(ntohs(rdma_get_src_port(first)), 7471);
  EXPECT_EQ(rdma_bind_addr(second, address.get()), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(rdma_bind_addr(second, all.get()), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(rdma_bind_addr(datagrams, address.get()), 0);
  EXPECT_EQ(rdma_destroy_id(first), 0);
  EXPECT_EQ(rdma_bind_addr(second, address.get()), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_destroy_id(second), 0);
  EXPECT_EQ(rdma_destroy_id(datagrams), 0);
}

TEST_F(BindTest, APortMayBeShared) {
  CmAddress address = CmAddress::Loopback(AF_INET, 7472);
  rdma_cm_id* ids[2];
  int yes = 1;
  for (rdma_cm_id*& id : ids) {
    id = NewId();
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
                              &yes, sizeof(yes)),
              0);
    EXPECT_EQ(rdma_bind_addr(id, address.get()), 0) << std::strerror(errno);
  }
  EXPECT_EQ(rdma_listen(ids[0], 1), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_listen(ids[1], 1), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  for (rdma_cm_id* id : ids) EXPECT_EQ(rdma_destroy_id(id), 0);
}

// A listener does not share its port, as in the kernel's rdma_cm.
TEST_F(BindTest, AListeningPortIsNotShared) {
  constexpr uint16_t kPort = 7475;
  int yes = 1;
  const auto new_id = [&] {
    rdma_cm_id* const id = NewId();
    EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
                              &yes, sizeof(yes)),
              0);
    return id;
  };
  rdma_cm_id* listener = new_id();
  rdma_cm_id* second = new_id();
  ASSERT_EQ(rdma_bind_addr(listener, CmAddress::Loopback(AF_INET, kPort).get()),
            0);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);
  for (CmAddress address :
       {CmAddress::Loopback(AF_INET, kPort), CmAddress::Any(AF_INET, kPort)}) {
    EXPECT_EQ(rdma_bind_addr(second, address.get()), -1);
    EXPECT_EQ(errno, EADDRINUSE);
  }
  EXPECT_EQ(rdma_destroy_id(listener), 0);
  EXPECT_EQ(rdma_bind_addr(second, CmAddress::Loopback(AF_INET, kPort).get()),
            0)
      << std::strerror(errno);
  EXPECT_EQ(rdma_destroy_id(second), 0);
}

// The option may be set on a bound id until it listens.
TEST_F(BindTest, HowAnAddressIsSharedMayBeSaidLater) {
  int yes = 1, no = 0;
  const auto set = [](rdma_cm_id* id, int option, int* value) {
    return rdma_set_option(id, RDMA_OPTION_ID, option, value, sizeof(*value));
  };
  CmAddress address = CmAddress::Loopback(AF_INET, 7474);
  rdma_cm_id* first = NewId();
  rdma_cm_id* second = NewId();
  ASSERT_EQ(set(second, RDMA_OPTION_ID_REUSEADDR, &yes), 0);
  ASSERT_EQ(rdma_bind_addr(first, address.get()), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_bind_addr(second, address.get()), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  ASSERT_EQ(set(first, RDMA_OPTION_ID_REUSEADDR, &yes), 0)
      << std::strerror(errno);
  EXPECT_EQ(rdma_bind_addr(second, address.get()), 0) << std::strerror(errno);
  EXPECT_EQ(set(first, RDMA_OPTION_ID_REUSEADDR, &no), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_listen(first, 1), 0) << std::strerror(errno);
  EXPECT_EQ(set(first, RDMA_OPTION_ID_REUSEADDR, &yes), -1);
  EXPECT_EQ(errno, EINVAL);

  rdma_cm_id* v6 = NewId();
  rdma_cm_id* v4 = NewId();
  ASSERT_EQ(rdma_bind_addr(v6, CmAddress::Any(AF_INET6, 7475).get()), 0);
  EXPECT_EQ(rdma_bind_addr(v4, CmAddress::Any(AF_INET, 7475).get()), -1);
  ASSERT_EQ(set(v6, RDMA_OPTION_ID_AFONLY, &yes), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_bind_addr(v4, CmAddress::Any(AF_INET, 7475).get()), 0)
      << std::strerror(errno);
  EXPECT_EQ(set(v6, RDMA_OPTION_ID_AFONLY, &no), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  for (rdma_cm_id* id : {first, second, v6, v4}) {
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST_F(BindTest, AnIpv6OnlyIdLeavesIpv4Alone) {
  rdma_cm_id* v6 = NewId();
  rdma_cm_id* v4 = NewId();
  int yes = 1;
  ASSERT_EQ(rdma_set_option(v6, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes,
                            sizeof(yes)),
            0);
  EXPECT_EQ(rdma_bind_addr(v6, CmAddress::Any(AF_INET6, 7473).get()), 0);
  EXPECT_EQ(rdma_bind_addr(v4, CmAddress::Any(AF_INET, 7473).get()), 0)
      << std::strerror(errno);
  EXPECT_EQ(rdma_destroy_id(v6), 0);
  EXPECT_EQ(rdma_destroy_id(v4), 0);
}

}  // namespace
}  // namespace conformance
