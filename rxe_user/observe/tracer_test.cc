#include "rxe_user/observe/tracer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rxe_user/observe/observed_frame.h"
#include "wire/dc.h"
#include "wire/frame.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using trace::EventHeader;
using transport::ObservedPacket;

constexpr uint32_t kQpn = 0x51;
constexpr std::chrono::seconds kPatience{20};

class TracerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rxe_user_tracer_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ + "/a.pcapng"; }
  void Open(const BufferedFile::Limits& limits = {}) {
    tracer_ = Tracer::Begin(file(), {.limits = limits});
    ASSERT_NE(tracer_, nullptr);
  }

  // The events of this type in the file, in order.
  template <typename Event>
  std::vector<Event> Read() {
    tracer_->Flush(kPatience);
    std::ifstream in(file(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const uint32_t magic = trace::kMagic;
    const std::string begin(reinterpret_cast<const char*>(&magic), 4);
    std::vector<Event> events;
    for (size_t at = 0; (at = bytes.find(begin, at)) != std::string::npos;
         ++at) {
      Event event;
      if (bytes.size() - at < sizeof(event)) break;
      std::memcpy(&event.header, bytes.data() + at, sizeof(EventHeader));
      if (event.header.type != static_cast<uint16_t>(Event::kType)) continue;
      std::memcpy(&event, bytes.data() + at, sizeof(event));
      events.push_back(event);
    }
    return events;
  }

  // A packet to the queue pair.
  ObservedPacket Received(wire::Operation operation, uint32_t psn) {
    wire::Headers headers;
    headers.bth.opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
    headers.bth.dest_qpn = kQpn;
    headers.bth.psn = psn;
    bytes_.assign(wire::kBthSize + 8 + wire::kIcrcSize, 0);
    wire::EmitHeaders(headers, bytes_.data());
    ObservedPacket packet;
    packet.bytes = bytes_;
    packet.source = *wire::IpAddress::Parse("192.0.2.1");
    packet.destination = *wire::IpAddress::Parse("192.0.2.2");
    return packet;
  }

  // So that the queue pair is known.
  void SetMtu() {
    const transport::QpAttributes attributes;
    tracer_->OnRareEvent({.qpn = kQpn}, transport::QpType::kRc, &attributes);
  }

  std::string folder_;
  std::unique_ptr<Tracer> tracer_;
  std::vector<uint8_t> bytes_;
};

// A rule that delays a packet has its event when it does so, also if the packet
// is still held at the end.
TEST_F(TracerTest, AFaultThatHoldsAPacket) {
  Open();
  ObservedPacket packet = Received(wire::Operation::kWriteMiddle, 7);
  transport::ObservedFault fault = {
      .rule = 3, .action = 2, .delay = 5000, .text = "delay 5us rx"};
  packet.fault = &fault;
  fault.held = tracer_->OnHeld(packet);
  const auto held = Read<trace::FaultEvent>();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].header.id, fault.held);
  EXPECT_EQ(held[0].header.cause, 0u);
  EXPECT_EQ(held[0].header.qpn, kQpn);
  EXPECT_EQ(held[0].rule, 3u);
  EXPECT_EQ(held[0].delay, 5000u);
  EXPECT_EQ(held[0].psn, 7u);
  EXPECT_EQ(held[0].opcode, 7);
  EXPECT_EQ(held[0].way, 1);
  EXPECT_TRUE(Read<trace::PacketEvent>().empty());

  tracer_->OnPacket(packet);
  const auto packets = Read<trace::PacketEvent>();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].header.cause, fault.held);
  EXPECT_EQ(Read<trace::FaultEvent>().size(), 1u);
}

TEST_F(TracerTest, AFaultThatHoldsNothing) {
  Open();
  ObservedPacket packet = Received(wire::Operation::kWriteMiddle, 7);
  const transport::ObservedFault fault = {.rule = 3, .text = "ce rx"};
  packet.fault = &fault;
  tracer_->OnPacket(packet);
  const auto faults = Read<trace::FaultEvent>();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].header.cause, Read<trace::PacketEvent>()[0].header.id);
  EXPECT_EQ(faults[0].psn, 7u);
}

TEST_F(TracerTest, AnOverflow) {
  Open();
  tracer_->OnOverflow(17);
  const auto overflows = Read<trace::OverflowEvent>();
  ASSERT_EQ(overflows.size(), 1u);
  EXPECT_EQ(overflows[0].packets, 17u);
}

// Changes that are small have no event.
TEST_F(TracerTest, ChangesOfAPath) {
  Open();
  SetMtu();
  transport::ObservedPath path = {.window = 8000, .in_flight = 500};
  const auto see = [&] {
    ObservedPacket packet = Received(wire::Operation::kWriteMiddle, 7);
    packet.path = &path;
    tracer_->OnPacket(packet);
  };
  see();
  path.window = 9000;
  see();
  path.window = 9001;
  see();
  path.round_trip = 100;
  see();
  path.round_trip = 150;
  see();
  path.rate = 5;
  see();
  const auto paths = Read<trace::PathEvent>();
  const auto packets = Read<trace::PacketEvent>();
  ASSERT_EQ(packets.size(), 6u);
  ASSERT_EQ(paths.size(), 4u);
  const size_t after[] = {0, 2, 3, 5};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(paths[i].header.cause, packets[after[i]].header.id);
    EXPECT_EQ(paths[i].header.qpn, kQpn);
    EXPECT_EQ(paths[i].peer[15], 1);
  }
  EXPECT_EQ(paths[0].window, 8000u);
  EXPECT_EQ(paths[0].in_flight, 500u);
  EXPECT_EQ(paths[1].window, 9001u);
  EXPECT_EQ(paths[2].round_trip, 100u);
  EXPECT_EQ(paths[3].rate, 5u);
}

