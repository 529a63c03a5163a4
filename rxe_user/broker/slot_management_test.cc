// Messages from the broker to a slot about queue pair 1: MADs for which there
// is no memory, and the question for the slot's connections.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/broker/udp.h"
#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "wire/cm.h"
#include "wire/packet.h"

namespace {

// Allocations that still succeed on this thread; negative: all.
thread_local int news_left = -1;

}  // namespace

void* operator new(std::size_t size) {
  if (news_left == 0) throw std::bad_alloc();
  if (news_left > 0) --news_left;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace rxe_user::broker {
namespace {

const LocalAddress kLocal = {Ip("127.0.0.1")};

// Sends MADs to `to`, and receives MADs, at a port of an address. Over IPv6 it
// sends no UDP checksum, which RoCE allows.
class MadPeer {
 public:
  explicit MadPeer(const char* address, const LocalAddress& to = kLocal,
                   uint16_t port = wire::kRoceUdpPort)
      : address_(Ip(address)),
        port_(port),
        local_(to.address),
        to_(ToSocketAddress(to, wire::kRoceUdpPort)),
        fd_(BindUdp({address_}, port, Sharing::kExclusive)) {
    EXPECT_TRUE(fd_.valid());
    const int one = 1;
    setsockopt(fd_.get(), IPPROTO_UDP, UDP_NO_CHECK6_TX, &one, sizeof(one));
    const int discover = IP_PMTUDISC_DO;
    setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover,
               sizeof(discover));
  }
  template <typename M>
  void Send(const M& message) {
    transport::cm::Mad mad;
    wire::EmitCm({.id = 77}, message, mad);
    std::array<uint8_t, transport::cm::kMadPacketSize> packet;
    transport::cm::EmitMadPacket(
        {.source = address_, .destination = local_, .source_port = port_},
        ++psn_, mad, packet);
    EXPECT_GT(
        sendto(fd_.get(), packet.data(), packet.size(), 0, to_.get(), to_.size),
        0);
  }
  bool HasReceived() {
    uint8_t byte;
    return recv(fd_.get(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_PEEK) > 0;
  }
  // The next DREQ.
  std::optional<wire::CmDreq> Disconnected() {
    std::array<uint8_t, 2 * transport::cm::kMadPacketSize> bytes;
    const ssize_t n = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0) return std::nullopt;
    std::span<const uint8_t> mad;
    wire::CmView view;
    EXPECT_EQ(transport::cm::ParseMadPacket(
                  {.source = kLocal.address,
                   .destination = address_,
                   .source_port = wire::kRoceUdpPort},
                  std::span(bytes).first(static_cast<size_t>(n)), &mad),
              transport::cm::MadPacketError::kOk);
    EXPECT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk);
    EXPECT_EQ(view.attribute(), wire::CmAttribute::kDreq);
    return view.dreq();
  }
  const wire::IpAddress& address() const { return address_; }

 private:
  const wire::IpAddress address_;
  const uint16_t port_;
  const wire::IpAddress local_;
  const SocketAddress to_;
  const UniqueFd fd_;
  uint32_t psn_ = 0;
};

class SlotManagementTest : public BrokerTest {
 protected:
  void SetUp() override {
    BrokerTest::SetUp();
    auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok()) << slot.status();
    slot_ = *std::move(slot);
    slot_->TellConnections([this] {
      ++asked_;
      return connections_;
    });
    const auto fd = slot_->OpenAddress(kLocal);
    ASSERT_TRUE(fd.ok()) << fd.status();
    socket_.Reset(*fd);
  }
  void TearDown() override {
    slot_.reset();
    socket_.Reset();
    BrokerTest::TearDown();
  }
  // Processes all messages that have arrived. Returns the number of MADs.
  int Hear() {
    int heard = 0;
    slot_->OnReadable([&](const Stray&) { ++heard; });
    return heard;
  }
  // Waits until there is a message.
  void AwaitReadable() {
    pollfd readable = {slot_->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  }
  // Receives a request of `peer`, communication ID 8 and queue pair 0x22, for a
  // service on which the slot listens from now on.
  void HearRequestOf(MadPeer& peer) {
    ASSERT_TRUE(
        slot_
            ->Reserve(1,
                      {.service_id = 0x1000, .local = kLocal, .listening = 1})
            .ok());
    wire::CmReq request = {};
    request.local_comm_id = 8;
    request.service_id = 0x1000;
    request.local_qpn = 0x22;
    peer.Send(request);
    int heard = 0;
    ASSERT_TRUE(Eventually([&] { return (heard += Hear()) > 0; }));
  }
  // Expects the DREQ for the slot's communication ID 5, whose process has
  // ended.
  void ExpectDisconnected(MadPeer& peer) {
    std::optional<wire::CmDreq> dreq;
    ASSERT_TRUE(
        Eventually([&] { return (dreq = peer.Disconnected()).has_value(); }));
    EXPECT_EQ(dreq->local_comm_id & 0xfffff, 5u);
    EXPECT_EQ(dreq->remote_comm_id, 8u);
    EXPECT_EQ(dreq->remote_qpn, 0x22u);
  }
  uint32_t Id(uint32_t number) const {
    return uint32_t{slot_->number()} << 20 | number;
  }

  std::unique_ptr<Slot> slot_;
  UniqueFd socket_;
  int asked_ = 0;
  std::vector<OpenConnection> connections_;
};

// A call that waits for its reply reads an earlier MAD.
TEST_F(SlotManagementTest, AMadArrivesAlthoughACallHadNoMemoryForIt) {
  MadPeer peer("127.0.0.2");
  bool done = false;
  for (int granted = 0; !done; ++granted) {
    ASSERT_LT(granted, 100);
    peer.Send(wire::CmMra{.local_comm_id = 8, .remote_comm_id = Id(1)});
    ASSERT_NO_FATAL_FAILURE(AwaitReadable());
    news_left = granted;
    try {
      const absl::Status status = slot_->Reserve(
          static_cast<uint32_t>(granted + 1),
          {.service_id = 0x1000u + static_cast<uint32_t>(granted),
           .local = kLocal,
           .listening = 1});
      done = news_left > 0;
      news_left = -1;
      EXPECT_TRUE(status.ok()) << status;
    } catch (const std::bad_alloc&) {
      news_left = -1;
    }
    int heard = 0;
    EXPECT_TRUE(Eventually([&] { return (heard += Hear()) > 0; })) << granted;
    EXPECT_EQ(heard, 1) << granted;
  }
}

// The broker asks, since only the process knows which connections are real.
TEST_F(SlotManagementTest, AProcessIsAskedForItsConnections) {
  constexpr uint32_t kForged = 4200;
  constexpr uint32_t kBatch = 64;
  MadPeer real("127.0.0.2");
  MadPeer forger("127.0.0.3");
  for (uint32_t i = 0; i < kForged;) {
    const uint32_t end = std::min(i + kBatch, kForged);
    int heard = 0;
    for (const uint32_t begin = i; i < end; ++i) {
      forger.Send(
          wire::CmRep{.local_comm_id = i + 1, .remote_comm_id = Id(i + 1)});
      if (i + 1 == end) {
        ASSERT_TRUE(Eventually([&] {
          return (heard += Hear()) >= static_cast<int>(end - begin);
        }));
      }
    }
  }
  connections_ = {{.local = kLocal,
                   .peer = real.address(),
                   .local_id = Id(0x80000),
                   .remote_id = 8,
                   .remote_qpn = 0x22}};
  const int before = asked_;
  real.Send(wire::CmRep{
      .local_comm_id = 8, .remote_comm_id = Id(0x80000), .local_qpn = 0x22});
  ASSERT_TRUE(Eventually([&] { return Hear(), asked_ > before; }));
  slot_.reset();
  std::optional<wire::CmDreq> dreq;
  ASSERT_TRUE(
      Eventually([&] { return (dreq = real.Disconnected()).has_value(); }));
  EXPECT_EQ(dreq->local_comm_id & 0xfffff, 0x80000u);
  EXPECT_EQ(dreq->remote_comm_id, 8u);
  EXPECT_EQ(dreq->remote_qpn, 0x22u);
  // A DREQ to the forger would have arrived earlier.
  EXPECT_FALSE(forger.HasReceived());
}

// RTUs are steered, so that no other process has to wake up for them.
TEST_F(SlotManagementTest, AnRtuArrivesAtItsSlotsSocket) {
  MadPeer peer("127.0.0.2");
  peer.Send(wire::CmRtu{.local_comm_id = 8, .remote_comm_id = Id(1)});
  pollfd readable = {socket_.get(), POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 20'000), 1);
  // Other messages come through the broker.
  peer.Send(wire::CmMra{.local_comm_id = 8, .remote_comm_id = Id(1)});
  ASSERT_NO_FATAL_FAILURE(AwaitReadable());
  EXPECT_EQ(Hear(), 1);
}

// Linux's rxe sends no UDP checksum over IPv6 either.
TEST_F(SlotManagementTest, AnRtuWithoutUdpChecksumArrivesOverIpv6) {
  const LocalAddress local = {Ip("::1")};
  const auto fd = slot_->OpenAddress(local);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const UniqueFd socket(*fd);
  MadPeer peer("::1", local, wire::kRoceUdpPort - 1);
  peer.Send(wire::CmRtu{.local_comm_id = 8, .remote_comm_id = Id(1)});
  pollfd readable = {socket.get(), POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 20'000), 1);
}

// A process may be killed before it has read a steered RTU.
TEST_F(SlotManagementTest, AnUnreadRtuCountsAsAConnection) {
  MadPeer peer("127.0.0.2");
  ASSERT_NO_FATAL_FAILURE(HearRequestOf(peer));
  peer.Send(wire::CmRtu{.local_comm_id = 8, .remote_comm_id = Id(5)});
  pollfd readable = {socket_.get(), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  slot_.reset();
  ExpectDisconnected(peer);
}

// The broker has not seen the RTU itself.
TEST_F(SlotManagementTest, AConnectionIsReportedToTheBroker) {
  MadPeer peer("127.0.0.2");
  ASSERT_NO_FATAL_FAILURE(HearRequestOf(peer));
  slot_->TellConnected({.local = kLocal,
                        .peer = peer.address(),
                        .local_id = Id(5),
                        .remote_id = 8,
                        .remote_qpn = 0x22});
  slot_.reset();
  ExpectDisconnected(peer);
}

}  // namespace
}  // namespace rxe_user::broker
