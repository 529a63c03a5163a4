#include "tools/rxe_user_cli/decode.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "wire/aeth.h"
#include "wire/frame.h"
#include "wire/packet.h"
#include "wire/pcap.h"

namespace rxe_user_cli {
namespace {

constexpr char kGolden[] = "tests/golden/kernel_rxe/";

struct Result {
  int status;
  std::string out;
  std::string err;
  std::vector<std::string> lines() const {
    std::istringstream stream(out);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

Result Decode(const DecodeOptions& options) {
  char* out_text = nullptr;
  char* err_text = nullptr;
  size_t out_size, err_size;
  std::FILE* out = open_memstream(&out_text, &out_size);
  std::FILE* err = open_memstream(&err_text, &err_size);
  Result result;
  result.status = RunDecode(options, out, err);
  std::fclose(out);
  std::fclose(err);
  result.out = out_text;
  result.err = err_text;
  free(out_text);
  free(err_text);
  return result;
}

// A capture file written by the test, removed by the destructor.
class Capture {
 public:
  explicit Capture(const std::string& name)
      : path_(testing::TempDir() + "/" + name) {
    file_ = std::fopen(path_.c_str(), "wb");
    Write(wire::PcapFileHeader());
  }
  ~Capture() {
    Close();
    std::filesystem::remove(path_);
  }
  // Adds frame `i` at i seconds and 1234567 ns after 1970, without its last
  // `cut` bytes.
  void Add(const std::vector<uint8_t>& frame, size_t cut = 0) {
    auto header = wire::PcapRecordHeader(count_++ * 1'000'000'000LL + 1'234'567,
                                         frame.size());
    const uint32_t captured = static_cast<uint32_t>(frame.size() - cut);
    std::memcpy(header.data() + 8, &captured, 4);
    Write(header);
    std::fwrite(frame.data(), 1, captured, file_);
  }
  void AddBytes(const std::string& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), file_);
  }
  const std::string& path() {
    Close();
    return path_;
  }

 private:
  template <typename T>
  void Write(const T& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), file_);
  }
  void Close() {
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
  }

  std::string path_;
  std::FILE* file_;
  int64_t count_ = 0;
};

wire::FrameHeaders FrameTo(uint16_t port = wire::kRoceUdpPort) {
  wire::FrameHeaders h;
  h.src = *wire::IpAddress::Parse("192.0.2.1");
  h.dst = *wire::IpAddress::Parse("192.0.2.2");
  h.src_port = 49441;
  h.dst_port = port;
  h.ip_id = 7;
  return h;
}

wire::Headers Send(uint8_t opcode = 0x04) {
  wire::Headers h;
  h.bth.opcode = opcode;
  h.bth.dest_qpn = 0x11;
  h.bth.psn = 100;
  h.bth.ack_req = true;
  return h;
}

std::vector<uint8_t> SendFrame() {
  const wire::FrameHeaders frame = FrameTo();
  const std::vector<uint8_t> packet = wire::BuildPacket(
      Send(), std::vector<uint8_t>(5, 'x'), frame.icrc_flow(), frame.ip_id);
  return wire::BuildFrame(frame, packet);
}

TEST(DecodeTest, ALinePerPacketAndACount) {
  Capture capture("lines.pcap");
  capture.Add(SendFrame());
  std::vector<uint8_t> damaged = SendFrame();
  damaged[60] ^= 1;
  capture.Add(damaged);
  capture.Add(wire::BuildFrame(FrameTo(53), {}));
  const Result result = Decode({.path = capture.path()});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "00:00:00.001234 192.0.2.1:49441 > 192.0.2.2 RC_SEND_ONLY "
            "qp=0x000011 ack_req psn=100 payload=5 icrc=good\n"
            "00:00:01.001234 192.0.2.1:49441 > 192.0.2.2 RC_SEND_ONLY "
            "qp=0x000011 ack_req psn=100 payload=5 icrc=bad\n"
            "2 RoCEv2 packets: ICRC 1 good, 1 bad, 0 unknown; 0 malformed; "
            "0 RoCEv1 frames, 1 other frames\n");
}

