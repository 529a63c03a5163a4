#include "rxe_user/observe/tally.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/base/high_fd.h"
#include "transport/faults/injector.h"

namespace rxe_user {
namespace {

using std::memory_order_relaxed;
using std::memory_order_release;

// One thread at a time writes; another process may read.
void Add(uint64_t* counter, uint64_t n) {
  std::atomic_ref(*counter).store(*counter + n, memory_order_relaxed);
}

void Set(TallyItem* to, const TallyItem& item) {
  std::atomic_ref is_set(to->is_set);
  is_set.store(0, memory_order_release);
  TallyItem fresh = item;
  fresh.is_set = 0;
  fresh.time = ClockNs(CLOCK_REALTIME);
  *to = fresh;
  is_set.store(1, memory_order_release);
}

void AddFirst(uint64_t* counter, TallyItem* first, const TallyItem& item) {
  Add(counter, 1);
  if (first->is_set == 0) Set(first, item);
}

}  // namespace

// FNV-1a over the names, each with its zero byte.
uint64_t TallyCounterNames() {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const CounterValue& value : CountersOf(LaneReport())) {
    for (const char c : value.counter->name) add(static_cast<uint8_t>(c));
    add(0);
  }
  return hash;
}

std::optional<TallyPage> ReadTally(const std::string& path, std::string* why) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    *why = std::strerror(errno);
    return std::nullopt;
  }
  TallyPage page;
  auto* const bytes = reinterpret_cast<char*>(&page);
  for (size_t done = 0; done < sizeof(page);) {
    const ssize_t n = ::read(fd.get(), bytes + done, sizeof(page) - done);
    if (n <= 0) {
      *why = n < 0 ? std::strerror(errno) : "it is too short";
      return std::nullopt;
    }
    done += static_cast<size_t>(n);
  }
  if (page.magic != TallyPage::kMagic || page.version != TallyPage::kVersion ||
      page.counter_names != TallyCounterNames()) {
    *why = "the library is of another version";
    return std::nullopt;
  }
  page.program[sizeof(page.program) - 1] = '\0';
  return page;
}

std::unique_ptr<Tally> Tally::Begin(const std::string& folder) {
  std::string path = folder + "/tally.XXXXXX";
  UniqueFd fd(MoveHigh(::mkostemp(path.data(), O_CLOEXEC)));
  if (!fd.valid()) return nullptr;
  // Allocate all of the space now, so that a full disk does no harm later.
  int error = ::posix_fallocate(fd.get(), 0, sizeof(TallyPage));
  if (error == 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) error = errno;
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, sizeof(TallyPage), PROT_READ | PROT_WRITE,
                    MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    ::unlink(path.c_str());
    errno = error;
    return nullptr;
  }
  auto* const page = static_cast<TallyPage*>(memory);
  page->version = TallyPage::kVersion;
  page->pid = static_cast<uint32_t>(::getpid());
  page->begin = ClockNs(CLOCK_REALTIME);
  std::strncpy(page->program, program_invocation_short_name,
               sizeof(page->program) - 1);
  page->counter_names = TallyCounterNames();
  std::atomic_ref(page->magic).store(TallyPage::kMagic, memory_order_release);
  auto tally = std::make_unique<Tally>(page);
  tally->lock_ = std::move(fd);
  return tally;
}

Tally::~Tally() {
  if (lock_.valid()) ::munmap(page_, sizeof(*page_));
}

void Tally::OnCompletion(TallyQueue queue, transport::WcStatus status,
                         const TallyItem& item) {
  const auto q = static_cast<size_t>(queue);
  const size_t s = std::min(static_cast<size_t>(status), kTallyStatuses - 1);
  AddFirst(&page_->completions[q][s], &page_->first_completion[q][s], item);
}

void Tally::OnLatency(TallyQueue queue, int64_t ns, const TallyItem& item) {
  const auto q = static_cast<size_t>(queue);
  if (ns < 0) {
    Add(&page_->untimed[q], 1);
  } else if (ns > page_->slowest_ns[q] || page_->slowest[q].is_set == 0) {
    std::atomic_ref(page_->slowest_ns[q]).store(ns, memory_order_relaxed);
    Set(&page_->slowest[q], item);
  }
}

void Tally::OnRareEvent(transport::RareEventKind kind, const TallyItem& item) {
  const auto k = static_cast<size_t>(kind);
  AddFirst(&page_->events[k], &page_->first_event[k], item);
}

void Tally::OnDropped(transport::Disposition disposition,
                      const TallyItem& item) {
  const auto d = static_cast<size_t>(disposition);
  AddFirst(&page_->dropped[d], &page_->first_dropped[d], item);
}

void Tally::OnRepeated(const TallyItem& item) {
  AddFirst(&page_->repeated, &page_->first_repeated, item);
}

void Tally::OnFault(uint32_t rule) {
  static_assert(kTallyRules >= transport::faults::Injector::kMaxRulesEver);
  Add(&page_->faults[rule - 1], 1);
}

void Tally::OnLint() {
  std::atomic_ref(page_->lints).fetch_add(1, memory_order_relaxed);
}

void Tally::OnOpened() {
  const std::lock_guard lock(mutex_);
  Add(&page_->devices_opened, 1);
}

void Tally::AddCounters(const std::vector<CounterValue>& counters) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < std::min(counters.size(), kMaxTallyCounters); ++i) {
    Add(&page_->counters[i], counters[i].value);
  }
  Add(&page_->devices_counted, 1);
}

}  // namespace rxe_user
