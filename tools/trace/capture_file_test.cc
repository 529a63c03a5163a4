#include "tools/trace/capture_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rxe_user/observe/trace_blocks.h"
#include "tools/trace/event.h"
#include "wire/pcap.h"

namespace trace {
namespace {

using Bytes = std::vector<uint8_t>;

// Writes the numbers of a file, in either byte order.
class Maker {
 public:
  explicit Maker(bool swapped) : swapped_(swapped) {}
  Maker& U16(uint16_t v) {
    if (swapped_) v = __builtin_bswap16(v);
    return Put(&v, 2);
  }
  Maker& U32(uint32_t v) {
    if (swapped_) v = __builtin_bswap32(v);
    return Put(&v, 4);
  }
  Maker& Raw(const Bytes& bytes) { return Put(bytes.data(), bytes.size()); }
  Maker& Block(uint32_t type, const Maker& body) {
    const uint32_t length = static_cast<uint32_t>(body.bytes.size()) + 12;
    return U32(type).U32(length).Raw(body.bytes).U32(length);
  }
  Maker Body() const { return Maker(swapped_); }
  Maker& Section() {
    return Block(0x0a0d0d0a,
                 Body().U32(0x1a2b3c4d).U16(1).U16(0).U32(-1).U32(-1));
  }
  Bytes bytes;

 private:
  Maker& Put(const void* data, size_t size) {
    const auto* const from = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), from, from + size);
    return *this;
  }
  bool swapped_;
};

struct Contents {
  struct Packet {
    uint64_t number;
    int64_t time;
    int link_type;
    Bytes frame;
    size_t original_size;
    wire::pcapng::Direction direction;
    std::string comment;
  };
  std::vector<Packet> packets;
  std::vector<Bytes> customs;
  std::string error;
};

Contents Read(Bytes bytes) {
  Contents contents;
  if (bytes.empty()) bytes.reserve(1);
  std::FILE* const file = bytes.empty()
                              ? std::fopen("/dev/null", "rb")
                              : fmemopen(bytes.data(), bytes.size(), "rb");
  const auto capture = CaptureFile::Read(file, &contents.error);
  if (capture == nullptr) return contents;
  CaptureRecord r;
  while (capture->Next(&r)) {
    if (r.is_packet) {
      contents.packets.push_back({r.frame_number,
                                  r.time,
                                  r.link_type,
                                  {r.frame.begin(), r.frame.end()},
                                  r.original_size,
                                  r.direction,
                                  std::string(r.comment)});
    }
    if (!r.custom.empty()) {
      contents.customs.emplace_back(r.custom.begin(), r.custom.end());
    }
  }
  contents.error = capture->error();
  return contents;
}