// decode used to print ".-00000005".
TEST(DecodeTest, InvalidFractionsOfATime) {
  struct {
    uint32_t fraction;
    std::string seconds;
  } const cases[] = {{static_cast<uint32_t>(-5), "09.999999"},
                     {1'000'000'007, "11.000000"}};
  for (const auto& c : cases) {
    Capture capture("time.pcap");
    std::vector<uint8_t> frame = SendFrame();
    auto header = wire::PcapRecordHeader(10'000'000'000, frame.size());
    std::memcpy(header.data() + 4, &c.fraction, sizeof(c.fraction));
    capture.AddBytes({header.begin(), header.end()});
    capture.AddBytes({frame.begin(), frame.end()});
    const Result result = Decode({.path = capture.path()});
    ASSERT_FALSE(result.lines().empty()) << result.err;
    EXPECT_NE(result.lines()[0].find(c.seconds), std::string::npos)
        << result.lines()[0];
  }
}

TEST(DecodeTest, JsonLines) {
  Capture capture("json.pcap");
  capture.Add(SendFrame());
  wire::Headers write = Send(0x0a);
  write.reth = {.va = 0x8000000000000001, .rkey = 0xfedcba98, .length = 4};
  wire::FrameHeaders v6 = FrameTo();
  v6.src = *wire::IpAddress::Parse("fe80::1");
  v6.dst = *wire::IpAddress::Parse("fe80::2");
  capture.Add(wire::BuildFrame(
      v6, wire::BuildPacket(write, std::vector<uint8_t>(4, 'x'), v6.icrc_flow(),
                            0)));
  const Result result = Decode({.path = capture.path(), .json = true});
  EXPECT_EQ(result.status, 0);
  ASSERT_EQ(result.lines().size(), 3u);

  const auto first = nlohmann::json::parse(result.lines()[0]);
  EXPECT_EQ(first["type"], "packet");
  EXPECT_EQ(first["frame"], 1);
  EXPECT_EQ(first["time"], "1970-01-01T00:00:00.001234567Z");
  EXPECT_EQ(first["src"], "192.0.2.1");
  EXPECT_EQ(first["src_port"], 49441);
  EXPECT_EQ(first["dst"], "192.0.2.2");
  EXPECT_EQ(first["ip_id"], 7);
  EXPECT_EQ(first["opcode"], "RC_SEND_ONLY");
  EXPECT_EQ(first["qp"], 17);
  EXPECT_EQ(first["ack_req"], true);
  EXPECT_EQ(first["solicited"], false);
  EXPECT_EQ(first["psn"], 100);
  EXPECT_EQ(first["pad"], 3);
  EXPECT_EQ(first["payload"], 5);
  EXPECT_EQ(first["icrc"], "good");

  const auto second = nlohmann::json::parse(result.lines()[1]);
  EXPECT_EQ(second["src"], "fe80::1");
  EXPECT_EQ(second["flow_label"], 0);
  EXPECT_EQ(second["va"], "0x8000000000000001") << "beyond 53 bits";
  EXPECT_EQ(second["rkey"], 0xfedcba98);
  EXPECT_EQ(second["icrc"], "good");

  const auto summary = nlohmann::json::parse(result.lines()[2]);
  EXPECT_EQ(summary["type"], "summary");
  EXPECT_EQ(summary["packets"], 2);
  EXPECT_EQ(summary["icrc_good"], 2);
}

TEST(DecodeTest, EveryGoldenCaptureIsGood) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    ++files;
    const Result result = Decode({.path = entry.path(), .json = true});
    EXPECT_EQ(result.status, 0);
    const auto summary = nlohmann::json::parse(result.lines().back());
    EXPECT_GT(summary["packets"], 0) << entry.path();
    EXPECT_EQ(summary["icrc_good"], summary["packets"]) << entry.path();
    EXPECT_EQ(summary["malformed"], 0) << entry.path();
  }
  EXPECT_GT(files, 0);
}

// A frame in which a capturing device has overwritten the source port by 4791.
std::vector<uint8_t> OverwrittenFrame(uint16_t sent_from, uint32_t qpn,
                                      size_t payload, uint8_t opcode = 0x04) {
  wire::FrameHeaders frame = FrameTo();
  frame.src_port = sent_from;
  wire::Headers headers = Send(opcode);
  headers.bth.dest_qpn = qpn;
  const std::vector<uint8_t> packet =
      wire::BuildPacket(headers, std::vector<uint8_t>(payload, 'x'),
                        frame.icrc_flow(), frame.ip_id);
  frame.src_port = wire::kRoceUdpPort;
  return wire::BuildFrame(frame, packet);
}

TEST(DecodeTest, SourcePortThatWasOverwritten) {
  Capture capture("overwritten.pcap");
  capture.Add(OverwrittenFrame(0xd0b3, 0x11, 5));
  capture.Add(OverwrittenFrame(0xd0b3, 0x11, 1024));
  capture.Add(OverwrittenFrame(0xc001, 0x12, 0));
  // Another port than the flow's is reported as a bad ICRC.
  capture.Add(OverwrittenFrame(0xc001, 0x11, 5));
  std::vector<uint8_t> damaged = OverwrittenFrame(0xd0b3, 0x11, 5);
  damaged[60] ^= 1;
  capture.Add(damaged);
  // A packet that was really sent from port 4791.
  capture.Add(OverwrittenFrame(wire::kRoceUdpPort, 0x13, 5));
  capture.Add(OverwrittenFrame(0xc001, 0x13, 5));
  const auto lines = Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_NE(
      lines[0].find("qp=0x000011 ack_req psn=100 payload=5 icrc=good with "
                    "source port 0xd0b3 in place of 4791"),
      std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("icrc=good with source port 0xd0b3"),
            std::string::npos);
  EXPECT_NE(lines[2].find("icrc=good with source port 0xc001"),
            std::string::npos);
  EXPECT_TRUE(lines[3].ends_with("icrc=bad")) << lines[3];
  EXPECT_TRUE(lines[4].ends_with("icrc=bad")) << lines[4];
  EXPECT_TRUE(lines[5].ends_with("icrc=good")) << lines[5];
  EXPECT_TRUE(lines[6].ends_with("icrc=bad")) << lines[6];
  EXPECT_TRUE(lines[7].starts_with("7 RoCEv2 packets: ICRC 4 good, 3 bad"))
      << lines[7];

  const auto json = nlohmann::json::parse(
      Decode({.path = capture.path(), .json = true}).lines()[0]);
  EXPECT_EQ(json["icrc"], "good");
  EXPECT_EQ(json["src_port"], 4791);
  EXPECT_EQ(json["icrc_src_port"], 0xd0b3);
}

// Each address handle, and each connection that the CM creates, has its own
// source port.
TEST(DecodeTest, OverwrittenSourcePortsOfDatagrams) {
  Capture capture("overwritten_ud.pcap");
  for (const uint16_t port : {0xc001, 0xc002, 0xc001}) {
    capture.Add(OverwrittenFrame(port, 1, 256, 0x64));
  }
  std::vector<uint8_t> damaged = OverwrittenFrame(0xc001, 1, 256, 0x64);
  damaged[70] ^= 1;
  capture.Add(damaged);
  // A CNP may have another source port than the packet that caused it.
  capture.Add(OverwrittenFrame(0xc001, 0x11, 8));
  capture.Add(OverwrittenFrame(0xc002, 0x11, 16, wire::kOpcodeCnp));
  const auto lines = Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_NE(lines[1].find("icrc=good with source port 0xc002"),
            std::string::npos)
      << lines[1];
  EXPECT_TRUE(lines[6].starts_with("6 RoCEv2 packets: ICRC 5 good, 1 bad"))
      << lines[6];
}

// --- The dynamically connected transport.

std::vector<uint8_t> FromHex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(
        static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<uint8_t> DcFrame(const std::string& bth_to_pad) {
  wire::FrameHeaders frame = FrameTo();
  std::vector<uint8_t> packet = FromHex(bth_to_pad);
  packet.resize(packet.size() + wire::kIcrcSize);
  frame.icrc_flow().Store(packet, frame.ip_id);
  return wire::BuildFrame(frame, packet);
}

// Packets as ConnectX cards send them.
TEST(DecodeTest, DynamicallyConnected) {
  Capture capture("dc.pcap");
  const std::string to_target = "110090350071500400ffffff0000c0de00000000";
  const std::string open = "11009035007150040061e97d0000c0de00000000";
  const std::string back = "10807ff4007150040061e97d0000c0de00000000";
  capture.Add(DcFrame("5540ffff00ffffff80a9454d" + to_target +
                      "200000000000000000000000ffeeddcc"));
  capture.Add(
      DcFrame("5140ffff0000903500a9454d" + back + "640000001000000000000000"));
  capture.Add(DcFrame("4a40ffff00807ff480a9454e" + open +
                      "00007f69f03840000005382a00000008" + "0102030405060708"));
  capture.Add(DcFrame("5140ffff0000903500a9454e" + back + "1f000000"));
  capture.Add(DcFrame("4e40ffff0000903500a9454e" + back + "01020304"));
  capture.Add(DcFrame("5840ffff0000903500a9454e" + back));  // not a DC opcode
  capture.Add(DcFrame("5540ffff00ffffff80a9454d" + to_target));
  const Result result = Decode({.path = capture.path()});
  const auto lines = result.lines();
  ASSERT_EQ(lines.size(), 8u);
  const auto has = [&lines](size_t line, const std::string& text) {
    EXPECT_NE(lines[line].find(text), std::string::npos) << lines[line];
  };
  has(0,
      "DC_CONNECT qp=0xffffff ack_req psn=11093325 initiator src_qp=0x009035 "
      "initiator_session=0x715004 responder_session=0xffffff dct=0x00c0de "
      "dc_key=0x00000000ffeeddcc payload=0 icrc=good");
  has(1, "DC_CONNECT_ANSWER qp=0x009035 psn=11093325 src_qp=0x807ff4 ");
  has(2, "DC_RDMA_WRITE_ONLY qp=0x807ff4 ack_req psn=11093326 initiator ");
  has(2,
      "dct=0x00c0de va=0x00007f69f0384000 rkey=0x0005382a dma_length=8 "
      "payload=8 icrc=good");
  has(3, "DC_ACKNOWLEDGE qp=0x009035 ");
  has(3, "aeth=ACK msn=0 payload=0 icrc=good");
  has(4, "DC_RDMA_READ_RESPONSE_MIDDLE");
  has(5, "malformed: unknown opcode 0x58");
  has(6, "malformed: too short");
  has(7, "5 RoCEv2 packets: ICRC 5 good, 0 bad, 0 unknown; 2 malformed");
}

TEST(DecodeTest, UnsegmentedFramesAreSplit) {
  const wire::FrameHeaders frame = FrameTo();
  std::vector<uint8_t> together;
  for (uint16_t i = 0; i < 3; ++i) {
    const std::vector<uint8_t> packet = wire::BuildPacket(
        Send(), std::vector<uint8_t>(i == 2 ? 8 : 256, 'x'), frame.icrc_flow(),
        static_cast<uint16_t>(frame.ip_id + i));
    together.insert(together.end(), packet.begin(), packet.end());
  }
  together[300] ^= 1;  // in the second packet
  Capture capture("segments.pcap");
  capture.Add(wire::BuildFrame(frame, together));
  const std::vector<std::string> lines =
      Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[0].find("payload=256 icrc=good segment=0/3"),
            std::string::npos);
  EXPECT_NE(lines[1].find("payload=256 icrc=bad segment=1/3"),
            std::string::npos);
  EXPECT_NE(lines[2].find("payload=8 icrc=good segment=2/3"),
            std::string::npos);
}

TEST(DecodeTest, TruncatedFramesShowTheirHeaders) {
  Capture capture("truncated.pcap");
  const std::vector<uint8_t> frame = SendFrame();
  const size_t after_bth = frame.size() - 14 - 20 - 8 - 12;
  capture.Add(frame, after_bth);
  capture.Add(frame, after_bth + 1);
  const std::vector<std::string> lines =
      Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].find("RC_SEND_ONLY qp=0x000011 ack_req psn=100 "
                          "payload=5 icrc=unknown"),
            std::string::npos);
  EXPECT_NE(lines[1].find("malformed: headers cut off by the capture"),
            std::string::npos);
  EXPECT_EQ(lines[2],
            "1 RoCEv2 packets: ICRC 0 good, 0 bad, 1 unknown; 1 malformed; "
            "0 RoCEv1 frames, 0 other frames");
}

