#include "transport/sim/go_back_n.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "transport/sim/random.h"

namespace sim {
namespace {

// BTH and ICRC; a RETH is rare.
constexpr uint64_t kHeaders = 16;
// Timeout for packets that are lost twice, or lost last: the minimum probe
// timeout of transport::Path.
constexpr Time kTimeout = transport::kMillisecond;

class Model {
 public:
  Model(const TransferOptions& options, uint64_t window)
      : options_(options),
        link_(options.link),
        random_(options.seed),
        window_(std::max<uint64_t>(1, window / options.path_mtu)),
        end_(uint64_t{options.messages} *
             ((options.message_bytes + options.path_mtu - 1) /
              options.path_mtu)) {}

  GoBackNResult Run() {
    while (acknowledged_ < end_) {
      Send();
      if (events_.empty()) {
        now_ = std::max(now_, last_progress_ + kTimeout);
        GoBack();
        continue;
      }
      const Event event = events_.top();
      if (event.time > last_progress_ + kTimeout) {
        now_ = last_progress_ + kTimeout;
        GoBack();
        continue;
      }
      events_.pop();
      now_ = event.time;
      event.data ? OnData(event.number) : OnAnswer(event);
    }
    GoBackNResult result;
    result.elapsed = now_;
    result.sent = sent_;
    result.goodput = static_cast<double>(options_.messages) *
                     options_.message_bytes * 1000 /
                     static_cast<double>(std::max<Time>(now_, 1));
    return result;
  }

 private:
  struct Event {
    Time time;
    uint64_t order;
    uint64_t number;  // of a packet; of the first missing one
    bool data;
    bool nak;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void Send() {
    while (next_ < end_ && next_ < acknowledged_ + window_) {
      queue_free_ = std::max(queue_free_, now_) +
                    static_cast<Time>((options_.path_mtu + kHeaders) * 1000 /
                                      link_.bytes_per_us);
      ++sent_;
      const uint64_t number = next_++;
      if (Down() || random_.Chance(link_.loss)) continue;
      Time arrival = queue_free_ + link_.delay;
      if (random_.Chance(link_.reorder)) {
        arrival += random_.Below(link_.reorder_delay + 1);
      }
      events_.push({arrival, order_++, number, true, false});
    }
  }

  void OnData(uint64_t number) {
    bool nak = false;
    if (number == expected_) {
      ++expected_;
      reported_ = false;
    } else if (number > expected_) {
      if (reported_) return;
      nak = reported_ = true;
    }
    if (Down()) return;
    events_.push(
        {now_ + TransferLink().delay, order_++, expected_, false, nak});
  }

  void OnAnswer(const Event& answer) {
    if (answer.number > acknowledged_) {
      acknowledged_ = answer.number;
      next_ = std::max(next_, acknowledged_);
      last_progress_ = now_;
    }
    if (answer.nak && answer.number == acknowledged_) GoBack();
  }

  void GoBack() {
    next_ = acknowledged_;
    last_progress_ = now_;
  }

  bool Down() const {
    return options_.outage > 0 && now_ >= options_.outage_start &&
           now_ < options_.outage_start + options_.outage;
  }

  const TransferOptions& options_;
  const LinkProfile& link_;
  Random random_;
  const uint64_t window_;  // packets
  const uint64_t end_;     // packets
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  Time now_ = 0;
  Time queue_free_ = 0;
  Time last_progress_ = 0;
  uint64_t next_ = 0;          // next to send
  uint64_t acknowledged_ = 0;  // all before it
  uint64_t expected_ = 0;      // by the receiver
  bool reported_ = false;      // the gap at `expected_`
  uint64_t sent_ = 0;
};

}  // namespace

GoBackNResult RunGoBackN(const TransferOptions& options, uint64_t window) {
  return Model(options, window).Run();
}

}  // namespace sim
