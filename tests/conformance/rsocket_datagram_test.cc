// rsocket(7): datagrams.
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "tests/conformance/rsocket_fixture.h"
#include "verbs_api/rsockets/datagram_protocol.h"

namespace conformance {
namespace {

class DatagramTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    for (int& fd : fds_) {
      fd = rsocket(GetParam(), SOCK_DGRAM, 0);
      ASSERT_GE(fd, 0) << std::strerror(errno);
      const LoopbackAddress any(GetParam());
      ASSERT_EQ(rbind(fd, any.get(), any.length), 0);
    }
  }
  void TearDown() override {
    for (const int fd : fds_) EXPECT_EQ(rclose(fd), 0);
  }

  void Send(int from, int to, const std::string& bytes) {
    const LoopbackAddress address(GetParam(), PortOf(to));
    ASSERT_EQ(rsendto(from, bytes.data(), bytes.size(), 0, address.get(),
                      address.length),
              static_cast<ssize_t>(bytes.size()))
        << std::strerror(errno);
  }
  // Waits for a datagram and checks that it came from `from`.
  std::string Receive(int to, int from, int flags = 0) {
    EXPECT_EQ(Events(to, POLLIN, kSoon), POLLIN);
    std::string bytes(4000, '\0');
    sockaddr_in6 source = {};
    socklen_t length = sizeof(source);
    const ssize_t n = rrecvfrom(to, bytes.data(), bytes.size(), flags,
                                reinterpret_cast<sockaddr*>(&source), &length);
    EXPECT_GE(n, 0) << std::strerror(errno);
    EXPECT_EQ(source.sin6_family, GetParam());
    EXPECT_EQ(ntohs(source.sin6_port), PortOf(from));
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }

  int fds_[2] = {-1, -1};
};
INSTANTIATE_TEST_SUITE_P(Families, DatagramTest,
                         testing::Values(AF_INET, AF_INET6));

TEST_P(DatagramTest, TheFirstAndTheLaterOnesArrive) {
  for (int i = 0; i < 20; ++i) {
    const std::string there = Pattern(10 + 90 * i, i), back = Pattern(500, i);
    Send(fds_[0], fds_[1], there);
    EXPECT_EQ(Receive(fds_[1], fds_[0]), there);
    Send(fds_[1], fds_[0], back);
    EXPECT_EQ(Receive(fds_[0], fds_[1]), back);
  }
}

TEST_P(DatagramTest, LargerOnesThanAPacketArrive) {
  for (int i = 0; i < 3; ++i) {
    Send(fds_[0], fds_[1], Pattern(3900, i));
    EXPECT_EQ(Receive(fds_[1], fds_[0]), Pattern(3900, i));
  }
}

TEST_P(DatagramTest, EmptyOnesArrive) {
  for (int i = 0; i < 3; ++i) {
    Send(fds_[0], fds_[1], "");
    EXPECT_EQ(Receive(fds_[1], fds_[0]), "");
    Send(fds_[1], fds_[0], "");
    EXPECT_EQ(Receive(fds_[0], fds_[1]), "");
  }
}

