#include <fcntl.h>
#include <pcap/pcap.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "rxe_user/observe/process_files.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

namespace fs = std::filesystem;
using transport::Direction;
using transport::Disposition;
using transport::ObservedPacket;
using Bytes = std::vector<uint8_t>;

constexpr std::chrono::seconds kPatience{20};

struct Record {
  int64_t time = 0;
  bool sent = false;
  wire::Frame frame;
  Bytes bytes;  // referenced by `frame`
};

// Reads `path` with libpcap. Fails if the file is incomplete.
std::vector<Record> Read(const std::string& path) {
  std::vector<Record> records;
  char error[PCAP_ERRBUF_SIZE];
  pcap_t* const pcap = pcap_open_offline_with_tstamp_precision(
      path.c_str(), PCAP_TSTAMP_PRECISION_NANO, error);
  if (pcap == nullptr) {
    ADD_FAILURE() << path << ": " << error;
    return records;
  }
  EXPECT_EQ(pcap_datalink(pcap), DLT_LINUX_SLL);
  pcap_pkthdr* header;
  const u_char* data;
  int result;
  while ((result = pcap_next_ex(pcap, &header, &data)) == 1) {
    EXPECT_EQ(header->caplen, header->len);
    Record record;
    record.time = header->ts.tv_sec * transport::kSecond + header->ts.tv_usec;
    record.bytes.assign(data, data + header->caplen);
    record.sent = record.bytes[1] == 4;
    records.push_back(std::move(record));
    Record& added = records.back();
    EXPECT_EQ(wire::DecodeFrame(pcap_datalink(pcap), added.bytes, &added.frame),
              wire::FrameKind::kUdp);
    EXPECT_FALSE(added.frame.is_truncated());
  }
  EXPECT_EQ(result, PCAP_ERROR_BREAK) << pcap_geterr(pcap);
  pcap_close(pcap);
  return records;
}

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() {
    char name[] = "/tmp/rxe_user_capture_XXXXXX";
    folder_ = mkdtemp(name);
    packet_.source = *wire::IpAddress::Parse("10.0.0.1");
    packet_.destination = *wire::IpAddress::Parse("10.0.0.2");
    packet_.source_port = 0xc123;
    packet_.traffic_class = 0x6a;
    packet_.hop_limit = 33;
  }
  ~CaptureTest() override { fs::remove_all(folder_); }

  std::string In(const std::string& name) const { return folder_ / name; }

  // Passes `capture` a packet whose ICRC is right for `ip_id`.
  void See(Capture* capture, uint32_t psn, uint16_t ip_id,
           size_t payload = 256) {
    wire::Headers headers;
    headers.bth.opcode = 0x04;
    headers.bth.dest_qpn = 17;
    headers.bth.psn = psn;
    const Bytes bytes = wire::BuildPacket(
        headers, Bytes(payload, 'x'),
        wire::IcrcFlow(packet_.source, packet_.destination, packet_.source_port,
                       wire::kRoceUdpPort),
        ip_id);
    packet_.bytes = bytes;
    capture->OnPacket(packet_);
  }

  fs::path folder_;
  ObservedPacket packet_;
};

bool HasGoodIcrc(const Record& record) {
  const wire::FrameHeaders& h = record.frame.headers;
  return h.icrc_flow().Verify(record.frame.udp_payload, h.ip_id, h.df);
}

TEST_F(CaptureTest, SentPacketsHaveTheirHeaders) {
  const int64_t before = time(nullptr) * transport::kSecond;
  auto capture = Capture::Begin(In("a.pcap"));
  ASSERT_NE(capture, nullptr);
  packet_.direction = Direction::kTransmitted;
  for (uint16_t i = 0; i < 3; ++i) {
    packet_.segment_index = i;
    See(capture.get(), 100 + i, i);
  }
  packet_.segment_index = 0;
  packet_.hop_limit = 0;  // the port's default
  See(capture.get(), 103, 0);
  capture.reset();
  const std::vector<Record> records = Read(In("a.pcap"));
  ASSERT_EQ(records.size(), 4u);
  int64_t last = before;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const wire::FrameHeaders& h = record.frame.headers;
    EXPECT_TRUE(record.sent);
    EXPECT_EQ(h.src, packet_.source);
    EXPECT_EQ(h.dst, packet_.destination);
    EXPECT_EQ(h.src_port, 0xc123);
    EXPECT_EQ(h.dst_port, 4791);
    EXPECT_EQ(h.tos, 0x6a);
    EXPECT_EQ(h.ttl, i < 3 ? 33 : 64);
    EXPECT_EQ(h.ip_id, i < 3 ? i : 0);
    EXPECT_TRUE(h.df);
    EXPECT_EQ(h.udp_checksum, wire::UdpChecksum(h, record.frame.udp_payload));
    EXPECT_TRUE(HasGoodIcrc(record));
    EXPECT_GE(record.time, last);
    last = record.time;
  }
  EXPECT_LE(last, (time(nullptr) + 1) * transport::kSecond);
}

