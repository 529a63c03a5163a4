// The UDP port and the io_uring port against the kernel, over loopback.
#include "rxe_user/ports/port.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/udp_port.h"
#include "rxe_user/ports/udp_socket.h"
#include "rxe_user/testing/loopback_port.h"
#include "rxe_user/testing/net_namespace.h"
#include "wire/headers.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

struct Ends {
  const char* name;
  const char* address;
  absl::StatusOr<std::unique_ptr<Port>> (*create)();
};

class PortTest : public LoopbackPortTest,
                 public ::testing::WithParamInterface<Ends> {
 protected:
  void SetUp() override { Open(GetParam().address, GetParam().create); }
};

// Sent by a receiving socket (RXE_USER_NAT), multicast packets leave by the
// interface of its address, too.
TEST(UdpSocketTest, AReceiverSendsToGroupsOnItsInterface) {
  const UniqueFd receiver(
      ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const LocalAddress local = {*wire::IpAddress::Parse("::1"), 0};
  SocketAddress address;
  const socklen_t size = ToSocketAddress(local.address, 0, 0, &address);
  ASSERT_EQ(::bind(receiver.get(), &address.any, size), 0);
  const absl::StatusOr<int> sender = SendFromReceiver(receiver.get(), local);
  ASSERT_TRUE(sender.ok()) << sender.status();
  const UniqueFd owner(*sender);
  int ifindex = 0;
  socklen_t length = sizeof(ifindex);
  ASSERT_EQ(
      ::getsockopt(*sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, &ifindex, &length),
      0);
  EXPECT_EQ(static_cast<unsigned>(ifindex), ::if_nametoindex("lo"));
}

TEST_P(PortTest, CarriesOnePacket) {
  av_.traffic_class = 0x6a;
  av_.hop_limit = 17;
  av_.flow_label = 0x12345;
  const transport::Flow flow(av_);
  Queue(flow, {64});
  port_->Flush();
  const auto packets = Receive(1);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].bytes.size(), 64u);
  EXPECT_EQ(packets[0].bytes[0], 7);
  EXPECT_TRUE(flow.icrc.Verify(packets[0].bytes, 0));
  const transport::GroBatch& arrival = packets[0].arrival;
  EXPECT_EQ(arrival.source, local_.address);
  EXPECT_EQ(arrival.destination, local_.address);
  EXPECT_EQ(arrival.source_port, av_.source_port);
  EXPECT_EQ(arrival.traffic_class, 0x6a);
  EXPECT_EQ(arrival.hop_limit, 17);
  EXPECT_FALSE(port_->blocked());
}

// The socket's defaults are the first flow's; other flows set their own values.
TEST_P(PortTest, EachFlowHasItsOwnClassAndHopLimit) {
  struct Said {
    uint8_t traffic_class;
    uint8_t hop_limit;
    uint8_t arrives;
  };
  for (const Said& said : std::vector<Said>{
           {0x6a, 255, 255}, {0, 64, 64}, {0x6a, 255, 255}, {4, 0, 64}}) {
    av_.traffic_class = said.traffic_class;
    av_.hop_limit = said.hop_limit;
    const transport::Flow flow(av_);
    for (const std::vector<size_t>& sizes :
         {std::vector<size_t>{64}, std::vector<size_t>{64, 64}}) {
      Queue(flow, sizes);
      port_->Flush();
      for (const Packet& packet : Receive(sizes.size())) {
        EXPECT_EQ(packet.arrival.traffic_class, said.traffic_class);
        EXPECT_EQ(packet.arrival.hop_limit, said.arrives);
        EXPECT_TRUE(flow.icrc.Verify(packet.bytes, packet.index));
      }
    }
  }
}

