#include "transport/raw/flow_table.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace transport {
namespace {

class FlowTableTest : public testing::Test {
 protected:
  // Logs its name, and the tag if there is one, for each frame.
  class Destination final : public FrameDestination {
   public:
    Destination(std::string name, std::string* log)
        : name_(std::move(name)), log_(*log) {}
    size_t FrameRoom() const override { return name_.size(); }
    void OnFrame(const ReceivedFrame&, uint32_t tag, Time) override {
      log_ += name_;
      if (tag != 0) log_ += std::to_string(tag);
    }

   private:
    const std::string name_;
    std::string& log_;
  };

  FlowRule& Add(const std::string& name, std::vector<FlowSpec> specs,
                uint16_t priority = 0, FlowKind kind = FlowKind::kNormal) {
    FlowRule& rule = rules_.emplace_back();
    rule.kind = kind;
    rule.priority = priority;
    rule.specs = std::move(specs);
    rule.destination = &destinations_.emplace_back(name, &log_);
    table_.Add(&rule);
    return rule;
  }

  // The destinations that received the frame.
  std::string Deliver(const std::vector<uint8_t>& bytes,
                      bool outgoing = false) {
    ReceivedFrame received;
    EXPECT_TRUE(wire::ParseEthernet(bytes, &received.frame));
    received.is_outgoing = outgoing;
    log_.clear();
    table_.Deliver(received, 1);
    return log_;
  }
  std::string Deliver(const wire::FrameHeaders& headers,
                      bool outgoing = false) {
    return Deliver(wire::BuildFrame(headers, std::vector<uint8_t>(20)),
                   outgoing);
  }

  static wire::FrameHeaders Headers() {
    wire::FrameHeaders headers;
    headers.dst_mac = {2, 0, 0, 0, 0, 2};
    headers.src = *wire::IpAddress::Parse("10.0.0.1");
    headers.dst = *wire::IpAddress::Parse("10.0.0.2");
    headers.src_port = 1000;
    headers.dst_port = 2000;
    return headers;
  }
  static FlowSpec Bytes(FlowLayer layer, size_t at,
                        const std::vector<uint8_t>& bytes) {
    FlowSpec spec;
    spec.layer = layer;
    std::ranges::copy(bytes, spec.value.begin() + at);
    std::fill_n(spec.mask.begin() + at, bytes.size(), 0xff);
    return spec;
  }
  static FlowSpec Mac(uint8_t last) {
    return Bytes(FlowLayer::kEthernet, 0, {2, 0, 0, 0, 0, last});
  }
  static FlowSpec UdpPort(uint16_t port) {
    uint8_t be[2];
    wire::StoreBe16(be, port);
    return Bytes(FlowLayer::kUdp, 0, {be[0], be[1]});
  }