// Bytes that were not captured are not shown.
TEST(DecodeTest, TruncatedFramesShowNothingElse) {
  Capture capture("truncated_more.pcap");
  const std::string connected =
      "5140ffff0000903500a9454e10807ff4007150040061e97d0000c0de00000000"
      "63000000";
  const std::vector<uint8_t> dc = DcFrame(connected);
  capture.Add(dc, wire::kIcrcSize);
  capture.Add(dc, wire::kIcrcSize + 1);
  wire::Headers mad = Send(0x64);
  mad.bth.dest_qpn = 1;
  std::vector<uint8_t> req(256);  // the beginning of a CM_REQ
  req[0] = 1;
  req[1] = 7;
  req[2] = 2;
  req[3] = 3;
  req[17] = 0x10;
  const std::vector<uint8_t> frame = wire::BuildFrame(
      FrameTo(), wire::BuildPacket(mad, req, FrameTo().icrc_flow(), 7));
  capture.Add(frame, frame.size() - 96);
  capture.Add(frame);
  const auto lines = Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_NE(lines[3].find(" mad=CM_REQ "), std::string::npos) << lines[3];
  EXPECT_NE(lines[0].find("dct=0x00c0de aeth=NAK nak=REMOTE_OPERATIONAL_ERROR "
                          "msn=0 payload=0 icrc=unknown"),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("malformed: headers cut off"), std::string::npos)
      << lines[1];
  EXPECT_TRUE(lines[2].ends_with("payload=256 icrc=unknown")) << lines[2];
}