TEST(SendControlTest, OmitsTheSocketsDefaults) {
  uint16_t port;
  for (const char* address : {"127.0.0.1", "::1"}) {
    LocalAddress local;
    local.address = *wire::IpAddress::Parse(address);
    if (!local.address.is_v4() && !HaveIpv6()) continue;
    const absl::StatusOr<int> fd = OpenSender(local, &port);
    ASSERT_TRUE(fd.ok());
    transport::AddressVector av;
    av.source = av.destination = local.address;
    av.traffic_class = 0x6a;
    av.hop_limit = 255;
    alignas(cmsghdr) uint8_t control[kControlBytes];
    EXPECT_EQ(WriteSendControl(av, 0, SendDefaults{}, control),
              2 * CMSG_SPACE(sizeof(int)));
    const SendDefaults set = SetSendDefaults(*fd, av);
    EXPECT_EQ(set.traffic_class, 0x6a);
    EXPECT_EQ(set.hop_limit, 255);
    EXPECT_EQ(WriteSendControl(av, 0, set, control), 0u);
    EXPECT_EQ(WriteSendControl(av, 4112, set, control),
              CMSG_SPACE(sizeof(uint16_t)));
    ::close(*fd);
    // Values that the kernel refuses as defaults are in the control messages.
    const SendDefaults refused = SetSendDefaults(-1, av);
    EXPECT_EQ(refused.traffic_class, 0);
    EXPECT_EQ(refused.hop_limit, wire::kDefaultHopLimit);
  }
}

TEST_P(PortTest, CarriesABurstInOneCall) {
  const transport::Flow flow(av_);
  std::vector<size_t> sizes(15, 4112);
  sizes.back() = 20;  // an ACK, say
  Queue(flow, sizes);
  port_->Flush();
  EXPECT_EQ(port_->counters().tx_calls, 1u);
  const auto packets = Receive(15);
  ASSERT_EQ(packets.size(), 15u);
  for (size_t i = 0; i < 15; ++i) {
    EXPECT_EQ(packets[i].bytes.size(), sizes[i]);
    EXPECT_EQ(packets[i].index, i) << "merged again";
    EXPECT_TRUE(flow.icrc.Verify(packets[i].bytes, static_cast<uint16_t>(i)));
  }
}

// The ICRC covers the IPv4 identification, and hardware checks it: a packet
// sent alone must have 0, however many were sent before it.
TEST_P(PortTest, TheKernelsIpIdsMatchTheIcrc) {
  if (!local_.address.is_v4()) GTEST_SKIP() << "IPv6 has no number";
  const int fd = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  if (fd < 0) GTEST_SKIP() << "not allowed to see IP headers";
  const transport::Flow flow(av_);
  constexpr int kMany = 200;
  for (int i = 0; i < kMany; ++i) {
    Queue(flow, {64});
    port_->Flush();
    Receive(1);
    iphdr ip;
    do {
      ASSERT_GE(::recv(fd, &ip, sizeof(ip), 0), ssize_t{sizeof(ip)});
    } while (ip.saddr != local_.address.v4_be() ||
             ntohs(ip.tot_len) != sizeof(ip) + sizeof(udphdr) + 64);
    ASSERT_EQ(ntohs(ip.id), 0) << "after " << i;
  }
  ::close(fd);
}

TEST_P(PortTest, CarriesTheMostSegments) {
  const transport::Flow flow(av_);
  Queue(flow, std::vector<size_t>(128, 92));
  port_->Flush();
  EXPECT_EQ(Receive(128).size(), 128u);
}

TEST_P(PortTest, GathersBurstsIntoFewCalls) {
  const transport::Flow flow(av_);
  for (uint8_t i = 0; i < 7; ++i) Queue(flow, {100u + i, 100u + i}, i);
  EXPECT_EQ(port_->counters().tx_calls, 0u);
  port_->Flush();
  EXPECT_EQ(port_->counters().tx_bursts, 7u);
  EXPECT_EQ(port_->counters().tx_calls, 1u);
  const auto packets = Receive(14);
  ASSERT_EQ(packets.size(), 14u);
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(packets[i].bytes[0], i / 2);
}

