#include "wire/pcap.h"

#include <gtest/gtest.h>

namespace wire {
namespace {

uint32_t Word(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

TEST(PcapTest, FileHeader) {
  const auto header = PcapFileHeader();
  EXPECT_EQ(Word(header.data()), 0xa1b23c4du) << "times in ns";
  EXPECT_EQ(header[4], 2) << "version 2.4";
  EXPECT_EQ(header[6], 4);
  EXPECT_EQ(Word(header.data() + 16), 262144u);
  EXPECT_EQ(Word(header.data() + 20), 1u) << "Ethernet";
  EXPECT_EQ(Word(PcapFileHeader(LinkType::kLinuxSll).data() + 20), 113u);
}

TEST(PcapTest, RecordHeader) {
  const auto header = PcapRecordHeader(3'000'000'007, 90);
  EXPECT_EQ(Word(header.data()), 3u);
  EXPECT_EQ(Word(header.data() + 4), 7u);
  EXPECT_EQ(Word(header.data() + 8), 90u);
  EXPECT_EQ(Word(header.data() + 12), 90u);
}

}  // namespace
}  // namespace wire