// In a cut-off frame, the number of packets that offload left is unknown.
TEST(DecodeTest, TruncatedFramesOfSeveralPackets) {
  Capture capture("truncated_segments.pcap");
  const auto several = [](uint8_t opcode, size_t payload) {
    const wire::FrameHeaders frame = FrameTo();
    std::vector<uint8_t> together;
    for (uint16_t i = 0; i < 20; ++i) {
      const std::vector<uint8_t> packet = wire::BuildPacket(
          Send(opcode), std::vector<uint8_t>(payload, 'x'), frame.icrc_flow(),
          static_cast<uint16_t>(frame.ip_id + i));
      together.insert(together.end(), packet.begin(), packet.end());
    }
    return wire::BuildFrame(frame, together);
  };
  for (const auto& [opcode, payload] : std::vector<std::pair<uint8_t, size_t>>{
           {0x07, 1024}, {0x04, 253}, {0x11, 0}, {0x0c, 0}}) {
    const std::vector<uint8_t> frame = several(opcode, payload);
    capture.Add(frame, frame.size() - 82);
  }
  const auto lines = Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 5u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(lines[i].ends_with(" icrc=unknown segment=0/?")) << lines[i];
    EXPECT_EQ(lines[i].find("payload="), std::string::npos) << lines[i];
  }
  EXPECT_NE(lines[2].find("RC_ACKNOWLEDGE"), std::string::npos) << lines[2];
  const auto json = nlohmann::json::parse(
      Decode({.path = capture.path(), .json = true}).lines()[0]);
  EXPECT_TRUE(json["segments"].is_null());
  EXPECT_FALSE(json.contains("payload"));
}