  FlowTable table_;
  std::deque<FlowRule> rules_;
  std::deque<Destination> destinations_;
  std::string log_;
};

TEST_F(FlowTableTest, AFrameMatchesARuleByItsBits) {
  Add("a", {Mac(2)});
  Add("b", {Mac(3)});
  wire::FrameHeaders headers = Headers();
  EXPECT_EQ(Deliver(headers), "a");
  headers.dst_mac[5] = 3;
  EXPECT_EQ(Deliver(headers), "b");
  headers.dst_mac[5] = 4;
  EXPECT_EQ(Deliver(headers), "");
}

TEST_F(FlowTableTest, EveryLayerHasItsFields) {
  Add("s", {Bytes(FlowLayer::kIpv4, 0, {10, 0, 0, 1})}, 0);
  Add("t", {Bytes(FlowLayer::kIpv4, 9, {0x40})}, 1);
  Add("l", {Bytes(FlowLayer::kIpv4, 10, {7})}, 2);
  Add("p", {UdpPort(2000)}, 3);
  Add("q", {Bytes(FlowLayer::kUdp, 2, {0, 99})}, 4);
  Add("6", {Bytes(FlowLayer::kIpv6, 37, {0x12})}, 5);
  Add("f", {Bytes(FlowLayer::kIpv6, 33, {0x0a, 0xbc, 0xde})}, 6);
  Add("h", {Bytes(FlowLayer::kIpv6, 36, {17})}, 7);
  Add("v", {Bytes(FlowLayer::kEthernet, 14, {0, 5})}, 8);
  wire::FrameHeaders headers = Headers();
  EXPECT_EQ(Deliver(headers), "s");
  headers.src = *wire::IpAddress::Parse("10.0.0.9");
  headers.tos = 0x40;
  EXPECT_EQ(Deliver(headers), "t");
  headers.tos = 0;
  headers.ttl = 7;
  EXPECT_EQ(Deliver(headers), "l");
  headers.ttl = 8;
  EXPECT_EQ(Deliver(headers), "p");
  headers.dst_port = 1;
  headers.src_port = 99;
  EXPECT_EQ(Deliver(headers), "q");
  headers.src_port = 98;
  headers.src = *wire::IpAddress::Parse("fd00::1");
  headers.dst = *wire::IpAddress::Parse("fd00::2");
  headers.tos = 0x12;
  EXPECT_EQ(Deliver(headers), "6");
  headers.tos = 0;
  headers.flow_label = 0xabcde;
  EXPECT_EQ(Deliver(headers), "f");
  headers.flow_label = 0;
  EXPECT_EQ(Deliver(headers), "h");
  headers = Headers();
  headers.src = *wire::IpAddress::Parse("10.0.0.9");
  headers.dst_port = 1;
  EXPECT_EQ(Deliver(headers), "");
  headers.vlan = 5;
  EXPECT_EQ(Deliver(headers), "v");
}

TEST_F(FlowTableTest, OnlyMaskedBitsAreCompared) {
  FlowSpec net = Bytes(FlowLayer::kIpv4, 4, {10, 0, 0, 0});
  net.mask[7] = 0;
  Add("n", {net});
  wire::FrameHeaders headers = Headers();
  EXPECT_EQ(Deliver(headers), "n");
  headers.dst = *wire::IpAddress::Parse("10.0.1.2");
  EXPECT_EQ(Deliver(headers), "");
}

// A nonzero mask of the tag requires a tag, so VLAN 0 differs from "untagged".
TEST_F(FlowTableTest, VlanZeroIsATag) {
  FlowSpec untagged;
  untagged.mask[15] = 0xff;
  Add("z", {untagged});
  wire::FrameHeaders headers = Headers();
  EXPECT_EQ(Deliver(headers), "");
  headers.vlan = 0;
  EXPECT_EQ(Deliver(headers), "z");
}

TEST_F(FlowTableTest, LowerPriorityNumbersFirstThenOlderRules) {
  Add("late", {UdpPort(2000)}, 2);
  Add("first", {Mac(2)}, 1);
  Add("second", {UdpPort(2000)}, 1);
  EXPECT_EQ(Deliver(Headers()), "first");
  table_.Remove(&rules_[1]);
  EXPECT_EQ(Deliver(Headers()), "second");
  table_.Remove(&rules_[2]);
  EXPECT_EQ(Deliver(Headers()), "late");
  table_.Remove(&rules_[0]);
  EXPECT_EQ(Deliver(Headers()), "");
  EXPECT_TRUE(table_.empty());
}

TEST_F(FlowTableTest, EqualRulesShare) {
  Add("a", {Mac(2)}, 1);
  Add("b", {Mac(2)}, 1);
  Add("c", {Mac(2)}, 2);
  EXPECT_EQ(Deliver(Headers()), "ab");
}

TEST_F(FlowTableTest, DontTrapPassesTheFrameOn) {
  Add("copy", {Mac(2)}, 0).dont_trap = true;
  Add("own", {UdpPort(2000)}, 1);
  EXPECT_EQ(Deliver(Headers()), "copyown");
}

TEST_F(FlowTableTest, ADropRuleDiscardsFrames) {
  FlowRule& drop = Add("drop", {UdpPort(2000)}, 0);
  drop.drop = true;
  drop.counts.push_back(std::make_shared<FlowCount>());
  Add("rest", {Mac(2)}, 1);
  EXPECT_EQ(Deliver(Headers()), "");
  EXPECT_EQ(drop.counts[0]->packets, 1u);
  EXPECT_EQ(drop.counts[0]->bytes, 62u);
  wire::FrameHeaders headers = Headers();
  headers.dst_port = 1;
  EXPECT_EQ(Deliver(headers), "rest");
  EXPECT_EQ(drop.counts[0]->packets, 1u);
}

TEST_F(FlowTableTest, DefaultsGetTheRestAndSniffersEverything) {
  Add("all", {}, 0, FlowKind::kAllDefault);
  Add("mc", {}, 0, FlowKind::kMulticastDefault);
  Add("sniff", {}, 0, FlowKind::kSniffer);
  Add("own", {UdpPort(2000)}, 0);
  wire::FrameHeaders headers = Headers();
  EXPECT_EQ(Deliver(headers), "sniffown");
  headers.dst_port = 1;
  EXPECT_EQ(Deliver(headers), "sniffall");
  headers.dst_mac[0] = 3;
  EXPECT_EQ(Deliver(headers), "sniffallmc");
}

// A NIC loops back frames for matching rules and sniffers. Frames that the host
// sends do not go to the default rules.
TEST_F(FlowTableTest, OutgoingFramesDoNotReachDefaults) {
  Add("all", {}, 0, FlowKind::kAllDefault);
  Add("sniff", {}, 0, FlowKind::kSniffer);
  Add("own", {UdpPort(2000)}, 0);
  wire::FrameHeaders headers = Headers();
  EXPECT_EQ(Deliver(headers, true), "sniffown");
  headers.dst_port = 1;
  EXPECT_EQ(Deliver(headers, true), "sniff");
}

TEST_F(FlowTableTest, FrameRoomIsTheMinimum) {
  EXPECT_EQ(table_.FrameRoom(), kManyFrames);
  Add("four", {Mac(2)});
  Add("two", {}, 0, FlowKind::kSniffer);
  Add("x", {Mac(3)}).drop = true;
  EXPECT_EQ(table_.FrameRoom(), 3u);
}

TEST_F(FlowTableTest, TagsAreDelivered) {
  Add("a", {Mac(2)}).tag = 17;
  EXPECT_EQ(Deliver(Headers()), "a17");
}

}  // namespace
}  // namespace transport
