// A libFuzzer target: any bytes, as a capture or recording, are refused, or
// read, put on a time line, and drawn. Nothing in the file becomes a script of
// the page.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/trace/conversation.h"
#include "tools/trace/ladder.h"
#include "tools/trace/page.h"
#include "tools/trace/parts.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/recording.h"
#include "tools/trace/sqlog.h"
#include "tools/trace/text_view.h"
#include "tools/trace/timeline.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void UseAll(const std::vector<const trace::Recording*>& recordings) {
  trace::Timeline timeline = trace::MakeTimeline(recordings, {});
  const trace::Conversation conversation = trace::Analyze(&timeline);
  for (const trace::Arrow& arrow : timeline.arrows) {
    Require(arrow.sent != nullptr || arrow.received != nullptr);
    Require(arrow.from < timeline.ends.size() &&
            arrow.to < timeline.ends.size());
  }
  const trace::Ladder ladder = trace::MakeLadder(timeline, conversation, 1000);
  const std::string page = trace::HtmlPage(timeline, conversation, ladder);
  size_t scripts = 0;
  for (size_t at = 0; (at = page.find("<script", at)) != std::string::npos;
       ++at) {
    ++scripts;
  }
  Require(scripts == 2);
  std::FILE* const out = std::fopen("/dev/null", "w");
  for (const auto make : {trace::MakeTextWriter, trace::MakeJsonWriter}) {
    const auto writer = make(out);
    Require(writer->Write(timeline, conversation) && writer->End());
  }
  Require(trace::WritePerfetto(timeline, conversation, out));
  std::fclose(out);
}

// Each packet and event is shown once.
void UseInParts(const uint8_t* data, size_t size,
                const trace::Recording& whole) {
  trace::Parts parts({}, 8);
  for (int i = 0; i < 2; ++i) {
    std::string why;
    parts.Add(trace::CaptureFile::Read(
        fmemopen(const_cast<uint8_t*>(data), size, "rb"), &why));
  }
  std::FILE* const out = std::fopen("/dev/null", "w");
  const auto text = trace::MakeTextWriter(out);
  const auto json = trace::MakeJsonWriter(out);
  const auto sqlog = trace::MakeSqlogWriter(out);
  size_t packets = 0;
  size_t events = 0;
  while (parts.Next()) {
    for (const trace::Recording* recording : parts.recordings()) {
      for (const trace::Packet& packet : recording->packets) {
        packets += packet.shown;
      }
    }
    for (const trace::TimedEvent& event : parts.timeline().events) {
      events += event.shown;
    }
    for (trace::PartWriter* each : {text.get(), json.get(), sqlog.get()}) {
      Require(each->Write(parts.timeline(), parts.conversation()));
    }
  }
  for (trace::PartWriter* each : {text.get(), json.get(), sqlog.get()}) {
    Require(each->End());
  }
  Require(packets == 2 * whole.packets.size());
  Require(events == 2 * whole.events.size());
  std::fclose(out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::FILE* const file = fmemopen(const_cast<uint8_t*>(data), size, "rb");
  std::string why;
  auto capture = trace::CaptureFile::Read(file, &why);
  if (capture == nullptr) {
    Require(!why.empty() && why.find('\n') == std::string::npos);
    return 0;
  }
  trace::Recording recording;
  trace::RecordingReader reader(&recording);
  reader.Use(std::move(capture));
  reader.ReadUntil(SIZE_MAX);
  UseAll({&recording});
  UseAll({&recording, &recording});
  UseInParts(data, size, recording);
  return 0;
}