TEST_F(CaptureTest, ReceivedPacketsHaveTheIpIdOfTheirIcrc) {
  auto capture = Capture::Begin(In("a.pcap"));
  ASSERT_NE(capture, nullptr);
  See(capture.get(), 100, 0x4711);
  packet_.segment_index = 5;
  See(capture.get(), 101, 5);
  packet_.disposition = Disposition::kBadIcrc;
  See(capture.get(), 102, 0x4712);
  // Too short for an ICRC.
  const Bytes three(3);
  packet_.bytes = three;
  packet_.disposition = Disposition::kTooShort;
  capture->OnPacket(packet_);
  capture.reset();
  const std::vector<Record> records = Read(In("a.pcap"));
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].frame.headers.ip_id, 0x4711);
  EXPECT_TRUE(HasGoodIcrc(records[0]));
  EXPECT_FALSE(records[0].sent);
  EXPECT_EQ(records[1].frame.headers.ip_id, 5);
  EXPECT_TRUE(HasGoodIcrc(records[1]));
  EXPECT_EQ(records[2].frame.headers.ip_id, 5);
  EXPECT_FALSE(HasGoodIcrc(records[2]));
  EXPECT_EQ(records[3].frame.udp_payload.size(), 3u);
}

TEST_F(CaptureTest, Ipv6) {
  packet_.source = *wire::IpAddress::Parse("fd00::1");
  packet_.destination = *wire::IpAddress::Parse("fd00::2");
  auto capture = Capture::Begin(In("a.pcap"));
  ASSERT_NE(capture, nullptr);
  See(capture.get(), 100, 0);
  capture.reset();
  const std::vector<Record> records = Read(In("a.pcap"));
  ASSERT_EQ(records.size(), 1u);
  const wire::FrameHeaders& h = records[0].frame.headers;
  EXPECT_EQ(h.src, packet_.source);
  EXPECT_EQ(h.tos, 0x6a);
  EXPECT_EQ(h.udp_checksum, wire::UdpChecksum(h, records[0].frame.udp_payload));
  EXPECT_TRUE(HasGoodIcrc(records[0]));
}

// --- Names.