TEST_P(PortTest, ReceivesManyDatagramsWithFewCalls) {
  const transport::Flow flow(av_);
  constexpr int kPackets = 64;
  for (int i = 0; i < kPackets; ++i) {
    Queue(flow, {100u + static_cast<size_t>(i)});  // sizes differ: no merging
    port_->Flush();
  }
  EXPECT_EQ(Receive(kPackets).size(), size_t{kPackets});
  EXPECT_LE(port_->counters().rx_calls, 16u);
  EXPECT_TRUE(port_->Receive(true).empty());
  EXPECT_FALSE(port_->more());
}

TEST_P(PortTest, FillsEveryBurst) {
  const transport::Flow flow(av_);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) Queue(flow, std::vector<size_t>(3, 1040));
    port_->Flush();
    EXPECT_EQ(Receive(60).size(), 60u);
  }
}

TEST_P(PortTest, DropsSendsWithoutASocket) {
  transport::AddressVector av = av_;
  av.source_port = 1;
  const transport::Flow flow(av);
  Queue(flow, {64});
  port_->Flush();
  EXPECT_EQ(port_->counters().tx_errors, 1u);
  EXPECT_FALSE(port_->blocked());
}

TEST_P(PortTest, DropsSendsWithoutARoute) {
  if (!local_.address.is_v4()) return;
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("203.0.113.9");
  const transport::Flow flow(av);
  Queue(flow, {64});
  Queue(flow, {64, 64});
  port_->Flush();
  const PortCounters& counters = port_->counters();
  EXPECT_EQ(counters.tx_unreachable + counters.tx_errors, 2u);
  EXPECT_FALSE(port_->blocked());
}

// A failed send may share a system call with others.
TEST_P(PortTest, AFailedSendDropsNoOthers) {
  if (!local_.address.is_v4()) return;
  const transport::Flow flow(av_);
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("203.0.113.9");
  const transport::Flow nowhere(av);
  for (const size_t size : {100u, 5000u}) {
    Queue(nowhere, {size});
    Queue(flow, {size}, 1);
    Queue(flow, {size}, 2);
    Queue(nowhere, {size});
    Queue(nowhere, {size});
    Queue(flow, {size}, 3);
    port_->Flush();
    EXPECT_FALSE(port_->blocked());
    const auto packets = Receive(3);
    ASSERT_EQ(packets.size(), 3u);
    for (uint8_t i = 0; i < 3; ++i) EXPECT_EQ(packets[i].bytes[0], i + 1);
  }
  const PortCounters& counters = port_->counters();
  EXPECT_EQ(counters.tx_unreachable + counters.tx_errors, 6u);
}

// A kernel or path without segmentation: every packet is sent alone, with the
// ICRC for IP ID 0.
TEST_P(PortTest, SendsInPartsWhereSegmentsAreRefused) {
  const transport::Flow flow(av_);
  // UDP_SEGMENT returns EINVAL or EMSGSIZE for segments beyond the MTU, as for
  // sends that it cannot segment.
  if (!SetLoopbackMtu(3000)) GTEST_SKIP() << "not allowed to";
  ::testing::internal::CaptureStderr();
  Queue(flow, {3500, 100});
  port_->Flush();
  EXPECT_EQ(port_->counters().tx_split, 1u);
  EXPECT_EQ(port_->counters().tx_too_long, 1u);  // the first one is too long
  // One line per destination, also if it is another port's.
  Queue(flow, {3500});
  port_->Flush();
  EXPECT_EQ(port_->counters().tx_too_long, 2u);
  const std::string line = ::testing::internal::GetCapturedStderr();
  const std::string to = " bytes to " + av_.destination.ToString() + " are too";
  static std::set<std::string> warned_of;
  EXPECT_EQ(line.find(to) != std::string::npos, warned_of.insert(to).second)
      << line;
  EXPECT_EQ(line.find(to), line.rfind(to)) << line;
  SetLoopbackMtu(65536);
  // The destination is remembered: bursts for it take one packet.
  EXPECT_EQ(port_->Begin(flow)->Room(200), 1u);
  Queue(flow, {200, 200, 200});
  port_->Flush();
  EXPECT_EQ(port_->counters().tx_split, 1u);
  const auto packets = Receive(4);
  ASSERT_EQ(packets.size(), 4u);
  for (const Packet& packet : packets) {
    EXPECT_TRUE(flow.icrc.Verify(packet.bytes, 0));
  }
}

