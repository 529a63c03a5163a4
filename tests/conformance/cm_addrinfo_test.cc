// Addresses from names and hints: rdma_getaddrinfo(3).
#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

TEST(AddrinfoTest, FollowsTheHints) {
  rdma_addrinfo hints = {};
  rdma_addrinfo* info = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_NUMERICHOST;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  ASSERT_NE(info->ai_dst_addr, nullptr);
  EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port),
            7471);
  rdma_freeaddrinfo(info);

  hints.ai_port_space = RDMA_PS_UDP;
  hints.ai_flags = RAI_PASSIVE;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, "7471", &hints, &info), 0);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_UD);
  EXPECT_NE(info->ai_src_addr, nullptr);
  EXPECT_EQ(info->ai_dst_addr, nullptr);
  rdma_freeaddrinfo(info);

  hints.ai_qp_type = IBV_QPT_RC;
  EXPECT_EQ(rdma_getaddrinfo(nullptr, "7471", &hints, &info), EAI_SOCKTYPE);
  hints = {};
  // Flags of newer headers are ignored, as in rdma-core.
  hints.ai_flags = 1 << 20;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
  rdma_freeaddrinfo(info);
  hints.ai_flags = RAI_NUMERICHOST;
  EXPECT_EQ(rdma_getaddrinfo("no.number", "7471", &hints, &info), EAI_NONAME);
  EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, nullptr, &info), -1);
  EXPECT_EQ(errno, EINVAL);

  // From hints with addresses only.
  hints = {};
  CmAddress source = CmAddress::Loopback(AF_INET6);
  hints.ai_src_addr = source.get();
  hints.ai_src_len = sizeof(sockaddr_in6);
  hints.ai_family = AF_INET6;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &info), 0);
  EXPECT_EQ(info->ai_src_len, sizeof(sockaddr_in6));
  EXPECT_NE(info->ai_src_addr, source.get());
  rdma_freeaddrinfo(info);
}

// Flags that only controlled the resolver are not in the result.
TEST(AddrinfoTest, ResultsOfNamesHaveThePassiveFlag) {
  for (const int flags : {0, static_cast<int>(RAI_PASSIVE)}) {
    rdma_addrinfo hints = {};
    rdma_addrinfo* info = nullptr;
    hints.ai_flags = flags | RAI_NUMERICHOST | RAI_NOROUTE;
    ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
    EXPECT_EQ(info->ai_flags, flags);
    rdma_freeaddrinfo(info);
  }
}

// A node is a GID only with RAI_NUMERICHOST: a name resolves to IP addresses.
TEST(AddrinfoTest, ANameIsNoGid) {
  rdma_addrinfo hints = {};
  rdma_addrinfo* info = nullptr;
  hints.ai_flags = RAI_FAMILY;
  hints.ai_family = AF_IB;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  rdma_freeaddrinfo(info);
}

// A connection on Ethernet needs no route, and an endpoint of the result finds
// its path by rdma_resolve_route(3).
TEST(AddrinfoTest, ARouteOfTheHintsIsNoneOfTheAnswer) {
  CmAddress destination = CmAddress::Loopback(AF_INET, 7471);
  ibv_path_record route = {};
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_qp_type = IBV_QPT_RC;
  hints.ai_dst_addr = destination.get();
  hints.ai_dst_len = sizeof(sockaddr_in);
  hints.ai_route = &route;
  hints.ai_route_len = sizeof(route);
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &info), 0);
  EXPECT_EQ(info->ai_route, nullptr);
  EXPECT_EQ(info->ai_route_len, 0);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_ep(&id, info, nullptr, nullptr), 0)
      << std::strerror(errno);
  if (id != nullptr) rdma_destroy_ep(id);
  rdma_freeaddrinfo(info);
}

// perftest sets the family for -R --ipv6-addr this way.
TEST(AddrinfoTest, TheFamilyOfTheHintsCountsWithoutRaiFamily) {
  for (const int flags : {0, static_cast<int>(RAI_PASSIVE)}) {
    for (const int family : {AF_INET, AF_INET6}) {
      rdma_addrinfo hints = {};
      rdma_addrinfo* info = nullptr;
      hints.ai_flags = flags;
      hints.ai_family = family;
      hints.ai_port_space = RDMA_PS_TCP;
      ASSERT_EQ(rdma_getaddrinfo(nullptr, "7471", &hints, &info), 0);
      EXPECT_EQ(info->ai_family, family);
      const sockaddr* const found =
          flags != 0 ? info->ai_src_addr : info->ai_dst_addr;
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->sa_family, family);
      rdma_freeaddrinfo(info);
      // A numeric address of the other family does not match.
      const char* const other = family == AF_INET ? "::1" : "127.0.0.1";
      hints.ai_flags = flags | RAI_NUMERICHOST;
      EXPECT_NE(rdma_getaddrinfo(other, "7471", &hints, &info), 0);
    }
  }
}

}  // namespace
}  // namespace conformance