TEST_F(CaptureTest, AFileIsNeverOverwritten) {
  const std::string pid = std::to_string(getpid());
  std::ofstream(In("a.pcap")) << "mine";
  for (const std::string& name : {"a.pcap." + pid, "a.pcap." + pid + ".2"}) {
    testing::internal::CaptureStderr();
    EXPECT_NE(Capture::Begin(In("a.pcap")), nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "rxe_user: " + In("a.pcap") +
                  " exists already: the packets of process " + pid +
                  " are in " + In(name) + "\n");
    EXPECT_TRUE(Read(In(name)).empty());
  }
  std::ifstream in(In("a.pcap"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "mine");
}

TEST_F(CaptureTest, TheProcessIdIsPartOfTheName) {
  const std::string pid = std::to_string(getpid());
  testing::internal::CaptureStderr();
  EXPECT_NE(Capture::Begin(In("%p-%p.pcap")), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(Read(In(pid + "-" + pid + ".pcap")).empty());
  // As after exec(): the process ID is the same.
  testing::internal::CaptureStderr();
  EXPECT_NE(Capture::Begin(In("%p-%p.pcap")), nullptr);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(Read(In(pid + "-" + pid + ".pcap.2")).empty());
}

TEST_F(CaptureTest, OnlyTheUserMayReadTheFile) {
  const mode_t before = umask(0);
  EXPECT_NE(Capture::Begin(In("a.pcap")), nullptr);
  umask(before);
  struct stat file;
  ASSERT_EQ(stat(In("a.pcap").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

// In a folder that others can write, packets used to go to another user's pipe,
// or to a file chosen by another user's link.
TEST_F(CaptureTest, DoesNotWriteToFilesOfOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kOther = 12345;
  const std::string fifo = In("fifo"), link = In("link"), device = In("device");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0666), 0);
  ASSERT_EQ(chown(fifo.c_str(), kOther, kOther), 0);
  const UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_EQ(symlink("/dev/null", link.c_str()), 0);
  ASSERT_EQ(lchown(link.c_str(), kOther, kOther), 0);
  std::vector<std::string> names = {fifo, link};
  // No driver has this number: an open would fail.
  if (mknod(device.c_str(), S_IFBLK | 0600, makedev(240, 0)) == 0) {
    names.push_back(device);
  }
  for (const std::string& name : names) {
    testing::internal::CaptureStderr();
    auto capture = Capture::Begin(name);
    testing::internal::GetCapturedStderr();
    ASSERT_NE(capture, nullptr) << name;
    See(capture.get(), 1, 0);
    capture.reset();
    EXPECT_EQ(Read(name + "." + std::to_string(getpid())).size(), 1u) << name;
  }
  char byte;
  EXPECT_LE(read(reader.get(), &byte, 1), 0);
}

// The user's own links, pipes and open descriptors still work.
TEST_F(CaptureTest, WritesToOwnLinksAndPipes) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd out(ends[0]), in(ends[1]);
  const std::string fifo = In("fifo"), link = In("link");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(symlink(fifo.c_str(), link.c_str()), 0);
  const UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto has_bytes = [](const UniqueFd& from) {
    std::array<char, 64> bytes;
    return read(from.get(), bytes.data(), bytes.size()) > 0;
  };
  testing::internal::CaptureStderr();
  Capture::Begin(link);
  EXPECT_TRUE(has_bytes(reader));
  Capture::Begin("/proc/self/fd/" + std::to_string(in.get()));
  EXPECT_TRUE(has_bytes(out));
  EXPECT_NE(Capture::Begin("/dev/null"), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CaptureTest, FailsWithoutAFile) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Capture::Begin(In("no/a.pcap")), nullptr);
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "rxe_user: cannot capture packets to " + In("no/a.pcap") +
          ": No such file or directory; the program runs without a capture\n");
}

// --- Writing.

TEST_F(CaptureTest, AFullDiskIsReportedOnce) {
  testing::internal::CaptureStderr();
  auto capture = Capture::Begin("/dev/full");
  ASSERT_NE(capture, nullptr);
  See(capture.get(), 1, 0);
  capture->file().Flush(kPatience);
  See(capture.get(), 2, 0);
  capture->file().Flush(kPatience);
  capture.reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: cannot write /dev/full: No space left on device; no "
            "more packets are captured, and the program continues\n");
}

// The file consists of whole records, even if the disk becomes full in the
// middle of one.
TEST_F(CaptureTest, ADiskThatBecomesFull) {
  testing::internal::CaptureStderr();
  const pid_t child = fork();
  if (child == 0) {
    auto capture = Capture::Begin(In("a.pcap"));
    See(capture.get(), 1, 0);
    capture->file().Flush(kPatience);
    // The writer thread has SIGXFSZ blocked.
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 2; i < 20; ++i) See(capture.get(), i, 0);
    capture->file().Flush(kPatience);
    capture.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: cannot write " + In("a.pcap") +
                ": File too large; no more packets are captured, and the "
                "program continues\n");
  EXPECT_EQ(Read(In("a.pcap")).size(), 1u);
}

