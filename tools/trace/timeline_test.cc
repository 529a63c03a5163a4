// Time lines of simulated connections, for which it is known what the network
// did.
#include "tools/trace/timeline.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "rxe_user/observe/trace_blocks.h"
#include "tools/trace/conversation.h"
#include "tools/trace/sim_recorder.h"
#include "tools/trace/text_view.h"
#include "transport/base/rare_event.h"
#include "transport/cm/mad_packet.h"
#include "transport/sim/pair.h"
#include "wire/cm.h"

namespace trace {
namespace {

std::unique_ptr<Recording> Load(const std::string& path) {
  auto recording = std::make_unique<Recording>();
  EXPECT_TRUE(ReadRecording(path, recording.get())) << recording->error;
  EXPECT_EQ(recording->error, "");
  return recording;
}

// A connection whose ends are both recorded.
struct Recorded {
  explicit Recorded(const sim::PairOptions& options, int64_t clock_b = 0,
                    uint8_t boot_b = 1)
      : pair(options),
        a(&pair.net, pair.a.node, "client", 1),
        b(&pair.net, pair.b.node, "server", boot_b, clock_b) {
    pair.net.filter = [this](const sim::Node& from,
                             const wire::PacketView& packet) {
      const size_t n = sent[from.index()]++;
      if (!drop || !drop(from.index(), n, packet)) return true;
      dropped.insert({from.index(), n});
      return false;
    };
    pair.Connect();
  }

  // Reads the recordings.
  void Finish() {
    files.push_back(Load(a.Write("a.pcapng")));
    files.push_back(Load(b.Write("b.pcapng")));
    timeline = MakeTimeline({files[0].get(), files[1].get()}, {});
    conversation = Analyze(&timeline);
  }
  // Packets with this fate: node, and number among those that it sent.
  std::set<std::pair<int, size_t>> With(Fate fate) const {
    return Select([&](const Arrow& arrow) { return arrow.fate == fate; });
  }
  std::set<std::pair<int, size_t>> Ambiguous() const {
    return Select([](const Arrow& arrow) { return arrow.ambiguous; });
  }
  std::set<std::pair<int, size_t>> Select(
      const std::function<bool(const Arrow&)>& wanted) const {
    std::set<std::pair<int, size_t>> found;
    for (const Arrow& arrow : timeline.arrows) {
      if (!wanted(arrow) || arrow.sent == nullptr) continue;
      size_t n = 0;
      for (const Packet& p : files[arrow.sent_file]->packets) {
        if (&p == arrow.sent) break;
        n += p.direction == wire::pcapng::Direction::kSent;
      }
      found.insert({static_cast<int>(arrow.sent_file), n});
    }
    return found;
  }