// A packet with congestion experienced is answered by a CNP.
TEST_F(TracerTest, CongestionNotifications) {
  Open();
  SetMtu();
  transport::ObservedPath path = {.window = 8000};
  ObservedPacket marked = Received(wire::Operation::kWriteMiddle, 7);
  marked.traffic_class = 3;
  tracer_->OnPacket(marked);
  tracer_->OnPacket(marked);  // too soon for another CNP
  ObservedPacket cnp = Received(wire::Operation::kWriteMiddle, 0);
  bytes_[0] = wire::kOpcodeCnp;
  bytes_.resize(wire::kBthSize + wire::kCnpPayloadSize + wire::kIcrcSize);
  cnp.bytes = bytes_;
  cnp.path = &path;
  cnp.direction = transport::Direction::kTransmitted;
  cnp.qpn = kQpn;
  tracer_->OnPacket(cnp);
  tracer_->OnPacket(cnp);  // because of an overflow
  cnp.direction = transport::Direction::kReceived;
  path.rate = 1000;
  tracer_->OnPacket(cnp);
  path.cnps_ignored = 1;
  tracer_->OnPacket(cnp);
  const auto packets = Read<trace::PacketEvent>();
  ASSERT_EQ(packets.size(), 6u);
  const auto cnps = Read<trace::CnpEvent>();
  ASSERT_EQ(cnps.size(), 4u);
  EXPECT_EQ(cnps[0].way, 0);
  EXPECT_EQ(cnps[0].header.cause, packets[0].header.id);
  EXPECT_EQ(cnps[0].rate, 0u);
  EXPECT_EQ(cnps[1].way, 0);
  EXPECT_EQ(cnps[1].header.cause, 0u);
  EXPECT_EQ(cnps[2].way, 1);
  EXPECT_EQ(cnps[2].header.cause, packets[4].header.id);
  EXPECT_EQ(cnps[2].rate, 1000u);
  EXPECT_EQ(cnps[2].ignored, 0);
  EXPECT_EQ(cnps[3].ignored, 1);
}

// Readers need all headers of a packet, also where they end behind the 96th
// byte of the frame.
TEST_F(TracerTest, PacketsHaveAllTheirHeaders) {
  struct Row {
    std::string what;
    size_t headers;
  };
  Open();
  std::vector<Row> rows;
  const auto add = [&](const std::string& address, uint8_t opcode,
                       const wire::OpcodeInfo& info, size_t more) {
    bytes_.assign(info.header_length + more + wire::kIcrcSize, 0);
    wire::Headers headers;
    headers.bth.opcode = opcode;
    headers.bth.dest_qpn = kQpn;
    if (&info == &wire::GetDcAnswerInfo()) {
      headers.aeth.syndrome = wire::kDcAnswerSyndrome;
    }
    wire::EmitHeaders(headers, bytes_.data());
    ObservedPacket packet;
    packet.bytes = bytes_;
    packet.source = *wire::IpAddress::Parse(address + "1");
    packet.destination = *wire::IpAddress::Parse(address + "2");
    tracer_->OnPacket(packet);
    rows.push_back(
        {address + " " + info.name + " " + std::to_string(more) + " bytes",
         info.header_length});
  };
  for (const char* const address : {"192.0.2.", "2001:db8::"}) {
    for (size_t opcode = 0; opcode < 256; ++opcode) {
      const auto& info = wire::GetOpcodeInfo(static_cast<uint8_t>(opcode));
      if (!info.known) continue;
      add(address, static_cast<uint8_t>(opcode), info, 0);
      if (!info.carries_payload) continue;
      add(address, static_cast<uint8_t>(opcode), info, 1024);
    }
    add(address,
        wire::MakeOpcode(wire::Transport::kDc, wire::Operation::kAcknowledge),
        wire::GetDcAnswerInfo(), 0);
  }
  tracer_->Flush(kPatience);
  std::ifstream in(file(), std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const auto number = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, file.data() + at, sizeof(value));
    return value;
  };
  constexpr uint32_t kPacketBlock = 6;
  constexpr size_t kFrameAt = 28;
  size_t row = 0;
  for (size_t at = 0; at + kFrameAt <= file.size(); at += number(at + 4)) {
    if (number(at) != kPacketBlock) continue;
    ASSERT_LT(row, rows.size());
    const std::span frame(
        reinterpret_cast<const uint8_t*>(file.data()) + at + kFrameAt,
        number(at + 20));
    wire::Frame decoded;
    EXPECT_EQ(wire::DecodeFrame(static_cast<int>(wire::LinkType::kLinuxSll),
                                frame, &decoded),
              wire::FrameKind::kUdp);
    EXPECT_GE(decoded.udp_payload.size(), rows[row].headers) << rows[row].what;
    EXPECT_LE(frame.size(), std::max(trace::kFrameBytes,
                                     kMaxFrameHeaders + rows[row].headers))
        << rows[row].what;
    ++row;
  }
  EXPECT_EQ(row, rows.size());
  EXPECT_GT(row, 200u);
}

// A signal handler that interrupts a thread inside of Append may call exit.
TEST_F(TracerTest, TheEndOfAProgramInsideOfARecord) {
  const auto end = [&] {
    ::alarm(60);
    // No event has room, so something is missing in the file.
    Open({.buffer_bytes = 400,
          .flush_after = std::chrono::hours(1),
          .longest_wait = std::chrono::milliseconds(0)});
    for (int i = 0; i < 4; ++i) {
      tracer_->OnPacket(Received(wire::Operation::kWriteMiddle, 7));
    }
    tracer_->LockForFork();
    tracer_->Flush(std::chrono::milliseconds(1));
    _exit(42);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace rxe_user