TEST_P(PortTest, CountsOverflow) {
  const transport::Flow flow(av_);
  // Send without reading, until the receive buffer is full.
  for (int i = 0; i < 4000; ++i) {
    Queue(flow, std::vector<size_t>(15, 4112));
    port_->Flush();
  }
  // The count arrives with a datagram that is received after the loss.
  while (!port_->Receive(true).empty()) {
  }
  Queue(flow, {64});
  port_->Flush();
  Receive(1);
  EXPECT_GT(port_->TakeOverflow(), 0u);
  EXPECT_EQ(port_->TakeOverflow(), 0u);
  EXPECT_GT(port_->counters().rx_overflow, 0u);
}

TEST_P(PortTest, FreesItsPortAtOnce) {
  for (int i = 0; i < 20; ++i) {
    const transport::Flow flow(av_);
    for (int j = 0; j < 5; ++j) Queue(flow, {64});
    port_->Flush();
    Receive(5);
    port_.reset();
    const int fd = Bind();
    ASSERT_GE(fd, 0) << "port 4791 is still in use";
    ::close(fd);
    SetUp();
  }
}

TEST_P(PortTest, ChoosesSourcePorts) {
  const auto again = port_->SourcePort(local_, 5);
  EXPECT_EQ(again.value(), av_.source_port);
  EXPECT_GE(*again, 0xc000);
  EXPECT_NE(port_->SourcePort(local_, 6).value(), *again);
  // A few sockets only, however many flows.
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(port_->SourcePort(local_, i).ok());
  }
}

TEST_P(PortTest, OpensTheSourcePortThatIsAskedFor) {
  uint16_t free_port;
  {
    const absl::StatusOr<int> fd = OpenSender(local_, &free_port);
    ASSERT_TRUE(fd.ok()) << fd.status();
    ::close(*fd);
  }
  for (int i = 0; i < 2; ++i) {
    const absl::Status opened = port_->OpenSourcePort(local_, free_port);
    ASSERT_TRUE(opened.ok()) << opened;
  }
  transport::AddressVector av = av_;
  av.source_port = free_port;
  const transport::Flow flow(av);
  Queue(flow, {64});
  port_->Flush();
  EXPECT_EQ(Receive(1).size(), 1u);
  // No other flow gets it.
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_NE(port_->SourcePort(local_, i).value(), free_port);
  }
  // Another socket has it.
  uint16_t taken;
  const absl::StatusOr<int> holder = OpenSender(local_, &taken);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(ErrnoOf(port_->OpenSourcePort(local_, taken)), EADDRINUSE);
  ::close(*holder);
}

// A child process that binds free UDP ports of 127.0.0.1, from `first` on, as
// many as it has descriptors for. It ends with this object.
class PortHolder {
 public:
  static constexpr uint32_t kMax = 0x4000;