TEST_P(DatagramTest, TooLongDatagramsAreLost) {
  for (int i = 0; i < 3; ++i) {
    Send(fds_[0], fds_[1], "0123456789");
    ASSERT_EQ(Events(fds_[1], POLLIN, kSoon), POLLIN);
    char bytes[4];
    EXPECT_EQ(rrecv(fds_[1], bytes, 4, MSG_PEEK), 4);
    EXPECT_EQ(rrecv(fds_[1], bytes, 4, MSG_TRUNC), 10);
    EXPECT_EQ(std::string(bytes, 4), "0123");
    EXPECT_EQ(rrecv(fds_[1], bytes, 4, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
    Send(fds_[1], fds_[0], "back");
    EXPECT_EQ(Receive(fds_[0], fds_[1]), "back");
  }
}

TEST_P(DatagramTest, AnImpossibleLengthIsRefused) {
  const LoopbackAddress address(GetParam(), PortOf(fds_[1]));
  char byte = 0;
  // The header makes the last ones wrap to a small number.
  for (const size_t length :
       {size_t{1} << 16, size_t{1} << 40, SIZE_MAX - 100, SIZE_MAX - 8}) {
    EXPECT_EQ(rsendto(fds_[0], &byte, length, 0, address.get(), address.length),
              -1);
    EXPECT_EQ(errno, EMSGSIZE) << length;
  }
}

TEST_P(DatagramTest, AConnectedSocketReceivesFromItsPeerOnly) {
  const int third = rsocket(GetParam(), SOCK_DGRAM, 0);
  ASSERT_GE(third, 0);
  char byte = 'x';
  EXPECT_EQ(rsend(third, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EDESTADDRREQ);
  // The third socket knows the queue pair of the first.
  Send(third, fds_[0], "a");
  EXPECT_EQ(Receive(fds_[0], third), "a");
  Send(fds_[0], third, "b");
  EXPECT_EQ(Receive(third, fds_[0]), "b");
  const LoopbackAddress peer(GetParam(), PortOf(fds_[1]));
  ASSERT_EQ(rconnect(fds_[0], peer.get(), peer.length), 0);
  Send(third, fds_[0], "c");
  ASSERT_EQ(rsend(fds_[0], "d", 1, 0), 1);
  EXPECT_EQ(Receive(fds_[1], fds_[0]), "d");
  Send(fds_[1], fds_[0], "e");
  EXPECT_EQ(Receive(fds_[0], fds_[1]), "e");
  EXPECT_EQ(rclose(third), 0);
}

// As with connect(2) over UDP.
TEST_P(DatagramTest, NoFamilyRemovesThePeer) {
  const LoopbackAddress peer(GetParam(), PortOf(fds_[1]));
  ASSERT_EQ(rconnect(fds_[0], peer.get(), peer.length), 0);
  const sockaddr none = {.sa_family = AF_UNSPEC, .sa_data = {}};
  ASSERT_EQ(rconnect(fds_[0], &none, sizeof(none)), 0) << std::strerror(errno);
  char byte = 'x';
  EXPECT_EQ(rsend(fds_[0], &byte, 1, 0), -1);
  EXPECT_EQ(errno, EDESTADDRREQ);
  sockaddr_storage address;
  socklen_t length = sizeof(address);
  EXPECT_EQ(
      rgetpeername(fds_[0], reinterpret_cast<sockaddr*>(&address), &length),
      -1);
  EXPECT_EQ(errno, ENOTCONN);
}

// As with connect(2) over UDP: an explicit address takes precedence.
TEST_P(DatagramTest, AConnectedOneSendsToOthersToo) {
  const int third = rsocket(GetParam(), SOCK_DGRAM, 0);
  ASSERT_GE(third, 0);
  const LoopbackAddress any(GetParam());
  ASSERT_EQ(rbind(third, any.get(), any.length), 0);
  const LoopbackAddress peer(GetParam(), PortOf(fds_[1]));
  ASSERT_EQ(rconnect(fds_[0], peer.get(), peer.length), 0);
  for (int i = 0; i < 3; ++i) {
    Send(fds_[0], third, "to the third");
    ASSERT_EQ(rsend(fds_[0], "to the peer", 11, 0), 11);
    EXPECT_EQ(Receive(fds_[1], fds_[0]), "to the peer");
    EXPECT_EQ(Receive(third, fds_[0]), "to the third");
  }
  EXPECT_EQ(rclose(third), 0);
}

// A queue pair that sends datagrams with any header to rsockets.
class Forger {
 public:
  explicit Forger(int family) {
    events_ = rdma_create_event_channel();
    EXPECT_EQ(rdma_create_id(events_, &id_, nullptr, RDMA_PS_UDP), 0);
    LoopbackAddress own(family);
    EXPECT_EQ(rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&own.storage)),
              0);
    ibv_qp_init_attr attr = {};
    attr.qp_type = IBV_QPT_UD;
    attr.cap = {8, 8, 1, 1, 128};
    attr.sq_sig_all = 1;
    EXPECT_EQ(rdma_create_qp(id_, nullptr, &attr), 0) << std::strerror(errno);
    ibv_ah_attr path = {};
    path.is_global = 1;
    path.port_num = id_->port_num;
    path.grh.hop_limit = 64;
    const auto gid = rsockets::DatagramAddress::Of(own.get()).Gid();
    std::memcpy(path.grh.dgid.raw, gid.data(), gid.size());
    for (ibv_gid found; ibv_query_gid(id_->verbs, id_->port_num,
                                      path.grh.sgid_index, &found) == 0 &&
                        std::memcmp(found.raw, gid.data(), gid.size()) != 0;) {
      ++path.grh.sgid_index;
    }
    path_ = ibv_create_ah(id_->qp->pd, &path);
    EXPECT_NE(path_, nullptr);
    udp_ = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(udp_, own.get(), own.length), 0);
  }
  ~Forger() {
    close(udp_);
    EXPECT_EQ(ibv_destroy_ah(path_), 0);
    rdma_destroy_qp(id_);
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(events_);
  }

  // Asks the rsocket for its queue pair number.
  void Learn(int rsocket, int family) {
    rsockets::UdpHeader hello = {rsockets::UdpOp::kData, 0x123456, {}};
    hello.address =
        rsockets::DatagramAddress::Of(LoopbackAddress(family).get());
    const rsockets::HeaderBytes bytes = rsockets::Encode(hello);
    const LoopbackAddress to(family, PortOf(rsocket));
    ASSERT_EQ(
        sendto(udp_, bytes.bytes.data(), bytes.length, 0, to.get(), to.length),
        static_cast<ssize_t>(bytes.length));
    ASSERT_EQ(Events(rsocket, POLLIN, kSoon), POLLIN);
    char none;
    ASSERT_EQ(rrecv(rsocket, &none, 1, 0), 0);
    uint8_t answer[64];
    const ssize_t n = recv(udp_, answer, sizeof(answer), 0);
    ASSERT_GT(n, 0);
    size_t length;
    const auto header =
        rsockets::ParseUdpHeader({answer, static_cast<size_t>(n)}, &length);
    ASSERT_TRUE(header.has_value());
    qpn_ = header->qpn;
  }

  // Sends `text` as if it came from `source`.
  void Say(const rsockets::DatagramAddress& source, const std::string& text) {
    const rsockets::HeaderBytes header = rsockets::EncodeSource(source);
    std::string bytes(reinterpret_cast<const char*>(header.bytes.data()),
                      header.length);
    bytes += text;
    ibv_sge sge = {reinterpret_cast<uintptr_t>(bytes.data()),
                   static_cast<uint32_t>(bytes.size()), 0};
    ibv_send_wr wr = {}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.wr.ud = {path_, qpn_, RDMA_UDP_QKEY};
    ASSERT_EQ(ibv_post_send(id_->qp, &wr, &bad), 0);
    ibv_wc wc;
    while (ibv_poll_cq(id_->send_cq, 1, &wc) == 0) {
    }
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }

 private:
  rdma_event_channel* events_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_ah* path_ = nullptr;
  int udp_ = -1;
  uint32_t qpn_ = 0;
};