TEST(DecodeTest, MalformedPackets) {
  Capture capture("malformed.pcap");
  capture.Add(wire::BuildFrame(FrameTo(), std::vector<uint8_t>(48, 0xff)));
  capture.Add(wire::BuildFrame(FrameTo(), {}));
  const Result result = Decode({.path = capture.path()});
  EXPECT_NE(result.lines()[0].find("malformed: unknown opcode 0xff, 48 bytes"),
            std::string::npos);
  EXPECT_NE(result.lines()[1].find("malformed: too short, 0 bytes"),
            std::string::npos);
}

TEST(DecodeTest, FilesThatAreNoCaptures) {
  const Result missing = Decode({.path = "no/such/file.pcap"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.out, "");
  EXPECT_EQ(missing.err,
            "rxe-user decode: no/such/file.pcap: No such file or directory\n");

  for (const char* path : {"/dev/null", "/proc/self/exe", "/"}) {
    const Result result = Decode({.path = path});
    EXPECT_EQ(result.status, 1) << path;
    EXPECT_EQ(result.out, "") << path;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
}

TEST(DecodeTest, CompressedFiles) {
  const std::string path = testing::TempDir() + "/capture.pcap.gz";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  std::fputs("\x1f\x8b\x08 and so on", file);
  std::fclose(file);
  const Result result = Decode({.path = path});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "rxe-user decode: " + path +
                            ": compressed by gzip: zcat " + path +
                            " | rxe-user decode -\n");
  std::filesystem::remove(path);
}

// pcapng allows several link types in one file.
TEST(DecodeTest, InterfacesOfTwoLinkTypes) {
  const std::string path = testing::TempDir() + "/two.pcapng";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const auto interface = [](uint32_t link_type) {
    return std::vector<uint32_t>{1, 20, link_type, 262144, 20};
  };
  std::vector<uint32_t> words = {0x0a0d0d0a, 28, 0x1a2b3c4d, 1, ~0u, ~0u, 28};
  for (const uint32_t type : {1, 101}) {
    for (const uint32_t word : interface(type)) words.push_back(word);
  }
  const uint8_t nothing[4] = {};
  words.insert(words.end(), {6, 36, 1, 0, 0, 4, 4, 0, 36});  // a packet
  std::memcpy(&words[words.size() - 2], nothing, 4);
  std::fwrite(words.data(), 4, words.size(), file);
  std::fclose(file);
  const Result result = Decode({.path = path});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(
      result.err.ends_with("; capture each interface to a file of its own\n"))
      << result.err;
  std::filesystem::remove(path);
}

TEST(DecodeTest, FramesWithoutTheirHeadersAreCountedApart) {
  Capture capture("cut_off.pcap");
  const std::vector<uint8_t> frame = SendFrame();
  for (const size_t left : {13, 33, 41}) {
    capture.Add(frame, frame.size() - left);
  }
  std::vector<uint8_t> fragment = frame;
  fragment[20] = 0x20;  // more fragments
  capture.Add(fragment);
  std::vector<uint8_t> other = frame;
  other[12] = 8;
  other[13] = 6;
  capture.Add(other);
  const auto lines = Decode({.path = capture.path()}).lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].ends_with(" 0 RoCEv1 frames, 1 other frames"))
      << lines[0];
  EXPECT_EQ(lines[1],
            "3 frames cut off within their headers: capture more of each "
            "(tcpdump -s 0)");
  EXPECT_EQ(lines[2],
            "1 IP fragments, which are not reassembled: RoCE devices send "
            "none");
  const auto json = nlohmann::json::parse(
      Decode({.path = capture.path(), .json = true}).lines()[0]);
  EXPECT_EQ(json["cut_off_frames"], 3);
  EXPECT_EQ(json["ip_fragments"], 1);
  EXPECT_EQ(json["other_frames"], 1);
}