  explicit PortHolder(uint32_t first) {
    int pipe_ends[2];
    EXPECT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) Hold(first, pipe_ends[1]);
    ::close(pipe_ends[1]);
    EXPECT_EQ(::read(pipe_ends[0], &held_, sizeof(held_)),
              ssize_t{sizeof(held_)});
    ::close(pipe_ends[0]);
  }
  ~PortHolder() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  uint32_t held() const { return held_; }

 private:
  [[noreturn]] static void Hold(uint32_t first, int output) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < kMax && first + i <= 0xffff; ++i) {
      SocketAddress address;
      const socklen_t length =
          ToSocketAddress(*wire::IpAddress::Parse("127.0.0.1"),
                          static_cast<uint16_t>(first + i), 0, &address);
      const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      if (fd < 0) break;
      held += ::bind(fd, &address.any, length) == 0;
    }
    (void)!::write(output, &held, sizeof(held));
    for (;;) ::pause();
  }

  pid_t child_;
  uint32_t held_ = 0;
};

// When another user's program had bound all source ports that RoCEv2
// recommends, no queue pair could enter RTR.
TEST(SourcePortTest, UsesLowerPortsIfTheRecommendedOnesAreTaken) {
  if (!EnterFreshNetNamespace()) GTEST_SKIP() << "not allowed to";
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < PortHolder::kMax + 100) {
    GTEST_SKIP() << "too few descriptors";
  }
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  LocalAddress local;
  local.address = *wire::IpAddress::Parse("127.0.0.1");
  const PortHolder recommended(0xc000);
  ASSERT_EQ(recommended.held(), 0x4000u);
  uint16_t port = 0;
  {
    const absl::StatusOr<int> fd = OpenSender(local, &port);
    ASSERT_TRUE(fd.ok()) << fd.status();
    const UniqueFd sender(*fd);
    EXPECT_GE(port, 1024);
    EXPECT_LT(port, 0xc000);
    EXPECT_NE(port, wire::kRoceUdpPort);
  }
  // The error says what to do.
  const PortHolder low(1024), middle(1024 + PortHolder::kMax),
      high(0xc000 - PortHolder::kMax);
  ASSERT_EQ(low.held() + middle.held() + high.held(), 0xc000u - 1024);
  const absl::StatusOr<int> none = OpenSender(local, &port);
  EXPECT_EQ(none.status().message(),
            "no UDP source port of 127.0.0.1: other programs hold all from "
            "1024 on; `ss -uanp`, as root, shows which: end them, or give this "
            "program an address that they have not bound");
}

// Closed sockets free their entries; blocked sends are still sent.
TEST_P(PortTest, ClosesUnusedSendingSockets) {
  const uint16_t other = port_->SourcePort(local_, 6).value();
  const transport::Flow flow(av_);
  Queue(flow, {64});
  // Not the socket of `flow`, which has a queued send.
  EXPECT_EQ(port_->CloseUnusedSenders([](const auto&) {}), 1u);
  EXPECT_EQ(port_->SourcePort(local_, 5).value(), av_.source_port);
  port_->Flush();
  EXPECT_EQ(Receive(1).size(), 1u);

  ASSERT_TRUE(port_->SourcePort(local_, 6).ok());
  const auto used = [this](const auto& is_used) { is_used(av_); };
  EXPECT_EQ(port_->CloseUnusedSenders(used), 1u);
  EXPECT_EQ(port_->CloseUnusedSenders(used), 0u);
  EXPECT_EQ(port_->SourcePort(local_, 5).value(), av_.source_port);
  // The port of the closed socket is free.
  SocketAddress address;
  const socklen_t length = ToSocketAddress(local_.address, other, 0, &address);
  const int fd = ::socket(local_.address.is_v4() ? AF_INET : AF_INET6,
                          SOCK_DGRAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::bind(fd, &address.any, length), 0);
  ::close(fd);
  Queue(flow, {64});
  port_->Flush();
  EXPECT_EQ(Receive(1).size(), 1u);
}