// Packets appear without a flush, while the capture continues.
TEST_F(CaptureTest, AReaderSoonSeesThePackets) {
  auto capture = Capture::Begin(In("a.pcap"),
                                {.flush_after = std::chrono::milliseconds(1)});
  ASSERT_NE(capture, nullptr);
  for (size_t i = 1; i < 4; ++i) {
    See(capture.get(), static_cast<uint32_t>(i), 0);
    const auto size = [&] { return fs::file_size(In("a.pcap")); };
    const size_t whole = 24 + i * (16 + 16 + 28 + 12 + 256 + 4);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (size() != whole && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    EXPECT_EQ(size(), whole);
    EXPECT_EQ(Read(In("a.pcap")).size(), i);
  }
}

TEST_F(CaptureTest, NothingThatFitsTheBufferIsLost) {
  auto capture = Capture::Begin(
      In("a.pcap"), {.buffer_bytes = 4096, .longest_wait = kPatience});
  ASSERT_NE(capture, nullptr);
  constexpr uint32_t kEach = 2000;
  std::vector<std::thread> lanes;
  for (uint32_t lane = 0; lane < 3; ++lane) {
    lanes.emplace_back([&, lane] {
      ObservedPacket packet = packet_;
      const Bytes bytes(static_cast<size_t>(lane * 4 + 16), 'x');
      packet.bytes = bytes;
      packet.disposition = Disposition::kBadIcrc;
      for (uint32_t i = 0; i < kEach; ++i) capture->OnPacket(packet);
    });
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(capture->file().missed(), 0u);
  capture.reset();
  const std::vector<Record> records = Read(In("a.pcap"));
  EXPECT_EQ(records.size(), 3 * kEach);
  int64_t last = 0;
  for (const Record& record : records) {
    EXPECT_GE(record.time, last);
    last = record.time;
  }
}

// A pipe whose reader does not read: packets that do not fit are dropped, with
// a line on stderr. Accepted packets are complete.
TEST_F(CaptureTest, ASlowReaderMissesPackets) {
  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  const int reader = open(In("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  testing::internal::CaptureStderr();
  auto capture = Capture::Begin(In("pipe"),
                                {.buffer_bytes = 1 << 17,
                                 .flush_after = std::chrono::milliseconds(1),
                                 .longest_wait = std::chrono::milliseconds(1)});
  ASSERT_NE(capture, nullptr);
  // A pipe serves one capture.
  EXPECT_EQ(Capture::Begin(In("pipe")), nullptr);
  uint32_t seen = 0;
  while (capture->file().missed() < 10) See(capture.get(), seen++, 0);
  std::string all;
  std::thread emptier([&] {
    fcntl(reader, F_SETFL, 0);
    char some[4096];
    for (ssize_t n; (n = read(reader, some, sizeof(some))) > 0;) {
      all.append(some, static_cast<size_t>(n));
    }
  });
  const uint64_t missed = capture->file().missed();
  capture.reset();
  emptier.join();
  close(reader);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is incomplete"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  std::ofstream(In("a.pcap")) << all;
  EXPECT_EQ(Read(In("a.pcap")).size(), seen - missed);
}

// --- The process.

// Runs `body` in a child with RXE_USER_CAPTURE set.
int InChild(const std::string& name, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("RXE_USER_CAPTURE", name.c_str(), 1);
    body();
    exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

Capture* OfProcess() { return ProcessCapture(); }

TEST_F(CaptureTest, ThereIsNoneWithoutTheVariable) {
  unsetenv("RXE_USER_CAPTURE");
  EXPECT_EQ(InChild("", [] { _exit(ProcessCapture() == nullptr ? 0 : 1); }), 0);
}

TEST_F(CaptureTest, ItIsCompleteWhenTheProcessHasEnded) {
  EXPECT_EQ(InChild(In("a.pcap"),
                    [&] {
                      if (OfProcess() != OfProcess()) _exit(1);
                      See(OfProcess(), 1, 0);
                      See(OfProcess(), 2, 0);
                    }),
            0);
  EXPECT_EQ(Read(In("a.pcap")).size(), 2u);
}

TEST_F(CaptureTest, AChildOfForkHasOneOfItsOwn) {
  const auto body = [&] {
    Capture* const before = OfProcess();
    See(before, 1, 0);
    const pid_t child = fork();
    if (child == 0) {
      See(before, 2, 0);  // by a lane of the parent
      if (OfProcess() == before) _exit(1);
      See(OfProcess(), 3, 0);
      exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) _exit(2);
    See(before, 4, 0);
  };
  EXPECT_EQ(InChild(In("%p.pcap"), body), 0);
  std::vector<size_t> sizes;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    sizes.push_back(Read(entry.path()).size());
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 2}));
}

}  // namespace
}  // namespace rxe_user
