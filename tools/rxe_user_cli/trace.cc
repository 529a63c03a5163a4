#include "tools/rxe_user_cli/trace.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include "tools/trace/conversation.h"
#include "tools/trace/escape.h"
#include "tools/trace/ladder.h"
#include "tools/trace/page.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/recording.h"
#include "tools/trace/sqlog.h"
#include "tools/trace/text_view.h"
#include "tools/trace/timeline.h"

namespace rxe_user_cli {
namespace {

void Complain(std::FILE* err, const std::string& path, const std::string& why) {
  std::fprintf(err, "rxe-user trace: %s: %s\n",
               path == "-" ? "standard input" : trace::Printable(path).c_str(),
               trace::Printable(why).c_str());
}

// Writes a file by `write(file)`, which returns whether it could.
template <typename Write>
bool WriteFile(const std::string& path, std::FILE* err, Write&& write) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  bool good = file != nullptr;
  int error = errno;
  if (good) {
    good = write(file);
    error = errno;
    if (std::fclose(file) != 0 && good) {
      good = false;
      error = errno;
    }
  }
  if (!good) Complain(err, path, std::strerror(error));
  return good;
}

bool WriteFile(const std::string& path, const std::string& contents,
               std::FILE* err) {
  return WriteFile(path, err, [&](std::FILE* file) {
    return std::fwrite(contents.data(), 1, contents.size(), file) ==
           contents.size();
  });
}

}  // namespace

int RunTrace(const TraceOptions& options, std::FILE* out, std::FILE* err) {
  std::vector<wire::IpAddress> locals;
  for (const std::string& text : options.locals) {
    const auto address = wire::IpAddress::Parse(text);
    if (!address) {
      Complain(err, text, "it is no address");
      return 1;
    }
    locals.push_back(*address);
  }
  int status = 0;
  std::vector<std::unique_ptr<trace::Recording>> recordings;
  std::vector<const trace::Recording*> readable;
  for (const std::string& path : options.files) {
    auto recording = std::make_unique<trace::Recording>();
    const bool opened = trace::ReadRecording(path, recording.get());
    if (!recording->error.empty()) {
      Complain(err, path, recording->error);
      status = 1;
    }
    if (!opened) return 1;
    readable.push_back(recording.get());
    recordings.push_back(std::move(recording));
  }
  trace::Timeline timeline = trace::MakeTimeline(readable, locals);
  const trace::Conversation conversation = trace::Analyze(&timeline);

  if (!options.svg.empty() || !options.html.empty()) {
    const trace::Ladder ladder =
        trace::MakeLadder(timeline, conversation, options.limit);
    if (!options.svg.empty() &&
        !WriteFile(options.svg, trace::SvgFile(ladder), err)) {
      return 1;
    }
    if (!options.html.empty() &&
        !WriteFile(options.html,
                   trace::HtmlPage(timeline, conversation, ladder), err)) {
      return 1;
    }
  }
  if (!options.perfetto.empty() &&
      !WriteFile(options.perfetto, err, [&](std::FILE* file) {
        return trace::WritePerfetto(timeline, conversation, file);
      })) {
    return 1;
  }
  if (!options.sqlog.empty() &&
      !WriteFile(options.sqlog, err, [&](std::FILE* file) {
        return trace::WriteSqlog(timeline, conversation, file);
      })) {
    return 1;
  }
  const bool has_file = !options.svg.empty() || !options.html.empty() ||
                        !options.perfetto.empty() || !options.sqlog.empty();
  errno = 0;
  bool good = true;
  if (options.json) {
    good = trace::WriteJson(timeline, conversation, out);
  } else if (options.text || !has_file) {
    good = trace::WriteText(timeline, conversation, out);
  }
  if (!good || std::fflush(out) != 0) {
    if (errno == EPIPE) return 0;
    Complain(err, "output", std::strerror(errno));
    return 1;
  }
  return status;
}

}  // namespace rxe_user_cli
