#include "tools/rxe_user_cli/check.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tools/trace/check.h"
#include "tools/trace/escape.h"
#include "tools/trace/recording.h"

namespace rxe_user_cli {
namespace {

constexpr int kUnreadable = 2;

std::string Name(const std::string& path) {
  return path == "-" ? "standard input" : trace::Printable(path);
}

void Complain(std::FILE* err, const std::string& path, const std::string& why) {
  std::fprintf(err, "rxe-user check: %s: %s\n", Name(path).c_str(),
               trace::Printable(why).c_str());
}

void Print(const trace::Finding& f, const std::string& path, std::FILE* out) {
  std::fprintf(
      out, "%s: %s: packet %" PRIu64 " %s > %s qp=0x%06x psn=%u: %s (IBA %s)\n",
      Name(path).c_str(), std::string(f.rule).c_str(), f.frame,
      f.src.ToString().c_str(), f.dst.ToString().c_str(), f.qpn, f.psn,
      f.what.c_str(), std::string(f.section).c_str());
}

void PrintJson(const trace::Finding& f, const std::string& path,
               std::FILE* out) {
  const nlohmann::ordered_json line = {{"file", Name(path)},
                                       {"rule", f.rule},
                                       {"packet", f.frame},
                                       {"src", f.src.ToString()},
                                       {"dst", f.dst.ToString()},
                                       {"qp", f.qpn},
                                       {"psn", f.psn},
                                       {"what", f.what},
                                       {"section", f.section}};
  std::fprintf(out, "%s\n", line.dump().c_str());
}

}  // namespace

int RunCheck(const CheckOptions& options, std::FILE* out, std::FILE* err) {
  std::vector<wire::IpAddress> locals;
  for (const std::string& text : options.locals) {
    const auto address = wire::IpAddress::Parse(text);
    if (!address) {
      Complain(err, text, "it is no address");
      return kUnreadable;
    }
    locals.push_back(*address);
  }
  int status = 0;
  errno = 0;
  for (const std::string& path : options.files) {
    trace::Recording recording;
    const bool opened = trace::ReadRecording(path, &recording);
    if (!recording.error.empty()) {
      Complain(err, path, recording.error);
      status = kUnreadable;
    }
    if (!opened) continue;
    if (!recording.packets.empty() && !recording.has_directions &&
        locals.empty()) {
      Complain(err, path,
               "it does not tell sent from received packets: only ICRCs and "
               "sizes are checked; --local ADDRESS names the host that wrote "
               "it");
    }
    for (const trace::Finding& f : trace::CheckRecording(recording, locals)) {
      options.json ? PrintJson(f, path, out) : Print(f, path, out);
      if (status == 0) status = 1;
    }
  }
  if (std::ferror(out) != 0 || std::fflush(out) != 0) {
    if (errno == EPIPE) return status;
    Complain(err, "output", std::strerror(errno));
    return kUnreadable;
  }
  return status;
}

}  // namespace rxe_user_cli
