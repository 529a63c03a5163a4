#include "tools/rxe_user_cli/check.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/rxe_user_cli/progress.h"
#include "tools/trace/check.h"
#include "tools/trace/ends.h"
#include "tools/trace/escape.h"
#include "tools/trace/latencies.h"
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
      out, "%s: %s: packet %" PRIu64 " %s > %s qp=0x%06x psn=%u: %s%s\n",
      Name(path).c_str(), std::string(f.rule).c_str(), f.frame,
      f.src.ToString().c_str(), f.dst.ToString().c_str(), f.qpn, f.psn,
      f.what.c_str(),
      f.section.empty() ? ""
                        : (" (IBA " + std::string(f.section) + ")").c_str());
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

void Print(const trace::EndFinding& f, const std::vector<std::string>& files,
           std::FILE* out) {
  const std::string& end = files[f.end->file];
  const std::string& peer = files[f.peer->file];
  std::fprintf(out, "%s%s: lint %u (%s): %s\n", Name(end).c_str(),
               end == peer ? "" : (", " + Name(peer)).c_str(), f.lint,
               std::string(f.name).c_str(), f.what.c_str());
}

void PrintJson(const trace::EndFinding& f,
               const std::vector<std::string>& files, std::FILE* out) {
  const nlohmann::ordered_json line = {{"file", Name(files[f.end->file])},
                                       {"peer_file", Name(files[f.peer->file])},
                                       {"lint", f.lint},
                                       {"name", f.name},
                                       {"qp", f.end->qpn},
                                       {"peer_qp", f.peer->qpn},
                                       {"what", f.what}};
  std::fprintf(out, "%s\n", line.dump().c_str());
}

// In microseconds, with three decimals.
void PrintLatencies(const std::vector<trace::Latency>& latencies,
                    const std::string& path, std::FILE* out) {
  std::fprintf(out, "%s: latencies, us\n%-32s %-10s %10s %12s %12s %12s\n",
               Name(path).c_str(), "", "at", "count", "median", "p99", "max");
  for (const trace::Latency& each : latencies) {
    std::fprintf(out, "%-32s %-10s %10" PRIu64 " %12.3f %12.3f %12.3f\n",
                 std::string(each.name).c_str(),
                 std::string(each.where).c_str(), each.count,
                 static_cast<double>(each.median) / 1000,
                 static_cast<double>(each.p99) / 1000,
                 static_cast<double>(each.most) / 1000);
  }
}

void PrintLatenciesJson(const std::vector<trace::Latency>& latencies,
                        const std::string& path, std::FILE* out) {
  for (const trace::Latency& each : latencies) {
    const nlohmann::ordered_json line = {
        {"file", Name(path)},  {"latency", each.name},     {"at", each.where},
        {"count", each.count}, {"median_ns", each.median}, {"p99_ns", each.p99},
        {"max_ns", each.most}};
    std::fprintf(out, "%s\n", line.dump().c_str());
  }
}

}  // namespace

std::vector<std::string> CheckNames() {
  std::vector<std::string> names(std::begin(trace::kRules),
                                 std::end(trace::kRules));
  names.insert(names.end(), std::begin(trace::kEndLints),
               std::end(trace::kEndLints));
  return names;
}

int RunCheck(const CheckOptions& options, std::FILE* out, std::FILE* err) {
  trace::CheckOptions check;
  check.retry_count = options.retry_count;
  check.timeout = options.timeout;
  check.cnp_interval = static_cast<int64_t>(options.cnp_interval_us * 1000);
  for (const std::string& text : options.locals) {
    const auto address = wire::IpAddress::Parse(text);
    if (!address) {
      Complain(err, text, "it is no address");
      return kUnreadable;
    }
    check.senders.push_back(*address);
  }
  const auto is_wanted = [&](std::string_view name) {
    return std::ranges::find(options.without, name) == options.without.end();
  };
  int status = 0;
  Progress progress(out, err);
  errno = 0;
  std::vector<trace::ConnectionEnd> ends;
  for (size_t file = 0; file < options.files.size(); ++file) {
    const std::string& path = options.files[file];
    trace::Recording recording;
    const bool opened =
        trace::ReadRecording(path, &recording, trace::MaxRecords(1),
                             [&] { progress.Show(recording.read()); });
    progress.Clear();
    if (!recording.error.empty()) {
      Complain(err, path, recording.error);
      status = kUnreadable;
    }
    if (!opened) continue;
    if (recording.packets.empty() && !recording.about &&
        recording.cut_off_merged == 0) {
      if (recording.unknown_link_type) {
        Complain(err, path,
                 "its link type " +
                     std::to_string(*recording.unknown_link_type) +
                     " is not supported");
        status = kUnreadable;
      } else if (recording.other + recording.malformed != 0) {
        Complain(err, path,
                 "it has no RoCEv2 packets (" +
                     std::to_string(recording.other) + " other frames, " +
                     std::to_string(recording.malformed) + " malformed)");
      }
    }
    if (recording.cut_off_merged != 0) {
      Complain(err, path,
               std::to_string(recording.cut_off_merged) +
                   " cut-off merged frames: capture with -s 0; connections "
                   "between their addresses are not checked");
    }
    if (!recording.packets.empty() && !recording.has_directions &&
        check.senders.empty()) {
      Complain(err, path,
               "it does not tell sent from received packets, so most rules are "
               "not applied; --local ADDRESS names the host that wrote it");
    }
    std::ranges::move(trace::EndsOf(recording, file), std::back_inserter(ends));
    for (const trace::Finding& f : trace::CheckRecording(recording, check)) {
      if (!is_wanted(f.rule)) continue;
      options.json ? PrintJson(f, path, out) : Print(f, path, out);
      if (status == 0) status = 1;
    }
    if (options.latencies) {
      const auto latencies = trace::MeasureLatencies(recording);
      options.json ? PrintLatenciesJson(latencies, path, out)
                   : PrintLatencies(latencies, path, out);
    }
  }
  for (const trace::EndFinding& f : trace::CompareEnds(ends)) {
    if (!is_wanted(f.name)) continue;
    options.json ? PrintJson(f, options.files, out)
                 : Print(f, options.files, out);
    if (status == 0) status = 1;
  }
  if (std::ferror(out) != 0 || std::fflush(out) != 0) {
    if (errno == EPIPE) return status;
    Complain(err, "output", std::strerror(errno));
    return kUnreadable;
  }
  return status;
}

}  // namespace rxe_user_cli
