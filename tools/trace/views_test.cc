// The views of a time line: ladder, page, Perfetto, text and JSON.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tools/trace/conversation.h"
#include "tools/trace/escape.h"
#include "tools/trace/ladder.h"
#include "tools/trace/page.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/sim_recorder.h"
#include "tools/trace/sqlog.h"
#include "tools/trace/text_view.h"
#include "tools/trace/time_text.h"
#include "tools/trace/timeline.h"
#include "transport/sim/pair.h"

namespace trace {
namespace {

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

// A recorded connection and its views.
struct Views {
  explicit Views(std::string_view program = "client")
      : a(&pair.net, pair.a.node, program, 1),
        b(&pair.net, pair.b.node, "server", 1) {
    pair.net.filter = [this](const sim::Node& from, const wire::PacketView& p) {
      return keep == nullptr || keep(from.index(), p);
    };
    pair.Connect();
  }
  // Makes the link drop the second packet of `pair.a`, once.
  void LoseSecondPacket() {
    keep = [this, dropped = false](int from,
                                   const wire::PacketView& p) mutable {
      if (dropped || from != 0 || p.bth().psn != pair.a.attributes.sq_psn + 1) {
        return true;
      }
      dropped = true;
      return false;
    };
  }
  void Make(size_t limit = 100'000) {
    for (const std::string& path :
         {a.Write("views_a.pcapng"), b.Write("views_b.pcapng")}) {
      files.push_back(std::make_unique<Recording>());
      ASSERT_TRUE(ReadRecording(path, files.back().get()));
    }
    timeline = MakeTimeline({files[0].get(), files[1].get()}, {});
    conversation = Analyze(&timeline);
    ladder = MakeLadder(timeline, conversation, limit);
    html = HtmlPage(timeline, conversation, ladder);
  }
  std::string Written(std::unique_ptr<PartWriter> (*make)(std::FILE*)) const {
    return Written(
        [make](const auto& timeline, const auto& conversation, std::FILE* out) {
          const auto writer = make(out);
          return writer->Write(timeline, conversation) && writer->End();
        });
  }
  std::string Written(
      const std::function<bool(const Timeline&, const Conversation&,
                               std::FILE*)>& write) const {
    char* text = nullptr;
    size_t size = 0;
    std::FILE* const out = open_memstream(&text, &size);
    EXPECT_TRUE(write(timeline, conversation, out));
    std::fclose(out);
    std::string result(text, size);
    std::free(text);
    return result;
  }