TEST(DecodeTest, AFileThatEndsEarlyIsShownAsFarAsItGoes) {
  Capture capture("early.pcap");
  capture.Add(SendFrame());
  capture.AddBytes("abc");
  const Result result = Decode({.path = capture.path()});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.lines().size(), 2u);
  EXPECT_NE(result.err.find("truncated"), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
}

TEST(DecodeTest, AReaderThatGoesAwayIsNoError) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  close(fds[0]);
  const auto old = signal(SIGPIPE, SIG_IGN);
  std::FILE* out = fdopen(fds[1], "w");
  char* err_text = nullptr;
  size_t err_size;
  std::FILE* err = open_memstream(&err_text, &err_size);
  EXPECT_EQ(
      RunDecode({.path = std::string(kGolden) + "rc_pingpong.pcap"}, out, err),
      0);
  std::fclose(out);
  std::fclose(err);
  signal(SIGPIPE, old);
  EXPECT_STREQ(err_text, "");
  free(err_text);
}

TEST(DecodeTest, AFullDiskIsAnError) {
  std::FILE* out = std::fopen("/dev/full", "w");
  ASSERT_NE(out, nullptr);
  char* err_text = nullptr;
  size_t err_size;
  std::FILE* err = open_memstream(&err_text, &err_size);
  EXPECT_EQ(
      RunDecode({.path = std::string(kGolden) + "rc_pingpong.pcap"}, out, err),
      1);
  std::fclose(out);
  std::fclose(err);
  EXPECT_STREQ(err_text,
               "rxe-user decode: cannot write: No space left on device\n");
  free(err_text);
}

