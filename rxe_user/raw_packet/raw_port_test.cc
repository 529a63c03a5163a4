// Packet sockets on the loopback interface, in the test's own network
// namespace.
#include "rxe_user/raw_packet/raw_port.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/raw_packet/offload_header.h"
#include "rxe_user/testing/net_namespace.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace rxe_user {
namespace {

using Bytes = std::vector<uint8_t>;

class RawPortTest : public testing::Test {
 protected:
  // Stores the received frames.
  class Inbox final : public transport::FrameDestination {
   public:
    void OnFrame(const transport::ReceivedFrame& received, uint32_t,
                 transport::Time) override {
      frames.emplace_back(received.frame.bytes.begin(),
                          received.frame.bytes.end());
    }
    size_t FrameRoom() const override { return room; }
    std::vector<Bytes> frames;
    size_t room = transport::kManyFrames;
  };

  void SetUp() override { Open("lo", true); }
  void Open(const char* interface, bool loopback) {
    Device device;
    device.ifindex = if_nametoindex(interface);
    device.loopback = loopback;
    auto port = RawPort::Open(device);
    if (!port.ok()) GTEST_SKIP() << port.status();
    port_ = *std::move(port);
    rule_.kind = transport::FlowKind::kSniffer;
    rule_.destination = &inbox_;
  }
  static Bytes Frame(size_t payload, std::optional<uint16_t> vlan = {}) {
    wire::FrameHeaders headers;
    headers.src = *wire::IpAddress::Parse("10.0.0.1");
    headers.dst = *wire::IpAddress::Parse("10.0.0.2");
    headers.vlan = vlan;
    return wire::BuildFrame(headers, Bytes(payload, 7));
  }
  void Send(const Bytes& frame) {
    uint8_t* const out = port_->transmitter().Reserve(frame.size());
    ASSERT_NE(out, nullptr);
    std::memcpy(out, frame.data(), frame.size());
    port_->transmitter().Commit();
  }
  void Listen() {
    int fresh = -1;
    ASSERT_TRUE(port_->Prepare(rule_, &fresh).ok());
    ASSERT_GE(fresh, 0);
    port_->flows().Add(&rule_);
  }
  // Waits until `count` frames have arrived.
  void Await(size_t count) {
    while (inbox_.frames.size() < count) {
      pollfd readable = {port_->descriptor(), POLLIN, 0};
      ASSERT_EQ(poll(&readable, 1, 20'000), 1) << inbox_.frames.size();
      port_->Receive(1, false);
    }
  }

  std::unique_ptr<RawPort> port_;
  transport::FlowRule rule_;
  Inbox inbox_;
};

TEST_F(RawPortTest, SeveralFramesAreSentByOneCallAndReceivedOnce) {
  Listen();
  std::vector<Bytes> frames;
  for (size_t i = 0; i < 100; ++i) frames.push_back(Frame(i));
  for (const Bytes& frame : frames) Send(frame);
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(frames.size());
  EXPECT_EQ(inbox_.frames, frames);
}

TEST_F(RawPortTest, TheVlanTagKeepsItsPlace) {
  Listen();
  const Bytes tagged = Frame(50, 100);
  Send(tagged);
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(1);
  EXPECT_EQ(inbox_.frames[0], tagged);
}

TEST_F(RawPortTest, FramesUpToTheInterfacesMtu) {
  Listen();
  EXPECT_EQ(port_->transmitter().max_frame(), 65550u);
  const Bytes frame = Frame(65000);
  Send(frame);
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(1);
  EXPECT_EQ(inbox_.frames[0], frame);
  if (!SetLoopbackMtu(1500)) return;
  port_->transmitter().ReadMtu();
  EXPECT_EQ(port_->transmitter().max_frame(), 1514u);
  Send(frame);  // refused by the system: dropped
  Send(Frame(10));
  EXPECT_TRUE(port_->transmitter().Flush());
  EXPECT_EQ(port_->transmitter().dropped(), 1u);
  Await(2);
  EXPECT_EQ(inbox_.frames[1], Frame(10));
  SetLoopbackMtu(65536);
}

TEST_F(RawPortTest, TheSocketExistsWhileThereAreRules) {
  EXPECT_EQ(port_->descriptor(), -1);
  Listen();
  int fresh = 0;
  ASSERT_TRUE(port_->Prepare(rule_, &fresh).ok());
  EXPECT_EQ(fresh, -1);
  EXPECT_EQ(port_->Retire(rule_), -1);
  const int fd = port_->descriptor();
  EXPECT_GE(fd, 0);
  port_->flows().Remove(&rule_);
  EXPECT_EQ(port_->Retire(rule_), fd);
  EXPECT_EQ(port_->descriptor(), -1);
  port_->Close();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(port_->Receive(1, false), 0u);
}

// A polling program will post receives for frames that have arrived.
TEST_F(RawPortTest, FramesWithoutReceivesAreLeftForAWhile) {
  Listen();
  inbox_.room = 2;
  for (size_t i = 0; i < 5; ++i) Send(Frame(i));
  ASSERT_TRUE(port_->transmitter().Flush());
  port_->Receive(1, true);
  EXPECT_EQ(inbox_.frames.size(), 2u);
  inbox_.room = 0;
  EXPECT_EQ(port_->Receive(2, true), 0u);
  EXPECT_EQ(port_->Receive(1'000'000, true), 0u);
  inbox_.room = 1;
  port_->Receive(1'000'001, true);
  EXPECT_EQ(inbox_.frames.size(), 3u);
  inbox_.room = 0;
  EXPECT_EQ(port_->Receive(2'000'000, true), 0u);
  port_->Receive(102'000'001, true);
  EXPECT_EQ(inbox_.frames.size(), 5u);
}

TEST_F(RawPortTest, UncommittedFramesAreNotSent) {
  Listen();
  ASSERT_NE(port_->transmitter().Reserve(100), nullptr);
  Send(Frame(20));
  ASSERT_TRUE(port_->transmitter().Flush());
  Await(1);
  EXPECT_EQ(inbox_.frames[0], Frame(20));
}

// --- Frames that the kernel merges. A packet socket at the other end of a veth
// sends them, and the veth passes them on unchanged.

class MergedFramesTest : public RawPortTest {
 protected:
  void SetUp() override {
    if (system("ip link add rxeu_a type veth peer name rxeu_b && "
               "ip link set rxeu_a up && ip link set rxeu_b up") != 0) {
      GTEST_SKIP() << "needs ip and veth";
    }
    made_ = true;
    Open("rxeu_a", false);
    if (IsSkipped()) return;
    Listen();
  }
  void TearDown() override {
    port_.reset();
    if (made_) {
      EXPECT_EQ(system("ip link del rxeu_a"), 0);
    }
  }

  bool made_ = false;

  // A frame of Ethernet, IPv4 or IPv6, `protocol`, and `payload` bytes.
  static Bytes Whole(bool v6, uint8_t protocol, size_t payload) {
    const size_t layer4 = protocol == 6 ? 20 : 8;
    const size_t ip = v6 ? 40 : 20;
    Bytes frame(14 + ip + layer4 + payload);
    wire::StoreBe16(&frame[12], v6 ? 0x86dd : 0x0800);
    uint8_t* const at = &frame[14];
    at[0] = v6 ? 0x60 : 0x45;
    wire::StoreBe16(at + (v6 ? 4 : 2),
                    static_cast<uint16_t>(layer4 + payload + (v6 ? 0 : ip)));
    at[v6 ? 7 : 8] = 64;
    at[v6 ? 6 : 9] = protocol;
    at[v6 ? 8 : 12] = 10;
    at[v6 ? 24 : 16] = 11;
    uint8_t* const header = at + ip;
    wire::StoreBe16(header, 1000);
    wire::StoreBe16(header + 2, 2000);
    if (protocol == 6) {
      header[12] = 0x50;
      header[13] = 0x18;  // ACK, PSH
    } else {
      wire::StoreBe16(header + 4, static_cast<uint16_t>(layer4 + payload));
    }
    for (size_t i = 0; i < payload; ++i) {
      header[layer4 + i] = static_cast<uint8_t>(i / 7);
    }
    return frame;
  }
  // False: this kernel refuses the frame.
  static bool SendWhole(const Bytes& frame, uint8_t type, uint16_t size,
                        bool v6, uint8_t protocol) {
    const size_t start = 14 + (v6 ? 40 : 20);
    OffloadHeader offload = {};
    offload.flags = kNeedsChecksum;
    offload.gso_type = type;
    offload.gso_size = size;
    offload.header_length =
        static_cast<uint16_t>(start + (protocol == 6 ? 20 : 8));
    offload.checksum_start = static_cast<uint16_t>(start);
    offload.checksum_offset = protocol == 6 ? 16 : 6;
    const UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    constexpr int kOn = 1;
    sockaddr_ll to = {};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(v6 ? ETH_P_IPV6 : ETH_P_IP);
    to.sll_ifindex = static_cast<int>(if_nametoindex("rxeu_b"));
    EXPECT_EQ(
        ::setsockopt(fd.get(), SOL_PACKET, PACKET_VNET_HDR, &kOn, sizeof(kOn)),
        0);
    EXPECT_EQ(
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
        0);
    Bytes bytes(sizeof(offload));
    std::memcpy(bytes.data(), &offload, sizeof(offload));
    bytes.insert(bytes.end(), frame.begin(), frame.end());
    return ::send(fd.get(), bytes.data(), bytes.size(), 0) ==
           static_cast<ssize_t>(bytes.size());
  }
  // The segments of Whole. Skips frames that the interfaces send by themselves.
  std::vector<wire::EthernetFrame> Segments(uint8_t protocol, size_t count) {
    std::vector<wire::EthernetFrame> segments;
    for (size_t seen = 0; segments.size() < count; ++seen) {
      Await(seen + 1);
      wire::EthernetFrame frame;
      if (HasFatalFailure() ||
          !wire::ParseEthernet(inbox_.frames[seen], &frame)) {
        break;
      }
      if (frame.protocol == protocol && frame.layer4 != wire::Layer4::kOther &&
          wire::LoadBe16(frame.transport_header()) == 1000) {
        segments.push_back(frame);
      }
    }
    return segments;
  }
};

TEST_F(MergedFramesTest, TcpIsSplitIntoItsSegments) {
  for (const bool v6 : {false, true}) {
    inbox_.frames.clear();
    const Bytes whole = Whole(v6, 6, 3000);
    ASSERT_TRUE(SendWhole(whole, v6 ? kGsoTcp6 : kGsoTcp4, 1200, v6, 6));
    const auto segments = Segments(6, 3);
    ASSERT_EQ(segments.size(), 3u);
    size_t at = 0;
    for (const wire::EthernetFrame& frame : segments) {
      const uint8_t* const tcp = frame.transport_header();
      EXPECT_EQ(wire::LoadBe32(tcp + 4), at);
      const size_t payload = frame.end - frame.transport - 20;
      EXPECT_EQ(frame.end, frame.bytes.size());
      EXPECT_EQ(payload, at == 2400 ? 600u : 1200u);
      EXPECT_EQ(tcp[13], at == 2400 ? 0x18 : 0x10);
      EXPECT_EQ(
          std::memcmp(tcp + 20, &whole[whole.size() - 3000 + at], payload), 0);
      if (!v6) {
        EXPECT_TRUE(wire::Ipv4ChecksumsAreGood(frame));
      }
      at += payload;
    }
  }
}

TEST_F(MergedFramesTest, UdpIsSplitIntoItsDatagrams) {
  for (const bool v6 : {false, true}) {
    inbox_.frames.clear();
    const Bytes whole = Whole(v6, 17, 2500);
    if (!SendWhole(whole, kGsoUdp, 1000, v6, 17)) {
      GTEST_SKIP() << "Linux before 6.2 has no merged UDP here";
    }
    const auto segments = Segments(17, 3);
    ASSERT_EQ(segments.size(), 3u);
    size_t at = 0;
    for (const wire::EthernetFrame& frame : segments) {
      const uint8_t* const udp = frame.transport_header();
      const size_t payload = frame.end - frame.transport - 8;
      EXPECT_EQ(payload, at == 2000 ? 500u : 1000u);
      EXPECT_EQ(wire::LoadBe16(udp + 4), payload + 8);
      EXPECT_EQ(std::memcmp(udp + 8, &whole[whole.size() - 2500 + at], payload),
                0);
      if (!v6) {
        EXPECT_TRUE(wire::Ipv4ChecksumsAreGood(frame));
      }
      at += payload;
    }
  }
}

}  // namespace
}  // namespace rxe_user
