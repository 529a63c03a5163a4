// A libFuzzer target: any bytes, as a capture or recording, are refused or
// read, put on a time line, and drawn. What is drawn of it has no script of its
// own.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/trace/conversation.h"
#include "tools/trace/ladder.h"
#include "tools/trace/page.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/recording.h"
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
  Require(trace::WriteText(timeline, conversation, out));
  Require(trace::WriteJson(timeline, conversation, out));
  Require(trace::WritePerfetto(timeline, conversation, out));
  std::fclose(out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::FILE* const file = fmemopen(const_cast<uint8_t*>(data), size, "rb");
  std::string why;
  const auto capture = trace::CaptureFile::Read(file, &why);
  if (capture == nullptr) {
    Require(!why.empty() && why.find('\n') == std::string::npos);
    return 0;
  }
  trace::Recording recording;
  trace::ReadRecording(capture.get(), &recording);
  UseAll({&recording});
  UseAll({&recording, &recording});
  return 0;
}
