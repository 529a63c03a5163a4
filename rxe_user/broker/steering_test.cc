// The steering program, run by an interpreter of classic BPF and attached to a
// socket.
#include "rxe_user/broker/steering.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

#include "rxe_user/broker/udp.h"
#include "transport/cm/mad_packet.h"
#include "wire/cm.h"

namespace rxe_user::broker {
namespace {

constexpr uint32_t kProbeWord = 0xff123456;
constexpr uint16_t kBroker = 4321;  // an index that is no slot
using Bytes = std::vector<uint8_t>;

// Returns the program's result. `steps` counts instructions. A read beyond the
// packet ends the program with 0, as in the kernel.
uint32_t Result(const std::vector<sock_filter>& program, const Bytes& packet,
                int* steps = nullptr) {
  uint32_t a = 0, x = 0, memory[16] = {};
  const auto load = [&](uint32_t at, size_t size) -> std::optional<uint32_t> {
    if (at + size > packet.size()) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | packet[at + i];
    return value;
  };
  for (size_t pc = 0;; ++pc) {
    if (steps != nullptr) ++*steps;
    const sock_filter& i = program.at(pc);
    const auto jump = [&](bool taken) { pc += taken ? i.jt : i.jf; };
    std::optional<uint32_t> loaded = 0;
    switch (i.code) {
      case BPF_LD | BPF_W | BPF_LEN:
        a = static_cast<uint32_t>(packet.size());
        break;
      case BPF_LD | BPF_W | BPF_ABS:
        loaded = load(i.k, 4);
        a = loaded.value_or(0);
        break;
      case BPF_LD | BPF_H | BPF_ABS:
        loaded = load(i.k, 2);
        a = loaded.value_or(0);
        break;
      case BPF_LD | BPF_B | BPF_ABS:
        loaded = load(i.k, 1);
        a = loaded.value_or(0);
        break;
      case BPF_LD | BPF_IMM:
        a = i.k;
        break;
      case BPF_LDX | BPF_IMM:
        x = i.k;
        break;
      case BPF_ST:
        memory[i.k] = a;
        break;
      case BPF_LD | BPF_MEM:
        a = memory[i.k];
        break;
      case BPF_LDX | BPF_MEM:
        x = memory[i.k];
        break;
      case BPF_MISC | BPF_TXA:
        a = x;
        break;
      case BPF_ALU | BPF_RSH | BPF_K:
        a >>= i.k;
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        a &= i.k;
        break;
      case BPF_ALU | BPF_SUB | BPF_K:
        a -= i.k;
        break;
      case BPF_JMP | BPF_JA:
        pc += i.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(a == i.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(a >= i.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        jump(a > i.k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        jump((a & i.k) != 0);
        break;
      case BPF_RET | BPF_A:
        return a;
      case BPF_RET | BPF_K:
        return i.k;
      default:
        ADD_FAILURE() << "instruction " << i.code;
        return 0;
    }
    if (!loaded.has_value()) return 0;
  }
}

void Put24(Bytes& packet, size_t at, uint32_t value) {
  packet[at] = static_cast<uint8_t>(value >> 16);
  packet[at + 1] = static_cast<uint8_t>(value >> 8);
  packet[at + 2] = static_cast<uint8_t>(value);
}

Bytes PacketTo(uint32_t qpn, size_t size = 64, uint8_t opcode = 4) {
  Bytes packet(size);
  packet[0] = opcode;
  Put24(packet, 5, qpn);
  return packet;
}

IndexMap NoSlots() {
  IndexMap map;
  map.fill(kNoIndex);
  map[0] = kBroker;
  return map;
}

// Checks that the program is right for each slot and that the kernel accepts
// it. Returns the largest number of instructions run for a packet.
int Check(const IndexMap& map) {
  const std::vector<sock_filter> program = SteeringProgram(map, kProbeWord);
  EXPECT_LE(program.size(), size_t{BPF_MAXINSNS});
  int most = 0;
  for (uint32_t slot = 1; slot < 4096; ++slot) {
    const bool known = slot < kSlots && map[slot] != kNoIndex;
    int steps = 0;
    EXPECT_EQ(Result(program, PacketTo(slot << 12 | 0xabc), &steps),
              known ? map[slot] : kBroker)
        << slot;
    most = std::max(most, steps);
  }
  const UniqueFd fd = BindUdp({*wire::IpAddress::Parse("127.0.0.1"), 0}, 0,
                              Sharing::kReusePort);
  EXPECT_TRUE(fd.valid());
  // net.core.optmem_max may be too small for the largest programs.
  if (!AttachFilter(fd.get(), SO_ATTACH_REUSEPORT_CBPF, program)) {
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_GT(program.size(), 2000u);
  }
  return most;
}

TEST(Steering, SlotsInOrderNeedNoSearch) {
  IndexMap map = NoSlots();
  Check(map);
  for (uint16_t slot = 1; slot < kSlots; ++slot) map[slot] = slot + 2;
  EXPECT_LE(Check(map), 20);
}

TEST(Steering, AnyMapIsOneProgram) {
  std::mt19937 random(1);
  std::vector<uint16_t> indexes(kSlots);
  std::iota(indexes.begin(), indexes.end(), uint16_t{0});
  for (const unsigned one_of : {1u, 2u, 3u, 4u, 5u, 50u, 1000u}) {
    std::shuffle(indexes.begin(), indexes.end(), random);
    IndexMap map = NoSlots();
    for (size_t slot = 1; slot < kSlots; ++slot) {
      if (random() % one_of == 0) map[slot] = indexes[slot];
    }
    EXPECT_LE(Check(map), 40);
  }
  // Every fourth slot, and all slots in runs of five.
  IndexMap sparse = NoSlots(), runs = NoSlots();
  for (uint16_t slot = 1; slot < kSlots; ++slot) {
    if (slot % 4 == 3) sparse[slot] = indexes[slot];
    runs[slot] = static_cast<uint16_t>(slot / 5 * 7 + slot % 5);
  }
  Check(sparse);
  Check(runs);
}

TEST(Steering, LargeIndexesAreWhole) {
  IndexMap map = NoSlots();
  for (uint16_t slot = 8; slot < 12; ++slot) {
    map[slot] = static_cast<uint16_t>(0xfffe - 17 * slot);
  }
  Check(map);
}

TEST(Steering, AReadyToUseGoesToTheSlotInItsId) {
  IndexMap map = NoSlots();
  map[0x5a5] = 9;
  const auto program = SteeringProgram(map, kProbeWord);
  constexpr size_t kMad = wire::kBthSize + wire::kDethSize;
  Bytes rtu = PacketTo(1, transport::cm::kMadPacketSize, 0x64);
  rtu[kMad + wire::kMadAttributeOffset + 1] =
      static_cast<uint8_t>(wire::CmAttribute::kRtu);
  Put24(rtu, kMad + wire::kCmRemoteCommIdOffset, 0x5a5123);
  EXPECT_EQ(Result(program, rtu), 9u);
  Put24(rtu, kMad + wire::kCmRemoteCommIdOffset, 0x5a6123);
  EXPECT_EQ(Result(program, rtu), kBroker);
  Put24(rtu, kMad + wire::kCmRemoteCommIdOffset, 0x5a5123);
  ++rtu[kMad + wire::kMadAttributeOffset + 1];
  EXPECT_EQ(Result(program, rtu), kBroker);
}

// A connect of the DC transport names its target in the DCETH only.
TEST(Steering, ADcPacketWithoutAQueuePairGoesToTheSlotOfItsTarget) {
  IndexMap map = NoSlots();
  map[0x0c0] = 9;
  const auto program = SteeringProgram(map, kProbeWord);
  const auto to = [&](uint8_t opcode, uint32_t dct, size_t size = 52) {
    Bytes packet = PacketTo(0xffffff, size, opcode);
    if (size >= 28) Put24(packet, 25, dct);
    return Result(program, packet);
  };
  EXPECT_EQ(to(0x55, 0x0c0de1), 9u);
  EXPECT_EQ(to(0x40, 0x0c0de1), 9u);
  EXPECT_EQ(to(0x57, 0x0c0de1), 9u);
  EXPECT_EQ(to(0x55, 0x0c0de1, 36), 9u);
  EXPECT_EQ(to(0x55, 0x0c1de1), kBroker);
  EXPECT_EQ(to(0x55, 0xffffff), kBroker);
  EXPECT_EQ(to(0x55, 0x000001), kBroker);
  // Packets that are too short or of other transports go to the broker.
  EXPECT_EQ(to(0x55, 0x0c0de1, 35), kBroker);
  EXPECT_EQ(to(0x55, 0x0c0de1, 20), kBroker);
  EXPECT_EQ(to(0x3f, 0x0c0de1), kBroker);
  EXPECT_EQ(to(0x58, 0x0c0de1), kBroker);
  EXPECT_EQ(to(0x64, 0x0c0de1), kBroker);
  // A packet with a queue pair goes to that queue pair's slot.
  Bytes data = PacketTo(0x0c0123, 52, 0x47);
  Put24(data, 25, 0x0c1de1);
  EXPECT_EQ(Result(program, data), 9u);
}

TEST(Steering, ProbesNameTheIndex) {
  const auto program = SteeringProgram(NoSlots(), kProbeWord);
  Bytes probe(sizeof(Probe));
  probe[0] = 0xff, probe[1] = 0x12, probe[2] = 0x34, probe[3] = 0x56;
  probe[6] = 1;
  EXPECT_EQ(Result(program, probe), 0x100u);
  probe[3] = 0x57;
  EXPECT_EQ(Result(program, probe), kBroker);
  for (size_t size = 0; size < 16; ++size) {
    if (size != sizeof(Probe)) {
      EXPECT_EQ(Result(program, Bytes(size, 0xff)), kBroker);
    }
  }
}

}  // namespace
}  // namespace rxe_user::broker