TEST(DecodeTest, StandardInput) {
  const int saved = dup(STDIN_FILENO);
  const int file =
      open((std::string(kGolden) + "rc_pingpong.pcap").c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  dup2(file, STDIN_FILENO);
  close(file);
  const Result result = Decode({.path = "-"});
  dup2(saved, STDIN_FILENO);
  close(saved);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_GT(result.lines().size(), 10u);
}

TEST(DecodeTest, MessagesOfTheConnectionManagerAreNamed) {
  const Result text = Decode({.path = std::string(kGolden) + "cm_reject.pcap"});
  ASSERT_EQ(text.lines().size(), 3u);
  EXPECT_NE(text.lines()[0].find(" mad=CM_REQ "), std::string::npos);
  EXPECT_NE(text.lines()[0].find(" port_space=0x06 "), std::string::npos);
  EXPECT_NE(text.lines()[0].find(" cm_src=10.77.0.3 "), std::string::npos);
  EXPECT_NE(text.lines()[1].find(" mad=CM_REJ "), std::string::npos);
  EXPECT_NE(text.lines()[1].find(
                " answered=REQ reason_code=8 reason=INVALID_SERVICE_ID "),
            std::string::npos);

  const Result json =
      Decode({.path = std::string(kGolden) + "cm_reject.pcap", .json = true});
  const auto req = nlohmann::json::parse(json.lines()[0]);
  const auto rej = nlohmann::json::parse(json.lines()[1]);
  EXPECT_EQ(req["mad"], "CM_REQ");
  EXPECT_EQ(rej["remote_comm_id"], req["local_comm_id"]);
}

}  // namespace
}  // namespace rxe_user_cli