TEST_P(PortTest, IgnoresForeignDatagrams) {
  // Empty and large datagrams of a foreign socket.
  const int fd = ::socket(local_.address.is_v4() ? AF_INET : AF_INET6,
                          SOCK_DGRAM | SOCK_CLOEXEC, 0);
  SocketAddress to;
  const socklen_t length =
      ToSocketAddress(local_.address, wire::kRoceUdpPort, 0, &to);
  std::vector<uint8_t> bytes(60'000);
  ::sendto(fd, bytes.data(), 0, 0, &to.any, length);
  ::sendto(fd, bytes.data(), bytes.size(), 0, &to.any, length);
  ::close(fd);
  size_t arrivals = 0;
  size_t total = 0;
  while (arrivals < 2) {
    for (const transport::GroBatch& arrival : port_->Receive(true)) {
      ++arrivals;
      total += arrival.bytes.size();
      EXPECT_GT(arrival.segment_size, 0u);
    }
  }
  EXPECT_EQ(total, bytes.size());
}

// Notes the time of the last packet.
class TimeObserver final : public transport::PacketObserver {
 public:
  explicit TimeObserver(bool wants) : wants_(wants) {}
  void OnPacket(const transport::ObservedPacket& packet) override {
    time = packet.kernel_time;
  }
  bool WantsKernelTime() const override { return wants_; }

  int64_t time = -1;

 private:
  const bool wants_;
};

int64_t RealTime() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool HasKernelTimes(const Port& port) {
  int on = -1;
  socklen_t size = sizeof(on);
  // The only socket.
  EXPECT_EQ(::getsockopt(port.ReceiveDescriptors().at(0), SOL_SOCKET,
                         SO_TIMESTAMPNS, &on, &size),
            0);
  return on != 0;
}

TEST_P(PortTest, TheKernelsTimeIsKnownIfAnObserverWantsIt) {
  TimeObserver indifferent(false);
  EXPECT_EQ(port_->Watch(&indifferent, nullptr), &indifferent);
  EXPECT_EQ(port_->Watch(nullptr, nullptr), nullptr);
  EXPECT_FALSE(HasKernelTimes(*port_));

  TimeObserver observer(true);
  transport::PacketObserver* const watching = port_->Watch(&observer, nullptr);
  EXPECT_TRUE(HasKernelTimes(*port_));
  const transport::Flow flow(av_);
  int64_t last = RealTime();
  // Single packets, and packets merged by GRO.
  for (const std::vector<size_t>& sizes :
       {std::vector<size_t>{64}, std::vector<size_t>{64, 64, 20}}) {
    Queue(flow, sizes);
    port_->Flush();
    size_t packets = 0;
    while (packets < sizes.size()) {
      for (const transport::GroBatch& batch : port_->Receive(true)) {
        const int64_t received = RealTime();
        for (size_t at = 0; at < batch.bytes.size();
             at += batch.segment_size, ++packets) {
          transport::ObservedPacket packet;
          packet.bytes = batch.bytes.subspan(
              at, std::min(batch.segment_size, batch.bytes.size() - at));
          watching->OnPacket(packet);
          EXPECT_GE(observer.time, last);
          EXPECT_LE(observer.time, received);
        }
      }
    }
    last = observer.time;
  }
  // Bytes from elsewhere, and packets that are sent.
  const uint8_t elsewhere[64] = {};
  transport::ObservedPacket packet;
  packet.bytes = elsewhere;
  watching->OnPacket(packet);
  EXPECT_EQ(observer.time, 0);
  observer.time = -1;
  packet.direction = transport::Direction::kTransmitted;
  watching->OnPacket(packet);
  EXPECT_EQ(observer.time, 0);
}

// An observer that compares the packets of both ends distinguishes equal ones
// by their hop limits.
TEST_P(PortTest, BurstsOfARecordingHaveDifferentHopLimits) {
  const auto arriving = [this](const std::vector<size_t>& sizes) {
    Queue(transport::Flow(av_), sizes);
    port_->Flush();
    std::vector<int> hop_limits;
    for (const Packet& packet : Receive(sizes.size())) {
      hop_limits.push_back(packet.arrival.hop_limit);
    }
    return hop_limits;
  };
  av_.hop_limit = 64;
  EXPECT_EQ(arriving({64}), std::vector{64});
  EXPECT_EQ(arriving({64}), std::vector{64});

  TimeObserver indifferent(false);
  port_->Watch(&indifferent, nullptr);
  EXPECT_EQ(arriving({64}), std::vector{64});

  TimeObserver observer(true);
  port_->Watch(&observer, nullptr);
  std::set<int> different;
  for (int burst = 0; burst < 32; ++burst) {
    const std::vector<int> hop_limits = arriving({64, 64, 20});
    ASSERT_EQ(hop_limits.size(), 3u);
    EXPECT_EQ(hop_limits, std::vector(3, hop_limits[0]));
    EXPECT_TRUE(different.insert(hop_limits[0]).second) << hop_limits[0];
  }
  EXPECT_EQ(*different.begin(), 33);
  EXPECT_EQ(*different.rbegin(), 64);
  // Begin says which one it will be.
  av_.hop_limit = 200;
  const transport::Flow flow(av_);
  const int mark = port_->Begin(flow)->hop_mark();
  EXPECT_EQ(arriving({64}), std::vector{200 - (mark + 1) % 32});
  // A small hop limit that the program chose stays as it is.
  av_.hop_limit = 63;
  EXPECT_EQ(arriving({64}), std::vector{63});
  EXPECT_EQ(arriving({64}), std::vector{63});
}

// The next owner of a socket that was recorded does not record.
TEST_P(PortTest, ASocketOfAFormerOwnerHasNoKernelTimes) {
  port_->RemoveReceiver(local_.address);
  const int former = Bind();
  ASSERT_GE(former, 0);
  SetKernelTimes(former, true);
  ASSERT_TRUE(port_->AddReceiver(local_, former).ok());
  EXPECT_FALSE(HasKernelTimes(*port_));
}

int BusyPollOf(int fd) {
  int us = -1;
  socklen_t length = sizeof(us);
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, &length), 0);
  return us;
}