TEST(CaptureFileTest, PcapInBothByteOrdersAndResolutions) {
  for (const bool swapped : {false, true}) {
    for (const bool nanoseconds : {false, true}) {
      Maker m(swapped);
      m.U32(nanoseconds ? 0xa1b23c4d : 0xa1b2c3d4).U16(2).U16(4);
      m.U32(0).U32(0).U32(65535).U32(113);
      m.U32(7).U32(5000).U32(3).U32(100).Raw({1, 2, 3});
      const Contents c = Read(m.bytes);
      EXPECT_EQ(c.error, "");
      ASSERT_EQ(c.packets.size(), 1u);
      EXPECT_EQ(c.packets[0].time,
                7'000'000'000 + (nanoseconds ? 5000 : 5'000'000));
      EXPECT_EQ(c.packets[0].link_type, 113);
      EXPECT_EQ(c.packets[0].frame, (Bytes{1, 2, 3}));
      EXPECT_EQ(c.packets[0].original_size, 100u);
    }
  }
}

// Time differences between files must fit in an int64_t.
TEST(CaptureFileTest, PcapTimesHaveALimit) {
  Maker m(false);
  m.U32(0xa1b2c3d4).U16(2).U16(4).U32(0).U32(0).U32(65535).U32(113);
  m.U32(UINT32_MAX).U32(UINT32_MAX).U32(0).U32(0);
  const Contents c = Read(m.bytes);
  ASSERT_EQ(c.packets.size(), 1u);
  EXPECT_EQ(c.packets[0].time, kLatestTime);
}

TEST(CaptureFileTest, PcapngInBothByteOrders) {
  for (const bool swapped : {false, true}) {
    Maker m(swapped);
    m.Section();
    m.Block(0xabcdef, m.Body().U32(1));         // of an unknown kind
    m.Block(1, m.Body().U16(1).U16(0).U32(0));  // 10^-6 s
    m.Block(1, m.Body().U16(113).U16(0).U32(0).U16(9).U16(1).Raw({9, 0, 0, 0}));
    m.Block(6, m.Body().U32(0).U32(0).U32(77).U32(3).U32(9).Raw({1, 2, 3, 0}));
    m.Block(6, m.Body()
                   .U32(1)
                   .U32(1)
                   .U32(5)
                   .U32(4)
                   .U32(4)
                   .Raw({9, 9, 9, 9})
                   .U16(1)
                   .U16(2)
                   .Raw({'h', 'i', 0, 0})
                   .U16(2)
                   .U16(4)
                   .U32(2)
                   .U16(0)
                   .U16(0));
    const Contents c = Read(m.bytes);
    EXPECT_EQ(c.error, "");
    ASSERT_EQ(c.packets.size(), 2u);
    EXPECT_EQ(c.packets[0].time, 77'000);
    EXPECT_EQ(c.packets[0].frame, (Bytes{1, 2, 3}));
    EXPECT_EQ(c.packets[0].original_size, 9u);
    EXPECT_EQ(c.packets[1].number, 2u);
    EXPECT_EQ(c.packets[1].time, (int64_t{1} << 32) + 5);
    EXPECT_EQ(c.packets[1].link_type, 113);
    EXPECT_EQ(c.packets[1].comment, "hi");
    EXPECT_EQ(c.packets[1].direction, wire::pcapng::Direction::kSent);
  }
}

// Files that were concatenated: each section has its own interfaces, and may
// have another byte order.
TEST(CaptureFileTest, SectionsOfTwoByteOrders) {
  Bytes bytes;
  for (const bool swapped : {false, true}) {
    Maker m(swapped);
    m.Section();
    m.Block(1, m.Body().U16(swapped ? 1 : 113).U16(0).U32(0));
    m.Block(3, m.Body().U32(2).Raw({1, 2, 0, 0}));  // a simple packet
    bytes.insert(bytes.end(), m.bytes.begin(), m.bytes.end());
  }
  const Contents c = Read(bytes);
  EXPECT_EQ(c.error, "");
  ASSERT_EQ(c.packets.size(), 2u);
  EXPECT_EQ(c.packets[0].link_type, 113);
  EXPECT_EQ(c.packets[1].link_type, 1);
  EXPECT_EQ(c.packets[1].frame, (Bytes{1, 2}));
}

Bytes OurFile() {
  Bytes bytes;
  rxe_user::trace::AppendBeginning({}, &bytes);
  wire::pcapng::AppendInterface(wire::LinkType::kLinuxSll, "rxeu0", &bytes);
  rxe_user::trace::AppendEvent(rxe_user::trace::TimerEvent(), &bytes);
  const uint8_t frame[] = {1, 2, 3, 4, 5};
  rxe_user::trace::PacketEvent packet;
  packet.header.time = 1'795'821'068'000'000'001;
  rxe_user::trace::AppendPacketEvent(
      packet, {.headers = frame, .original_size = 5, .comment = "first"},
      &bytes);
  return bytes;
}

TEST(CaptureFileTest, OurRecording) {
  const Contents c = Read(OurFile());
  EXPECT_EQ(c.error, "");
  ASSERT_EQ(c.packets.size(), 1u);
  EXPECT_EQ(c.packets[0].time, 1'795'821'068'000'000'001);
  EXPECT_EQ(c.packets[0].comment, "first");
  EXPECT_EQ(c.packets[0].direction, wire::pcapng::Direction::kSent);
  ASSERT_EQ(c.customs.size(), 3u);
  EXPECT_EQ(c.customs[2].size(), sizeof(rxe_user::trace::PacketEvent));
}

// Wherever the file is cut, everything before is read, and one line reports it.
TEST(CaptureFileTest, CutAnywhere) {
  const Bytes whole = OurFile();
  for (size_t size = 0; size < whole.size(); ++size) {
    const Contents c = Read(Bytes(whole.begin(), whole.begin() + size));
    EXPECT_TRUE(c.packets.empty()) << size;
    EXPECT_EQ(c.error.find('\n'), std::string::npos);
    // A cut between two blocks cannot be detected.
    if (size % 4 != 0) {
      EXPECT_NE(c.error, "") << size;
    }
  }
}

TEST(CaptureFileTest, WhatIsNoCapture) {
  EXPECT_EQ(Read({}).error, "it is empty");
  EXPECT_NE(Read({0x1f, 0x8b, 8, 0}).error.find("gzip"), std::string::npos);
  EXPECT_EQ(Read({'h', 'e', 'l', 'l', 'o'}).error,
            "it is neither a pcap nor a pcapng file");
  std::string why;
  EXPECT_EQ(CaptureFile::Open("/nonexistent/x", &why), nullptr);
  EXPECT_EQ(why, "No such file or directory");
}

TEST(CaptureFileTest, DamagedLengths) {
  Maker m(false);
  m.Section();
  const Bytes section = m.bytes;
  for (const uint32_t length : {0u, 11u, 13u, 0xfffffffcu}) {
    Maker bad(false);
    bad.Section().U32(6).U32(length).U32(0).U32(0);
    EXPECT_NE(Read(bad.bytes).error, "") << length;
  }
  // The two lengths of a block differ.
  Maker bad(false);
  bad.Section().U32(5).U32(16).U32(0).U32(20);
  EXPECT_NE(Read(bad.bytes).error.find("differ"), std::string::npos);
  // A packet of an interface that does not exist.
  Maker none(false);
  none.Section().Block(6, none.Body().U32(0).U32(0).U32(0).U32(0).U32(0));
  EXPECT_NE(Read(none.bytes).error.find("interface 0"), std::string::npos);
  // A packet that is longer than its block.
  Maker longer(false);
  longer.Section()
      .Block(1, longer.Body().U16(1).U16(0).U32(0))
      .Block(6, longer.Body().U32(0).U32(0).U32(0).U32(99).U32(99));
  EXPECT_NE(Read(longer.bytes).error.find("longer"), std::string::npos);
  // A pcap record that claims 4 GB.
  Maker pcap(false);
  pcap.U32(0xa1b2c3d4).U32(0).U32(0).U32(0).U32(0).U32(1);
  pcap.U32(0).U32(0).U32(0xffffffff).U32(0);
  EXPECT_NE(Read(pcap.bytes).error.find("damaged"), std::string::npos);
}

}  // namespace
}  // namespace trace