  sim::Pair pair;
  SimRecorder a;
  SimRecorder b;
  std::function<bool(int, const wire::PacketView&)> keep;
  std::vector<std::unique_ptr<Recording>> files;
  Timeline timeline;
  Conversation conversation;
  Ladder ladder;
  std::string html;
};

TEST(LadderTest, ALossEndsHalfWayAndItsRepeatIsDashed) {
  Views v;
  v.LoseSecondPacket();
  v.pair.a.Write(1, 0, 0, 3500);
  v.pair.Run();
  v.Make();
  EXPECT_EQ(Count(v.ladder.body, "data-fate=\"lost\""), 1u);
  EXPECT_EQ(Count(v.ladder.body, "class=\"x\""), 1u);
  EXPECT_EQ(Count(v.ladder.body, "class=\"p "), v.timeline.arrows.size());
  EXPECT_GE(Count(v.ladder.body, "data-again=\"1\""), 3u);
  EXPECT_EQ(Count(v.ladder.body, "class=\"p n t\""), 1u);
  EXPECT_EQ(Count(v.ladder.body, "<path class=\"m "), 1u);
  EXPECT_NE(v.ladder.body.find("NAK PSN sequence error"), std::string::npos);
  EXPECT_NE(v.Written(MakeTextWriter).find("| LOST\n"), std::string::npos);
}

TEST(LadderTest, ARunOfMiddlePacketsIsOneBand) {
  Views v;
  v.pair.a.Write(1, 0, 0, 40 * 1024);
  v.pair.Run();
  v.Make();
  EXPECT_EQ(Count(v.ladder.body, "class=\"b "), 1u);
  EXPECT_EQ(Count(v.ladder.body, "data-n=\"38\""), 1u);
  EXPECT_LT(Count(v.ladder.body, "class=\"p "), 10u);
}

TEST(LadderTest, ASilenceIsFolded) {
  Views v;
  v.pair.a.Write(1, 0, 0, 3000);
  v.pair.Run();
  v.pair.net.RunTo(v.pair.now() + 5 * transport::kSecond);
  v.pair.a.Write(2, 0, 0, 3000);
  v.pair.Run();
  v.Make();
  EXPECT_EQ(Count(v.ladder.body, "data-ns=\"5"), 1u) << v.ladder.body;
  EXPECT_NE(v.ladder.body.find("5.00 s of silence"), std::string::npos);
  EXPECT_LT(v.ladder.height, 600);
}

TEST(LadderTest, EventsAreOnTheLines) {
  Views v;
  rxe_user::trace::QpStateEvent state;
  state.from = 3;
  state.to = 6;
  v.a.Add(state);
  rxe_user::trace::TimerEvent timer;
  timer.action = 1;
  timer.psn = 8;
  v.a.Add(timer);
  timer.action = 0;  // set only, so it is not drawn
  v.a.Add(timer);
  v.pair.a.Write(1, 0, 0, 3000);
  v.pair.Run();
  v.Make();
  EXPECT_EQ(Count(v.ladder.body, "class=\"v\""), 2u);
  EXPECT_NE(v.ladder.body.find("state RTS to ERR"), std::string::npos);
  EXPECT_NE(v.ladder.body.find("ACK timeout fired, for 8"), std::string::npos);
}

TEST(LadderTest, TheFirstPacketsUpToTheLimit) {
  Views v;
  for (int i = 0; i < 10; ++i) v.pair.a.Write(i, 0, 0, 64);
  v.pair.Run();
  v.Make(/*limit=*/5);
  EXPECT_EQ(Count(v.ladder.body, "class=\"p "), 5u);
  EXPECT_NE(v.html.find("The picture has the first 5 packets"),
            std::string::npos);
}

TEST(LadderTest, ALimitOfNothing) {
  Views v;
  v.pair.a.Write(1, 0, 0, 64);
  v.pair.Run();
  v.Make(/*limit=*/0);
  EXPECT_EQ(Count(v.ladder.body, "class=\"p "), 0u);
  EXPECT_TRUE(v.ladder.messages.empty());
}

// Unsignaled requests never complete.
TEST(LadderTest, ManyOpenMessagesAreQuick) {
  constexpr int kMany = 300'000;
  Timeline timeline;
  timeline.ends.resize(1);
  Conversation conversation;
  for (int i = 0; i < kMany; ++i) {
    Message message;
    message.begin = i;
    conversation.messages.push_back(message);
  }
  const std::clock_t begin = std::clock();
  const Ladder ladder = MakeLadder(timeline, conversation, 1);
  EXPECT_EQ(ladder.messages.size(), size_t{kMany});
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

TEST(PageTest, ManyBracketsAreQuick) {
  Views v;
  rxe_user::trace::CallEvent call;
  call.error = 22;
  rxe_user::trace::SetText(std::string(sizeof(call.arguments), '<'),
                           call.arguments);
  for (int i = 0; i < 16'000; ++i) v.a.Add(call);
  v.pair.a.Write(1, 0, 0, 64);
  v.pair.Run();
  const std::clock_t begin = std::clock();
  v.Make();
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 30);
}

// 10,000 packets that cannot be folded, so each is drawn: at most 3 MB.
TEST(PageTest, SizeOfTenThousandPackets) {
  Views v;
  for (int i = 0; i < 5'000; ++i) {
    ASSERT_EQ(v.pair.a.Write(i, 0, 0, 64), 0);
    ASSERT_TRUE(v.pair.RunUntilSent(v.pair.a, 1));
    v.pair.a.TakeSend();
  }
  const auto start = std::chrono::steady_clock::now();
  v.Make();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  EXPECT_GE(v.timeline.arrows.size(), 10'000u);
  EXPECT_EQ(Count(v.ladder.body, "class=\"p "), v.timeline.arrows.size());
  EXPECT_LE(v.html.size(), 3'000'000u);
  RecordProperty("milliseconds", static_cast<int>(took.count() * 1000));
}

// Whatever a file contains, it adds no element, attribute or script.
TEST(PageTest, NothingFromAFileIsRun) {
  const std::string evil =
      "\"><script>alert(1)</script><img src=x onerror=a>'\x1b[2J\x9b";
  Views v(evil);
  rxe_user::trace::CallEvent call;
  call.error = 22;
  rxe_user::trace::SetText("</script><script>alert(2)</script>", call.function);
  rxe_user::trace::SetText(evil, call.arguments);
  v.a.Add(call);
  v.pair.a.Write(1, 0, 0, 64);
  v.pair.Run();
  v.Make();
  // Only the data and the script of the page itself.
  EXPECT_EQ(Count(v.html, "<script"), 2u);
  EXPECT_EQ(Count(v.html, "</script"), 2u);
  EXPECT_EQ(Count(v.html, "<img"), 0u);
  EXPECT_EQ(Count(SvgFile(v.ladder), "<script"), 0u);
  EXPECT_EQ(Count(v.html, "\x1b"), 0u);
  EXPECT_EQ(Count(v.Written(MakeTextWriter), "\x1b"), 0u);
  EXPECT_EQ(Count(v.Written(MakeJsonWriter), "\x1b"), 0u);
}

TEST(PageTest, NoRequestToAnywhere) {
  Views v;
  v.pair.a.Write(1, 0, 0, 64);
  v.pair.Run();
  v.Make();
  for (const char* text : {"http:", "https:", "@import", "src=", "fetch("}) {
    EXPECT_EQ(Count(v.html, text), 0u) << text;
  }
  EXPECT_EQ(Count(v.html, "default-src 'none'"), 1u);
}

// Every "url(#x)" in the styles has its marker, and all elements are closed.
TEST(PageTest, TheSvgIsWhole) {
  Views v;
  v.pair.a.Read(1, 0, 0, 3000);
  v.pair.Run();
  v.Make();
  const std::string svg = SvgFile(v.ladder);
  const std::regex url("url\\(#([a-z0-9]+)\\)");
  for (std::sregex_iterator at(svg.begin(), svg.end(), url), end; at != end;
       ++at) {
    EXPECT_NE(svg.find("<marker id=\"" + (*at)[1].str() + "\""),
              std::string::npos);
  }
  for (const std::string tag : {"g", "text", "tspan", "svg", "marker"}) {
    EXPECT_EQ(Count(svg, "<" + tag + " ") + Count(svg, "<" + tag + ">"),
              Count(svg, "</" + tag + ">"))
        << tag;
  }
}

TEST(JsonTest, OneObjectPerLine) {
  Views v;
  v.pair.a.Write(1, 0, 0, 3000);
  v.pair.Run();
  v.Make();
  std::istringstream lines(v.Written(MakeJsonWriter));
  std::map<std::string, int> types;
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    ++types[last["type"]];
    if (last["type"] == "packet") {
      EXPECT_EQ(last["fate"], "arrived");
      EXPECT_TRUE(last.contains("sent") && last.contains("received"));
      EXPECT_TRUE(last.contains("psn") && last.contains("opcode"));
    }
  }
  EXPECT_EQ(types["file"], 2);
  EXPECT_EQ(types["packet"], static_cast<int>(v.timeline.arrows.size()));
  EXPECT_EQ(types["message"], 1);
  EXPECT_EQ(last["type"], "summary");
  EXPECT_EQ(last["lost"], 0);
}

// Checks what the format demands of any file; counts the events by phase.
std::map<std::string, int> CheckPerfetto(const nlohmann::json& trace) {
  std::map<std::string, int> phases;
  std::map<std::string, std::string> slices;  // phases of work requests, by id
  std::map<std::string, std::string> flows;   // phases, by id
  std::set<std::pair<int, uint64_t>> named;
  std::map<uint64_t, std::vector<double>> open;  // ends of slices, by track
  double last = 0;
  for (const auto& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    ++phases[phase];
    EXPECT_TRUE(event["name"].is_string());
    const std::pair<int, uint64_t> track(event["pid"].get<int>(),
                                         event["tid"].get<uint64_t>());
    if (phase == "M") {
      named.insert(track);
      continue;
    }
    EXPECT_TRUE(named.contains(track)) << event;
    const double time = event["ts"];
    EXPECT_GE(time, last) << event;
    last = time;
    if (phase == "b" || phase == "e") {
      EXPECT_EQ(event["cat"], "work request");
      slices[event["id"]] += phase;
    } else if (phase == "s" || phase == "t" || phase == "f") {
      EXPECT_EQ(event["cat"], "flow");
      flows[event["id"]] += phase;
      EXPECT_EQ(phase == "f", event.contains("bp"));
    } else if (phase == "i") {
      EXPECT_EQ(event["s"], "t");
    } else {
      EXPECT_EQ(phase, "X");
      std::vector<double>& around = open[track.second];
      while (!around.empty() && around.back() <= time) around.pop_back();
      const double end = time + event["dur"].get<double>();
      EXPECT_GE(event["dur"], 0);
      // Allow half a nanosecond for the sum.
      EXPECT_TRUE(around.empty() || end <= around.back() + 5e-4) << event;
      around.push_back(end);
    }
  }
  for (const auto& [id, text] : slices) EXPECT_EQ(text, "be") << id;
  for (const auto& [id, text] : flows) {
    EXPECT_TRUE(text == "sf" || text == "stf") << id << " " << text;
  }
  return phases;
}

// Also if only the file of the receiver is given.
TEST(DroppedTest, PacketsThatTheDeviceDropped) {
  Views v;
  v.pair.a.Write(1, 0, 0, 3500);
  v.pair.Run();
  v.files.push_back(std::make_unique<Recording>());
  ASSERT_TRUE(ReadRecording(v.b.Write("views_b.pcapng"), v.files[0].get()));
  std::vector<Packet*> received;
  for (Packet& p : v.files[0]->packets) {
    if (p.direction == wire::pcapng::Direction::kReceived) {
      received.push_back(&p);
    }
  }
  ASSERT_GE(received.size(), 3u);
  received[1]->dropped = received[2]->dropped = true;
  // By a rule.
  received[1]->disposition =
      static_cast<uint8_t>(transport::Disposition::kDelivered);
  received[2]->disposition = 0;
  v.timeline = MakeTimeline({v.files[0].get()}, {});
  v.conversation = Analyze(&v.timeline);
  EXPECT_EQ(CountPackets(v.timeline).dropped, 2u);
  const std::string text = v.Written(MakeTextWriter);
  EXPECT_EQ(Count(text, "| DROPPED by the receiver"), 2u) << text;
  EXPECT_EQ(Count(text, "| DROPPED by the receiver\n"), 1u) << text;
  EXPECT_EQ(Count(v.Written(MakeJsonWriter), "\"fate\":\"dropped\""), 2u);
  const std::string qlog = v.Written(MakeSqlogWriter);
  EXPECT_EQ(Count(qlog, "rdma:packet_dropped"), 2u) << qlog;
  EXPECT_EQ(Count(qlog, "\"trigger\":\"delivered\""), 0u) << qlog;
  size_t wrong = 0;
  for (const Arrow& arrow : v.timeline.arrows) wrong += arrow.went_wrong();
  EXPECT_EQ(wrong, 2u);
  const Ladder ladder = MakeLadder(v.timeline, v.conversation, 1000);
  EXPECT_EQ(Count(ladder.body, "class=\"x\""), 2u) << ladder.body;
}

TEST(PerfettoTest, WorkRequestsOverlapAndPostsLeadToPolls) {
  Views v("client \"\n\x1b\xff");
  rxe_user::trace::PostedEvent post;
  post.header.qpn = v.pair.a.qp->qpn();
  post.header.thread = 4711;
  std::vector<uint64_t> posted;
  for (post.wr_id = 7; post.wr_id < 10; ++post.wr_id) {
    posted.push_back(v.a.Add(post));
  }
  rxe_user::trace::CallEvent call;
  call.header.thread = 4711;
  rxe_user::trace::SetText("ibv_reg_mr\"\x01\\", call.function);
  call.duration = 2500;
  v.a.Add(call);
  v.pair.a.Write(1, 0, 0, 3000);
  v.pair.a.Write(2, 0, 0, 3000);
  v.pair.Run();
  rxe_user::trace::CompletedEvent done;
  done.header.qpn = post.header.qpn;
  rxe_user::trace::PolledEvent poll;
  poll.header = post.header;
  done.posted = posted[0];
  poll.header.cause = v.a.Add(done);
  v.a.Add(poll);
  v.a.Add(poll);  // a duplicate: a damaged file
  done.posted = posted[1];
  v.a.Add(done);  // never polled
  done.posted = 999;
  v.a.Add(done);  // without a post
  v.Make();
  const std::string text = v.Written(WritePerfetto);
  EXPECT_EQ(Count(text, "\x1b"), 0u);
  const nlohmann::json trace = nlohmann::json::parse(text);
  auto phases = CheckPerfetto(trace);
  EXPECT_EQ(phases["b"], static_cast<int>(v.conversation.messages.size()));
  EXPECT_GE(phases["b"], 2);
  EXPECT_EQ(phases["s"], 2);
  EXPECT_EQ(phases["t"], 1);
  EXPECT_EQ(phases["f"], 2);
  EXPECT_EQ(phases["X"], 3 + 1 + 2 + 3);
  size_t packets = 0;
  size_t calls = 0;
  size_t programs = 0;
  std::set<uint64_t> threads;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      const std::string name = event["args"]["name"];
      programs += name.find("client \"???") != std::string::npos;
      if (name == "thread 4711") threads.insert(event["tid"].get<uint64_t>());
    }
    packets += event["ph"] == "i" && event["args"].contains("fate");
    if (event["name"] == "ibv_reg_mr\"?\\") {
      ++calls;
      EXPECT_EQ(event["dur"], 2.5);
      EXPECT_TRUE(threads.contains(event["tid"].get<uint64_t>()));
    }
    if (event["ph"] == "s") {
      EXPECT_TRUE(threads.contains(event["tid"].get<uint64_t>()));
    }
  }
  EXPECT_EQ(programs, 1u);
  EXPECT_EQ(calls, 1u);
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(packets, 2 * v.timeline.arrows.size());
}

// A lost packet is an instant at its sender only, and says so.
TEST(PerfettoTest, ALossIsSaid) {
  Views v;
  v.LoseSecondPacket();
  v.pair.a.Write(1, 0, 0, 3500);
  v.pair.Run();
  v.Make();
  const std::string text = v.Written(WritePerfetto);
  auto phases = CheckPerfetto(nlohmann::json::parse(text));
  EXPECT_EQ(phases["i"], static_cast<int>(2 * v.timeline.arrows.size()) - 1);
  EXPECT_EQ(Count(text, "| LOST\""), 1u);
  EXPECT_EQ(phases["b"], 1);
}

TEST(PerfettoTest, NothingIsStillJson) {
  Views v;
  const nlohmann::json trace = nlohmann::json::parse(v.Written(WritePerfetto));
  EXPECT_TRUE(trace["traceEvents"].empty());
}

TEST(EscapeTest, TextFromAFile) {
  EXPECT_EQ(EscapeXml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(Printable("x\n\t\x7f y"), "x??? y");
  EXPECT_EQ(Printable("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  // Truncated, overlong, surrogates, C1 controls, right-to-left override.
  EXPECT_EQ(Printable("\xc3"), "?");
  EXPECT_EQ(Printable("\xc0\xaf"), "??");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");
  EXPECT_EQ(Printable("\xc2\x9b"), "??");
  EXPECT_EQ(Printable("\xe2\x80\xae"), "???");
}

TEST(TimeTextTest, Durations) {
  EXPECT_EQ(Duration(0), "0 ns");
  EXPECT_EQ(Duration(999), "999 ns");
  EXPECT_EQ(Duration(1250), "1.25 us");
  EXPECT_EQ(Duration(42'100'000), "42.1 ms");
  EXPECT_EQ(Duration(999'999), "1.00 ms");
  EXPECT_EQ(Duration(-3'000'000'000), "-3.00 s");
  EXPECT_EQ(TimeOfDay(3'723'000'000'007, 9), "01:02:03.000000007");
  EXPECT_EQ(DateAndTime(-1), "1969-12-31T23:59:59.999999999Z");
}

}  // namespace
}  // namespace trace
