#include "tests/attacks/evidence.h"

#include <time.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace attacks {
namespace {

using rxe_user::ReportRecord;

constexpr std::chrono::seconds kPatience(5);

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

std::vector<ThreadTimes> ThreadsOf(pid_t pid) {
  std::vector<ThreadTimes> threads;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(
           "/proc/" + std::to_string(pid) + "/task", error)) {
    ThreadTimes times;
    times.id = std::atoi(task.path().filename().c_str());
    std::getline(std::ifstream(task.path() / "comm"), times.name);
    std::ifstream(task.path() / "schedstat") >> times.ran_ns >> times.waited_ns;
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    const size_t name_end = stat.rfind(')');
    if (name_end + 2 < stat.size()) times.state = stat[name_end + 2];
    threads.push_back(times);
  }
  return threads;
}

void AddRecord(const ReportRecord& record, const ReportRecord* before,
               std::ostream& out) {
  out << "  " << record.kind;
  for (const auto& [name, value] : record.attributes) {
    out << ' ' << name << '=';
    std::visit([&](const auto& v) { out << v; }, value);
  }
  out << "\n   ";
  for (const auto& [name, count] : record.counters) {
    const uint64_t old =
        before != nullptr ? rxe_user_cli::CounterOf(*before, name) : 0;
    if (count != old) out << ' ' << name << "+" << count - old;
  }
  out << '\n';
}

// The record at the same index, if any.
const ReportRecord* At(const std::vector<ReportRecord>* records, size_t i) {
  return records != nullptr && i < records->size() ? &(*records)[i] : nullptr;
}

void AddDevice(const rxe_user_cli::StatDevice& device,
               const rxe_user_cli::StatDevice* before, std::ostream& out) {
  AddRecord(device.device, before != nullptr ? &before->device : nullptr, out);
  for (size_t i = 0; i < device.lanes.size(); ++i) {
    AddRecord(device.lanes[i], At(before ? &before->lanes : nullptr, i), out);
  }
  for (size_t i = 0; i < device.queue_pairs.size(); ++i) {
    AddRecord(device.queue_pairs[i],
              At(before ? &before->queue_pairs : nullptr, i), out);
  }
}

}  // namespace

Evidence Collect(pid_t pid) {
  Evidence evidence;
  evidence.at_ns = NowNs();
  evidence.threads = ThreadsOf(pid);
  const rxe_user_cli::Stat stat = rxe_user_cli::AskAll(pid, kPatience);
  evidence.missing = stat.missing;
  for (const rxe_user_cli::StatProcess& process : stat.processes) {
    evidence.devices.insert(evidence.devices.end(), process.devices.begin(),
                            process.devices.end());
  }
  return evidence;
}

std::string Explain(const Evidence& before, const Evidence& now) {
  std::ostringstream out;
  out << "in " << (now.at_ns - before.at_ns) / 1'000'000 << " ms:\n";
  for (const ThreadTimes& thread : now.threads) {
    ThreadTimes old;
    for (const ThreadTimes& other : before.threads) {
      if (other.id == thread.id) old = other;
    }
    out << "  thread " << thread.name << " (" << thread.state << ") ran "
        << (thread.ran_ns - old.ran_ns) / 1'000'000 << " ms, waited for a core "
        << (thread.waited_ns - old.waited_ns) / 1'000'000 << " ms\n";
  }
  for (size_t i = 0; i < now.devices.size(); ++i) {
    AddDevice(now.devices[i],
              i < before.devices.size() ? &before.devices[i] : nullptr, out);
  }
  if (now.devices.empty()) out << "  no report: " << now.missing << '\n';
  return out.str();
}

}  // namespace attacks