// rrecvfrom returned any address that the sender put into the header.
TEST_P(DatagramTest, ASenderCannotNameAnotherHost) {
  Forger forger(GetParam());
  ASSERT_NO_FATAL_FAILURE(forger.Learn(fds_[1], GetParam()));
  for (const char* text : {"192.0.2.99", "127.0.0.2"}) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(5555);
    ASSERT_EQ(inet_pton(AF_INET, text, &v4.sin_addr), 1);
    forger.Say(rsockets::DatagramAddress::Of(reinterpret_cast<sockaddr*>(&v4)),
               "forged");
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(5555);
  ASSERT_EQ(inet_pton(AF_INET6, "2001:db8::99", &v6.sin6_addr), 1);
  forger.Say(rsockets::DatagramAddress::Of(reinterpret_cast<sockaddr*>(&v6)),
             "forged");
  // The last one has the true address.
  forger.Say(rsockets::DatagramAddress::Of(
                 LoopbackAddress(GetParam(), PortOf(fds_[0])).get()),
             "genuine");
  EXPECT_EQ(Receive(fds_[1], fds_[0]), "genuine");
}

TEST_P(DatagramTest, PollingWithoutWaitingFindsDatagrams) {
  Send(fds_[0], fds_[1], "first");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoon);
  while (Events(fds_[1], POLLIN, 0) == 0 &&
         std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(Events(fds_[1], POLLIN, 0), POLLIN);
  EXPECT_EQ(Receive(fds_[1], fds_[0]), "first");
}

// As in the kernel, only a link-local address has an interface.
TEST_P(DatagramTest, TheInterfaceOfAGlobalAddressMeansNothing) {
  const LoopbackAddress loopback(GetParam(), PortOf(fds_[1]));
  sockaddr_in6 peer = {};
  std::memcpy(&peer, loopback.get(), loopback.length);
  if (GetParam() == AF_INET6) peer.sin6_scope_id = if_nametoindex("lo");
  ASSERT_EQ(rconnect(fds_[0], reinterpret_cast<const sockaddr*>(&peer),
                     loopback.length),
            0)
      << std::strerror(errno);
  for (int i = 0; i < 3 && !HasFailure(); ++i) {
    Send(fds_[1], fds_[0], "a");
    EXPECT_EQ(Receive(fds_[0], fds_[1]), "a");
  }
}

