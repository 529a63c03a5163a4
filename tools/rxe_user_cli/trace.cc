#include "tools/rxe_user_cli/trace.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "tools/rxe_user_cli/progress.h"
#include "tools/trace/conversation.h"
#include "tools/trace/escape.h"
#include "tools/trace/ladder.h"
#include "tools/trace/page.h"
#include "tools/trace/parts.h"
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

// Writes a file by `write(file)`, which returns false on failure.
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

// Writes the views that show everything at once. False, after one line on
// stderr, if one cannot be written.
bool WritePictures(const TraceOptions& options, const trace::Parts& parts,
                   std::FILE* err) {
  const trace::Timeline& timeline = parts.timeline();
  const trace::Conversation& conversation = parts.conversation();
  if (!options.svg.empty() || !options.html.empty()) {
    const trace::Ladder ladder =
        trace::MakeLadder(timeline, conversation, options.limit);
    if (!options.svg.empty() &&
        !WriteFile(options.svg, trace::SvgFile(ladder), err)) {
      return false;
    }
    if (!options.html.empty() &&
        !WriteFile(options.html,
                   trace::HtmlPage(timeline, conversation, ladder), err)) {
      return false;
    }
  }
  return options.perfetto.empty() ||
         WriteFile(options.perfetto, err, [&](std::FILE* file) {
           return trace::WritePerfetto(timeline, conversation, file);
         });
}

// A view that is written part by part, to a file or to the output. Its errors
// are errno.
class Output {
 public:
  using Make = std::unique_ptr<trace::PartWriter>(std::FILE*);

  Output(std::string name, std::FILE* file, Make* make)
      : name_(std::move(name)), file_(file), writer_(make(file)) {}

  const std::string& name() const { return name_; }
  bool Write(const trace::Parts& parts) {
    return writer_->Write(parts.timeline(), parts.conversation());
  }
  bool End() { return writer_->End() && std::fflush(file_) == 0; }

 private:
  std::string name_;
  std::FILE* file_;
  std::unique_ptr<trace::PartWriter> writer_;
};

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// The number of packets and events that were read; absent if that was
// everything.
std::optional<uint64_t> ReadOf(const trace::Parts& parts) {
  uint64_t records = 0;
  bool is_whole = true;
  for (const trace::Recording* r : parts.recordings()) {
    records += r->read();
    is_whole &= r->is_whole;
  }
  if (is_whole) return std::nullopt;
  return records;
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
  // Views of everything at once are limited to what fits into memory.
  const bool at_once = !options.svg.empty() || !options.html.empty() ||
                       !options.perfetto.empty();
  const size_t most = trace::MaxRecords(options.files.size());
  trace::Parts parts(locals,
                     at_once ? most : std::min(most, trace::kPartRecords));
  for (const std::string& path : options.files) {
    std::string why;
    if (!parts.Open(path, &why)) {
      Complain(err, path, why);
      return 1;
    }
  }
  std::unique_ptr<std::FILE, Closer> sqlog;
  std::vector<Output> outputs;
  if (!options.sqlog.empty()) {
    sqlog.reset(std::fopen(options.sqlog.c_str(), "wb"));
    if (sqlog == nullptr) {
      Complain(err, options.sqlog, std::strerror(errno));
      return 1;
    }
    outputs.emplace_back(options.sqlog, sqlog.get(), trace::MakeSqlogWriter);
  }
  if (options.json) {
    outputs.emplace_back("output", out, trace::MakeJsonWriter);
  } else if (options.text || (!at_once && sqlog == nullptr)) {
    outputs.emplace_back("output", out, trace::MakeTextWriter);
  }

  // If the reader of the output stops, other files are still written to their
  // end.
  if (outputs.size() > 1) std::signal(SIGPIPE, SIG_IGN);
  Progress progress(out, err);
  // Writes to each output by `write`. False, after one line, if one fails.
  const auto write_all = [&](auto&& write) {
    for (auto output = outputs.begin(); output != outputs.end();) {
      errno = 0;
      if (write(*output)) {
        ++output;
      } else if (errno == EPIPE && output->name() == "output") {
        output = outputs.erase(output);
      } else {
        const int error = errno;
        progress.Clear();
        Complain(err, output->name(), std::strerror(error));
        return false;
      }
    }
    return true;
  };
  while (parts.Next()) {
    if (at_once && !WritePictures(options, parts, err)) return 1;
    if (const auto read = ReadOf(parts)) progress.Show(*read);
    const bool had_output = !outputs.empty();
    if (!write_all([&](Output& each) { return each.Write(parts); })) return 1;
    if (at_once) break;
    if (had_output && outputs.empty()) return 0;
  }
  progress.Clear();
  if (!write_all([](Output& each) { return each.End(); })) return 1;
  int status = 0;
  for (const trace::Recording* recording : parts.recordings()) {
    if (!recording->error.empty()) {
      Complain(err, recording->path, recording->error);
      status = 1;
    } else if (!recording->is_whole) {
      Complain(err, recording->path, trace::LimitText(most));
      status = 1;
    }
  }
  return status;
}

}  // namespace rxe_user_cli
