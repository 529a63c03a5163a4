// Counts in a file what this process does (tally_page.h).
#ifndef RXE_USER_OBSERVE_TALLY_H_
#define RXE_USER_OBSERVE_TALLY_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/observe/device_report.h"
#include "rxe_user/observe/tally_page.h"
#include "transport/base/work.h"

namespace rxe_user {

class Tally {
 public:
  // Creates a file in `folder`. Null on failure, with errno set. While the
  // process lives, it holds an exclusive flock(2) of the file.
  static std::unique_ptr<Tally> Begin(const std::string& folder);
  // For tests: counts in `page`, which it does not free.
  explicit Tally(TallyPage* page) : page_(page) {}
  ~Tally();
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  // --- Called by the tracer, one call at a time. `item` is stored if it is the
  // first of its kind; its time is set here.
  void OnCompletion(TallyQueue queue, transport::WcStatus status,
                    const TallyItem& item);
  // The completion came `ns` after its post; negative: unknown.
  void OnLatency(TallyQueue queue, int64_t ns, const TallyItem& item);
  void OnRareEvent(transport::RareEventKind kind, const TallyItem& item);
  void OnDropped(transport::Disposition disposition, const TallyItem& item);
  void OnRepeated(const TallyItem& item);
  void OnFault(uint32_t rule);  // its number, from 1
  bool has_repeated() const { return page_->first_repeated.is_set != 0; }

  // --- Called by the verbs checker. Thread: any.
  void OnLint();

  // --- Engines. Thread: any.
  // A device was opened: its counters are missing until AddCounters.
  void OnOpened();
  void AddCounters(const std::vector<CounterValue>& counters);

  // --- fork. The child counts nothing here, and must not destroy this object.
  void AbandonInChild() { lock_.Reset(); }

 private:
  TallyPage* const page_;
  UniqueFd lock_;     // invalid for tests
  std::mutex mutex_;  // guards the counters of devices
};

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_TALLY_H_