// As for sendmsg(2), a name of no length is none.
TEST_P(DatagramTest, AMessageWithANameOfNoLengthGoesToThePeer) {
  const LoopbackAddress peer(GetParam(), PortOf(fds_[1]));
  ASSERT_EQ(rconnect(fds_[0], peer.get(), peer.length), 0);
  char text[] = "hello";
  iovec iov = {.iov_base = text, .iov_len = 5};
  sockaddr_storage unused = {};
  msghdr message = {};
  message.msg_name = &unused;
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  ASSERT_EQ(rsendmsg(fds_[0], &message, 0), 5) << std::strerror(errno);
  EXPECT_EQ(Receive(fds_[1], fds_[0]), "hello");
}

// A link-local address needs an interface, which may be omitted if the socket
// is bound to one.
TEST(LinkLocalDatagramTest, TheFirstAndTheLaterOnesArrive) {
  if (std::system("ip -6 address add fe80::77/64 dev lo nodad") != 0) {
    GTEST_SKIP() << "not allowed to";
  }
  int fds[2];
  sockaddr_in6 names[2];
  socklen_t length = sizeof(names[0]);
  for (int i = 0; i < 2; ++i) {
    fds[i] = rsocket(AF_INET6, SOCK_DGRAM, 0);
    ASSERT_GE(fds[i], 0);
    sockaddr_in6 in = {};
    in.sin6_family = AF_INET6;
    in.sin6_scope_id = if_nametoindex("lo");
    ASSERT_EQ(inet_pton(AF_INET6, "fe80::77", &in.sin6_addr), 1);
    ASSERT_EQ(rbind(fds[i], reinterpret_cast<const sockaddr*>(&in), sizeof(in)),
              0)
        << std::strerror(errno);
    ASSERT_EQ(
        rgetsockname(fds[i], reinterpret_cast<sockaddr*>(&names[i]), &length),
        0);
  }
  for (int i = 0; i < 12; ++i) {
    const int from = i % 2, to = 1 - from;
    sockaddr_in6 name = names[to];
    const auto* const address = reinterpret_cast<const sockaddr*>(&name);
    if (i >= 6) name.sin6_scope_id = 0;
    if (i == 6) {
      ASSERT_EQ(rconnect(fds[from], address, sizeof(name)), 0);
    }
    ASSERT_EQ(rsendto(fds[from], "hello", 5, 0, address, sizeof(name)), 5)
        << std::strerror(errno);
    ASSERT_EQ(Events(fds[to], POLLIN, kSoon), POLLIN);
    char bytes[10];
    sockaddr_in6 source = {};
    length = sizeof(source);
    EXPECT_EQ(rrecvfrom(fds[to], bytes, sizeof(bytes), 0,
                        reinterpret_cast<sockaddr*>(&source), &length),
              5);
    EXPECT_EQ(std::memcmp(&source, &names[from], sizeof(source)), 0);
  }
  for (const int fd : fds) EXPECT_EQ(rclose(fd), 0);
  EXPECT_EQ(std::system("ip -6 address del fe80::77/64 dev lo"), 0);
}

// Datagrams over UDP, on a link that is slower than their sender.
TEST_P(DatagramTest, ASlowLinkHoldsTheSenderUp) {
  if (std::system("/sbin/tc qdisc add dev lo root tbf rate 400mbit burst 70kb "
                  "limit 10mb") != 0) {
    GTEST_SKIP() << "not allowed to";
  }
  const std::string bytes = Pattern(50000);
  for (int i = 0; i < 20; ++i) Send(fds_[0], fds_[1], bytes);
  // A non-blocking sender gets an error.
  const LoopbackAddress address(GetParam(), PortOf(fds_[1]));
  ssize_t n;
  do {
    n = rsendto(fds_[0], bytes.data(), bytes.size(), MSG_DONTWAIT,
                address.get(), address.length);
  } while (n > 0);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(std::system("/sbin/tc qdisc del dev lo root"), 0);
}

TEST_P(DatagramTest, CallsOfStreamsAreRefused) {
  EXPECT_EQ(rlisten(fds_[0], 1), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(raccept(fds_[0], nullptr, nullptr), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace conformance