// Receives poll the interface's queue if RXE_USER_SPIN_US asks for busy
// polling. The next owner of the socket decides for itself.
TEST_P(PortTest, SpinningAlsoPollsTheInterface) {
  port_->RemoveReceiver(local_.address);
  int fd = Bind();
  ASSERT_GE(fd, 0);
  const int one = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &one, sizeof(one)) != 0) {
    close(fd);
    GTEST_SKIP() << "SO_BUSY_POLL takes CAP_NET_ADMIN";
  }
  ASSERT_TRUE(port_->AddReceiver(local_, fd).ok());
  EXPECT_EQ(BusyPollOf(fd), 0);
  port_.reset();

  setenv("RXE_USER_SPIN_US", "100", 1);
  Open(GetParam().address, GetParam().create);
  unsetenv("RXE_USER_SPIN_US");
  const std::vector<int> descriptors = port_->ReceiveDescriptors();
  ASSERT_FALSE(descriptors.empty());
  EXPECT_EQ(BusyPollOf(descriptors[0]), 1);
  Queue(transport::Flow(av_), {64});
  port_->Flush();
  EXPECT_EQ(Receive(1).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Addresses, PortTest,
    ::testing::Values(
        Ends{"v4", "127.0.0.1", UdpPort::Create},
        Ends{"v6", "::1", UdpPort::Create},
        Ends{"v4_uring", "127.0.0.1", LoopbackPortTest::CreateUring},
        Ends{"v6_uring", "::1", LoopbackPortTest::CreateUring},
        Ends{"v4_bulk", "127.0.0.1", LoopbackPortTest::CreateForBulk},
        Ends{"v6_bulk", "::1", LoopbackPortTest::CreateForBulk},
        Ends{"v4_sqpoll", "127.0.0.1", LoopbackPortTest::CreateSqpoll},
        Ends{"v6_sqpoll", "::1", LoopbackPortTest::CreateSqpoll}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace rxe_user