  sim::Pair pair;
  SimRecorder a;
  SimRecorder b;
  std::map<int, size_t> sent;
  std::function<bool(int, size_t, const wire::PacketView&)> drop;
  std::set<std::pair<int, size_t>> dropped;
  std::vector<std::unique_ptr<Recording>> files;
  Timeline timeline;
  Conversation conversation;
};

TEST(TimelineTest, ALossAndItsRepair) {
  Recorded r({});
  r.drop = [](int from, size_t n, const wire::PacketView&) {
    return from == 0 && n == 5;
  };
  for (int i = 0; i < 4; ++i) r.pair.a.Write(i, 0, 0, 3500);
  r.pair.Run();
  r.Finish();
  EXPECT_EQ(r.dropped.size(), 1u);
  EXPECT_EQ(r.With(Fate::kLost), r.dropped);
  EXPECT_TRUE(r.timeline.notes.empty());
  ASSERT_EQ(r.timeline.ends.size(), 2u);
  EXPECT_EQ(r.timeline.ends[0].label, "A 10.0.0.1 client[101]");
  EXPECT_EQ(r.timeline.ends[1].label, "B 10.0.0.2 server[101]");
  ASSERT_EQ(r.conversation.messages.size(), 4u);
  for (const Message& message : r.conversation.messages) {
    EXPECT_EQ(message.name, "RDMA_WRITE");
    EXPECT_EQ(message.bytes, 3500u);
    EXPECT_EQ(message.last_psn - message.first_psn, 3u);
    EXPECT_NE(message.done, kNoTime);
    EXPECT_EQ(message.error, "");
  }
  ASSERT_EQ(r.conversation.connections.size(), 1u);
  EXPECT_NE(r.conversation.connections[0].qpn_a, 0u);
  EXPECT_NE(r.conversation.connections[0].qpn_b, 0u);
  const Counts counts = CountPackets(r.timeline);
  EXPECT_EQ(counts.lost, 1u);
  EXPECT_GT(counts.repeated, 0u);
}

// Where picture and network differ, the picture must say "ambiguous". A tenth
// of the packets is lost here, and many are equal.
TEST(TimelineTest, RandomLossesAreNamed) {
  size_t dropped = 0;
  size_t named = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    sim::PairOptions options;
    options.seed = seed;
    if (seed % 2 == 0) options.link.jitter = 20 * transport::kMicrosecond;
    Recorded r(options);
    std::mt19937 random(static_cast<uint32_t>(seed));
    const uint32_t one_in = 10 + 30 * (seed % 3);
    r.drop = [&](int, size_t, const wire::PacketView&) {
      return random() % one_in == 0;
    };
    for (int i = 0; i < 30; ++i) {
      r.pair.a.Write(i, 0, 0, 1 + random() % 6000);
      r.pair.b.Write(i, 0, 0, 1 + random() % 6000);
      r.pair.a.Read(i, 0, 0, 1 + random() % 6000);
    }
    r.pair.Run();
    r.Finish();
    std::set<std::pair<int, size_t>> missing = r.With(Fate::kLost);
    for (const auto& packet : r.With(Fate::kAfterEnd)) missing.insert(packet);
    const std::set<std::pair<int, size_t>> ambiguous = r.Ambiguous();
    dropped += r.dropped.size();
    for (const auto& packet : r.dropped) {
      named += missing.contains(packet);
      EXPECT_TRUE(missing.contains(packet) || ambiguous.contains(packet))
          << "seed " << seed << ": node " << packet.first << ", packet "
          << packet.second << " was dropped";
    }
    for (const auto& packet : missing) {
      EXPECT_TRUE(r.dropped.contains(packet) || ambiguous.contains(packet))
          << "seed " << seed << ": node " << packet.first << ", packet "
          << packet.second << " arrived";
    }
  }
  EXPECT_GT(dropped, 500u);
  EXPECT_GE(static_cast<double>(named), 0.85 * static_cast<double>(dropped))
      << named << " of " << dropped;
  RecordProperty("dropped", static_cast<int>(dropped));
  RecordProperty("named", static_cast<int>(named));
}

TEST(TimelineTest, DuplicatesAndReorderedPacketsAreNoLosses) {
  sim::PairOptions options;
  options.link.duplicate = 50'000;
  options.link.reorder = 50'000;
  Recorded r(options);
  for (int i = 0; i < 40; ++i) r.pair.a.Write(i, 0, 0, 5000);
  r.pair.Run();
  r.Finish();
  EXPECT_TRUE(r.With(Fate::kLost).empty());
  const Counts counts = CountPackets(r.timeline);
  EXPECT_GT(counts.duplicates, 0u);
  EXPECT_GT(counts.overtaken, 0u);
  EXPECT_EQ(counts.strangers, 0u);
}

TEST(TimelineTest, ClocksOfTwoHosts) {
  for (const int64_t ahead : {int64_t{3'000'000'000}, int64_t{-40'000'000}}) {
    Recorded r({}, ahead, /*boot_b=*/2);
    for (int i = 0; i < 8; ++i) {
      r.pair.a.Write(i, 0, 0, 3000);
      r.pair.b.Write(i, 0, 0, 3000);
    }
    r.pair.Run();
    r.Finish();
    EXPECT_TRUE(r.With(Fate::kLost).empty());
    EXPECT_EQ(CountPackets(r.timeline).strangers, 0u);
    EXPECT_NEAR(static_cast<double>(r.timeline.offsets[1]),
                static_cast<double>(ahead),
                static_cast<double>(r.timeline.uncertainties[1]) + 1);
    EXPECT_LE(r.timeline.uncertainties[1], 10 * transport::kMicrosecond);
    ASSERT_EQ(r.timeline.notes.size(), 1u);
    EXPECT_NE(r.timeline.notes[0].find(ahead > 0 ? "ahead" : "behind"),
              std::string::npos)
        << r.timeline.notes[0];
  }
}

// Two processes of one host: both receive at queue pair 1 of its address.
TEST(TimelineTest, ConnectionManagementOfOneAddress) {
  constexpr uint32_t kActive = 0x00100001;
  constexpr uint32_t kPassive = 0x00200002;
  Recorded r({});
  const wire::IpAddress address = *wire::IpAddress::Parse("192.0.2.1");
  uint32_t psn = 0;
  const auto send = [&](SimRecorder* from, SimRecorder* to,
                        const auto& message) {
    std::array<uint8_t, wire::kMadSize> mad;
    wire::EmitCm({.id = 5}, message, mad);
    std::array<uint8_t, transport::cm::kMadPacketSize> bytes;
    transport::cm::EmitMadPacket(
        {.source = address, .destination = address, .source_port = 0xc123},
        ++psn, mad, bytes);
    transport::ObservedPacket packet;
    packet.bytes = bytes;
    packet.source = packet.destination = address;
    packet.source_port = 0xc123;
    packet.direction = transport::Direction::kTransmitted;
    from->OnPacket(packet);
    packet.direction = transport::Direction::kReceived;
    if (to != nullptr) to->OnPacket(packet);
  };
  wire::CmReq req;
  req.local_comm_id = kActive;
  send(&r.a, &r.b, req);
  send(&r.b, &r.a,
       wire::CmRep{.local_comm_id = kPassive, .remote_comm_id = kActive});
  // This RTU is lost.
  send(&r.a, nullptr,
       wire::CmRtu{.local_comm_id = kActive, .remote_comm_id = kPassive});
  send(&r.b, &r.a,
       wire::CmRej{.local_comm_id = kPassive,
                   .remote_comm_id = kActive,
                   .reason = wire::CmRejectReason::kTimeout});
  r.Finish();
  ASSERT_EQ(r.timeline.arrows.size(), 4u);
  // All have the same time.
  std::map<std::string, const Arrow*> arrows;
  for (const Arrow& arrow : r.timeline.arrows) {
    arrows[PacketText(arrow.packet())] = &arrow;
  }
  const std::map<std::string, std::pair<size_t, size_t>> ways = {
      {"CM REQ", {0, 1}},
      {"CM REP", {1, 0}},
      {"CM RTU", {0, 1}},
      {"CM REJ", {1, 0}}};
  for (const auto& [text, way] : ways) {
    ASSERT_TRUE(arrows.contains(text)) << text;
    const Arrow& arrow = *arrows[text];
    EXPECT_EQ(std::pair(arrow.from, arrow.to), way) << text;
    EXPECT_EQ(arrow.fate, text == "CM RTU" ? Fate::kLost : Fate::kArrived)
        << text;
  }
}

// A packet in flight to a queue pair that is destroyed is not lost.
TEST(TimelineTest, TheQueuePairWasDestroyed) {
  for (const bool is_destroyed : {false, true}) {
    Recorded r({});
    r.pair.a.Write(1, 0, 0, 100);
    r.pair.Run();
    uint32_t qpn = 0;  // that of the receiver
    for (const Packet& packet : Load(r.a.Write("a.pcapng"))->packets) {
      if (packet.direction == wire::pcapng::Direction::kSent) qpn = packet.qpn;
    }
    r.drop = [](int from, size_t, const wire::PacketView&) {
      return from == 0;
    };
    if (is_destroyed) {
      rxe_user::trace::IncidentEvent incident;
      incident.header.qpn = qpn;
      incident.kind =
          static_cast<uint8_t>(transport::RareEventKind::kDestroyed);
      r.b.Add(incident);
    }
    r.pair.a.Write(2, 0, 0, 100);
    r.pair.Run();
    // The file continues.
    rxe_user::trace::CallEvent call;
    r.b.Add(call);
    r.Finish();
    EXPECT_EQ(r.With(Fate::kLost).empty(), is_destroyed);
    EXPECT_EQ(r.With(Fate::kAfterEnd).empty(), !is_destroyed);
  }
}

TEST(TimelineTest, AFileWithoutPackets) {
  Recorded r({});
  const auto empty = Load(r.a.Write("empty.pcapng"));
  const Timeline timeline = MakeTimeline({empty.get()}, {});
  ASSERT_EQ(timeline.notes.size(), 1u);
  EXPECT_NE(timeline.notes[0].find("empty.pcapng has no packets: "),
            std::string::npos)
      << timeline.notes[0];
}

TEST(TimelineTest, OneEndAlone) {
  Recorded r({});
  r.pair.a.Write(1, 0, 0, 3000);
  r.pair.Run();
  const auto file = Load(r.a.Write("alone.pcapng"));
  Timeline timeline = MakeTimeline({file.get()}, {});
  const Conversation conversation = Analyze(&timeline);
  ASSERT_EQ(timeline.ends.size(), 2u);
  EXPECT_EQ(timeline.ends[1].label, "B 10.0.0.2 (not recorded)");
  for (const Arrow& arrow : timeline.arrows) {
    EXPECT_EQ(arrow.fate, arrow.from == 0 ? Fate::kUnseen : Fate::kReceived);
  }
  ASSERT_EQ(conversation.messages.size(), 1u);
  EXPECT_NE(conversation.messages[0].done, kNoTime);
}

// The recording of one process with two connected queue pairs: combines the
// recordings of two nodes under one address.
Recording OfOneProcess(const Recorded& r) {
  Recording both = *r.files[0];
  both.packets.clear();
  both.heads.clear();
  for (const auto& file : r.files) {
    for (Packet p : file->packets) {
      const auto head = file->HeadOf(p);
      p.src = p.dst = *wire::IpAddress::Parse("127.0.0.1");
      p.head = both.heads.size();
      both.heads.insert(both.heads.end(), head.begin(), head.end());
      both.packets.push_back(p);
    }
  }
  return both;
}

TEST(TimelineTest, AProcessThatSendsToItself) {
  Recorded r({});
  r.pair.a.Write(1, 0, 0, 3000);
  r.pair.Run();
  r.Finish();
  const Recording both = OfOneProcess(r);
  const Timeline timeline = MakeTimeline({&both}, {});
  ASSERT_EQ(timeline.ends.size(), 2u);
  EXPECT_NE(timeline.ends[0].qpn, timeline.ends[1].qpn);
  EXPECT_EQ(timeline.arrows.size(), r.timeline.arrows.size());
  for (const Arrow& arrow : timeline.arrows) {
    EXPECT_EQ(arrow.fate, Fate::kArrived);
    EXPECT_NE(arrow.from, arrow.to);
  }
}

// The peer is another process with the same address that is not recorded:
// nothing is lost.
TEST(TimelineTest, OneOfTwoProcessesOfAnAddress) {
  Recorded r({});
  rxe_user::trace::QpStateEvent state;
  state.header.qpn = r.pair.a.qp->qpn();
  r.a.Add(state);
  r.pair.a.Write(1, 0, 0, 3000);
  r.pair.Run();
  r.Finish();
  Recording one = *r.files[0];
  for (Packet& p : one.packets) {
    p.src = p.dst = *wire::IpAddress::Parse("127.0.0.1");
  }
  const Timeline timeline = MakeTimeline({&one}, {});
  ASSERT_EQ(timeline.ends.size(), 2u);
  EXPECT_EQ(timeline.ends[0].file, 0u);
  EXPECT_EQ(timeline.ends[1].file, kNone);
  ASSERT_FALSE(timeline.arrows.empty());
  for (const Arrow& arrow : timeline.arrows) {
    EXPECT_EQ(arrow.fate,
              arrow.sent != nullptr ? Fate::kUnseen : Fate::kReceived);
    EXPECT_NE(arrow.from, arrow.to);
  }
}

// A is the queue pair that was created first, whatever its number.
TEST(TimelineTest, QueuePairsOfAProcessAreInTheOrderOfTheirCreation) {
  for (const bool a_is_first : {true, false}) {
    Recorded r({});
    const uint32_t numbers[] = {r.pair.a.qp->qpn(), r.pair.b.qp->qpn()};
    rxe_user::trace::QpStateEvent state;
    state.header.qpn = numbers[a_is_first ? 0 : 1];
    r.a.Add(state);
    r.pair.net.RunTo(r.pair.net.now() + transport::kMicrosecond);
    state.header.qpn = numbers[a_is_first ? 1 : 0];
    r.a.Add(state);
    r.pair.a.Write(1, 0, 0, 3000);
    r.pair.Run();
    r.Finish();
    const Recording both = OfOneProcess(r);
    const Timeline timeline = MakeTimeline({&both}, {});
    ASSERT_EQ(timeline.ends.size(), 2u);
    EXPECT_EQ(timeline.ends[0].qpn, numbers[a_is_first ? 0 : 1]);
    EXPECT_EQ(timeline.ends[1].qpn, numbers[a_is_first ? 1 : 0]);
  }
}

// Each packet has an event that names the sender's queue pair, so the sender is
// known among many even without an answer.
TEST(TimelineTest, TheSenderIsKnownByItsEvent) {
  Recorded r({});
  // Nothing arrives, so no answer shows the sender.
  r.drop = [](int, size_t, const wire::PacketView&) { return true; };
  r.pair.a.Write(1, 0, 0, 100);
  r.pair.Run();
  r.Finish();
  size_t sent = 0;
  for (const Arrow& arrow : r.timeline.arrows) {
    if (arrow.sent == nullptr) continue;
    ++sent;
    EXPECT_EQ(arrow.local_qpn,
              arrow.sent_file == 0 ? r.pair.a.qp->qpn() : r.pair.b.qp->qpn());
  }
  EXPECT_GT(sent, 0u);
}

TEST(TimelineTest, WorkRequestsOfEvents) {
  Recorded r({});
  rxe_user::trace::PostedEvent posted;
  posted.header.qpn = 77;
  posted.wr_id = 0xabc;
  posted.opcode = 4;
  posted.bytes = 3000;
  rxe_user::trace::BegunEvent begun;
  begun.header.qpn = 77;
  begun.header.cause = r.a.Add(posted);
  begun.first_psn = 5;
  begun.last_psn = 7;
  r.a.Add(begun);
  r.pair.a.Read(1, 0, 0, 3000);
  r.pair.Run();
  rxe_user::trace::CompletedEvent completed;
  completed.header.qpn = 77;
  completed.posted = begun.header.cause;
  completed.status = 12;
  rxe_user::trace::PolledEvent polled;
  polled.header.qpn = 77;
  polled.header.cause = r.a.Add(completed);
  r.a.Add(polled);
  r.Finish();
  ASSERT_EQ(r.conversation.messages.size(), 1u);
  const Message& message = r.conversation.messages[0];
  EXPECT_EQ(message.name, "RDMA_READ");
  EXPECT_EQ(message.wr_id, 0xabcu);
  EXPECT_EQ(message.first_psn, 5u);
  EXPECT_EQ(message.last_psn, 7u);
  EXPECT_EQ(message.error, "RETRY_EXC_ERR");
  EXPECT_NE(message.polled, kNoTime);
}

// The CPU time used by the process, s.
double CpuTime() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A packet of a requester that sends to `qpn`.
Packet RequestTo(uint32_t qpn, uint32_t psn) {
  Packet p;
  p.src = *wire::IpAddress::Parse("10.0.0.1");
  p.dst = *wire::IpAddress::Parse("10.0.0.2");
  p.qpn = qpn;
  p.psn = psn;
  p.key = p.key_short = uint64_t{qpn} << 24 | psn;
  p.opcode =
      wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kWriteOnly);
  p.direction = wire::pcapng::Direction::kSent;
  return p;
}

template <typename Struct>
Event EventOf(Struct event) {
  rxe_user::trace::Complete(&event);
  const auto bytes = rxe_user::trace::BytesOf(event);
  return *Event::Parse({bytes.begin(), bytes.end()});
}

// A program may have thousands of queue pairs.
TEST(TimelineTest, EventsOfManyQueuePairsAreQuick) {
  constexpr uint32_t kPairs = 40'000, kMessages = 5;
  Recording recording;
  for (uint32_t i = 0; i < kPairs * kMessages; ++i) {
    recording.packets.push_back(RequestTo(2 + i % kPairs, i / kPairs));
    rxe_user::trace::PostedEvent posted;
    posted.header.id = i + 1;
    posted.header.qpn = 0x100000 + i % kPairs;
    recording.events.push_back(EventOf(posted));
  }
  const double begin = CpuTime();
  Timeline timeline = MakeTimeline({&recording}, {});
  const Conversation conversation = Analyze(&timeline);
  EXPECT_EQ(conversation.connections.size(), kPairs);
  EXPECT_EQ(conversation.messages.size(), kPairs * kMessages);
  EXPECT_LT(CpuTime() - begin, 20);
}

// The writer of a capture chooses what it contains.
TEST(TimelineTest, ManyRepeatsOfAnOldRequestAreQuick) {
  constexpr uint32_t kMany = 200'000;
  Recording recording;
  for (uint32_t i = 0; i < 2 * kMany; ++i) {
    recording.packets.push_back(RequestTo(2, i < kMany ? i : 0));
    recording.packets.back().time = i;
  }
  const double begin = CpuTime();
  Timeline timeline = MakeTimeline({&recording}, {});
  const Conversation conversation = Analyze(&timeline);
  EXPECT_EQ(conversation.messages.size(), kMany);
  EXPECT_EQ(timeline.arrows.back().repeat, kMany);
  EXPECT_EQ(timeline.arrows.back().message, 1u);
  EXPECT_LT(CpuTime() - begin, 20);
}

TEST(TimelineTest, ManyAddressesThatSendToThemselvesAreQuick) {
  constexpr uint32_t kMany = 50'000;
  Recording recording;
  for (uint32_t i = 0; i < kMany; ++i) {
    for (const auto way :
         {wire::pcapng::Direction::kSent, wire::pcapng::Direction::kReceived}) {
      Packet p = RequestTo(2 + i, 0);
      std::memcpy(&p.src.bytes[12], &i, 4);
      p.dst = p.src;
      p.direction = way;
      recording.packets.push_back(p);
    }
  }
  const double begin = CpuTime();
  const Timeline timeline = MakeTimeline({&recording}, {});
  EXPECT_EQ(timeline.arrows.size(), kMany);
  EXPECT_LT(CpuTime() - begin, 20);
}

// Each file is as far ahead of the previous one as times can be.
TEST(TimelineTest, TimesOfAChainOfFilesHaveALimit) {
  std::vector<Recording> files(6);
  std::vector<const Recording*> all;
  for (size_t f = 0; f < files.size(); ++f) {
    const auto add = [&](size_t link, int64_t time,
                         wire::pcapng::Direction way) {
      Packet p = RequestTo(static_cast<uint32_t>(2 + link), 0);
      p.src.bytes[15] = static_cast<uint8_t>(link);
      p.dst.bytes[15] = static_cast<uint8_t>(link + 1);
      p.time = time;
      p.direction = way;
      files[f].packets.push_back(p);
    };
    add(f, 0, wire::pcapng::Direction::kSent);
    if (f > 0) add(f - 1, kLatestTime, wire::pcapng::Direction::kReceived);
    // The way back takes no time.
    if (f > 0) add(f + 99, kLatestTime, wire::pcapng::Direction::kSent);
    add(f + 100, 0, wire::pcapng::Direction::kReceived);
    all.push_back(&files[f]);
  }
  const Timeline timeline = MakeTimeline(all, {});
  for (const int64_t offset : timeline.offsets) {
    EXPECT_GE(offset, -kLatestTime);
    EXPECT_LE(offset, kLatestTime);
  }
}

// Captures of two hosts that are beside the checkout, with a log of what the
// link between them dropped: NAME.a.pcap, NAME.b.pcap and NAME.link.
TEST(TimelineTest, CapturesOfALinkThatLogs) {
  // Tests see symbolic links into the checkout.
  std::error_code error;
  const auto page = std::filesystem::canonical("docs/trace-format.md", error);
  const auto folder =
      page.parent_path().parent_path().parent_path() / "shared/lab/cap";
  if (!std::filesystem::exists(folder, error)) {
    GTEST_SKIP() << "there is no ../shared/lab/cap";
  }
  size_t dropped = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".link") continue;
    const std::string name = entry.path().parent_path() / entry.path().stem();
    const auto a = Load(name + ".a.pcap");
    const auto b = Load(name + ".b.pcap");
    Timeline timeline = MakeTimeline({a.get(), b.get()}, {});
    // The link's lines: seconds, direction, opcode, PSN, action.
    std::multiset<std::pair<bool, uint32_t>> log;
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string time, direction, opcode, psn, action;
      words >> time >> direction >> opcode >> psn >> action;
      if (action != "drop") continue;
      log.insert({direction == "a2b",
                  static_cast<uint32_t>(std::stoul(psn.substr(4)))});
    }
    dropped += log.size();
    std::multiset<std::pair<bool, uint32_t>> named;
    for (const Arrow& arrow : timeline.arrows) {
      if (arrow.fate == Fate::kLost) {
        named.insert({arrow.sent_file == 0, arrow.packet().psn});
      }
    }
    EXPECT_EQ(named, log) << name;
  }
  EXPECT_GT(dropped, 0u);
}

}  // namespace
}  // namespace trace
