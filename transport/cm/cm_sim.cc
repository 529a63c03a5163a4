// The clock, the network, and the final checks.
#include "transport/cm/cm_sim.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "transport/cm/cm_sim_host.h"

namespace transport::cm {
namespace {

constexpr Time kDelay = 200 * kMicrosecond;
constexpr Time kWork = 3 * kSecond;
// All tries of all messages in sequence, including service timeouts.
constexpr Time kSettle = 60 * kSecond;
constexpr Time kClose = 60 * kSecond;
constexpr uint64_t kMaxEvents = 5'000'000;

}  // namespace

CmSim::CmSim(uint64_t seed, bool trace) : random_(seed), trace_(trace) {
  loss_ = random_.Pick({0u, 0u, 5u, 20u, 40u, 60u});
  little_loss_ = loss_ <= 5;
  duplicate_ = random_.Pick({0u, 5u, 30u});
  jitter_ = random_.Pick({Time{0}, 2 * kDelay, 20 * kDelay});
  small_caps_ = random_.Percent(15);
  const int hosts = static_cast<int>(random_.Between(1, 4));
  for (int i = 0; i < hosts; ++i) AddHost();
}

CmSim::~CmSim() = default;

// --- The clock and the network.

void CmSim::At(Time when, std::function<void()> what) {
  heap_.push_back({std::max(when, now_), order_++, std::move(what)});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void CmSim::Later(Host& host, Time delay, std::function<void(Host&)> what) {
  At(now_ + delay,
     [this, &host, incarnation = host.incarnation, what = std::move(what)] {
       if (host.manager == nullptr || host.incarnation != incarnation) return;
       what(host);
       Pump(host);
     });
}

void CmSim::RunUntil(Time limit) {
  while (failure_.empty() && !heap_.empty() && heap_.front().time <= limit) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    ScheduledCall event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.time;
    event.what();
    if (order_ > kMaxEvents) Fail("the run does not end");
  }
  now_ = std::max(now_, limit);
}

void CmSim::Fail(const std::string& what) {
  if (failure_.empty()) {
    failure_ = "at " + std::to_string(now_ / 1000) + " us: " + what;
  }
}

void CmSim::Trace(const Host& host, const std::string& what) {
  if (!trace_) return;
  std::printf("%12.3f ms  host %d  %s\n", static_cast<double>(now_) / 1e6,
              host.number, what.c_str());
}

void CmSim::AddHost() {
  hosts_.push_back(
      std::make_unique<Host>(static_cast<int>(hosts_.size()) + 1, &random_));
  Boot(*hosts_.back());
}

void CmSim::Boot(Host& host) {
  Config config;
  config.shortest_wait = kMillisecond;
  config.mra_service_timeout = kExponent + 3;
  if (small_caps_) {
    config.max_half_open = 4;
    config.max_half_open_for_peer = 3;
  }
  host.manager = std::make_unique<ConnectionManager>(config, &host.ids);
  host.incarnation = ++incarnations_;
  host.armed = kNever;
  ListenerId id;
  host.manager->Listen({.service_id = kServices[0], .local = {}}, &id);
  host.manager->Listen(
      {.service_id = kServices[1], .mask = ~uint64_t{0xf}, .local = {}}, &id);
}

void CmSim::Die(Host& host) {
  Trace(host, "dies");
  ++statistics_.deaths;
  for (auto& [id, app] : host.apps) {
    if (app.pair != 0) {
      EndOf(app).unheard = true;
      EndOf(app).established = false;
    }
  }
  statistics_.retransmitted += host.manager->counters().retransmitted;
  for (auto& [number, pair] : pairs_) {
    if (pair.passive_host != host.number - 1) continue;
    pair.passive_host = -1;
    pair.may_request_again = true;
  }
  host.manager.reset();
  host.apps.clear();
  host.qpns.clear();
}

void CmSim::Pump(Host& host) {
  if (host.manager == nullptr) return;
  OutgoingMad mad;
  Event event;
  for (bool more = true; more && failure_.empty();) {
    more = false;
    while (host.manager->PollTransmit(&mad)) {
      Transmit(host, mad);
      more = true;
    }
    while (host.manager->PollEvent(&event)) {
      OnEvent(host, event);
      more = true;
    }
  }
  Arm(host);
}

template <typename Call>
void CmSim::Input(Call call) {
  const bool refused = refuse_ != nullptr && random_.Percent(20);
  if (refused) refuse_(true);
  call();
  if (refused) refuse_(false);
}

void CmSim::Arm(Host& host) {
  const Time next = host.manager->NextTimeout();
  if (next == kNever || host.armed <= next) return;
  host.armed = next;
  At(next, [this, &host, incarnation = host.incarnation, next] {
    if (host.manager == nullptr || host.incarnation != incarnation) return;
    if (host.armed == next) host.armed = kNever;
    Input([&] { host.manager->OnTimer(now_); });
    if (host.manager->NextTimeout() <= now_ && refuse_ == nullptr) {
      Fail("a deadline that stays");
    }
    Pump(host);
  });
}

void CmSim::Transmit(Host& from, const OutgoingMad& mad) {
  ++statistics_.mads;
  wire::CmView view;
  if (wire::CmView::Parse(mad.bytes, &view) != wire::CmParseError::kOk ||
      mad.local != from.address) {
    return Fail("an invalid MAD");
  }
  if (trace_) {
    Trace(from, "sends " +
                    std::string(wire::CmAttributeName(view.attribute())) +
                    " to " + mad.remote.ToString());
  }
  int copies = random_.Percent(duplicate_) ? 2 : 1;
  for (; copies > 0; --copies) {
    if (random_.Percent(loss_)) {
      ++statistics_.lost;
      continue;
    }
    At(now_ + kDelay + random_.Below(jitter_ + 1), [this, mad] {
      for (const auto& to : hosts_) {
        if (to->address != mad.remote || to->manager == nullptr) continue;
        Input([&] {
          to->manager->OnMad(
              {.local = mad.remote, .remote = mad.local, .bytes = mad.bytes},
              now_);
        });
        Pump(*to);
      }
    });
  }
}

// --- The run.

bool CmSim::Run() {
  for (const auto& host : hosts_) {
    const int things = static_cast<int>(random_.Between(1, 12));
    for (int i = 0; i < things; ++i) {
      At(random_.Below(kWork), [this, h = host.get()] {
        if (h->manager == nullptr) return;
        ConnectOrResolve(*h);
        Pump(*h);
      });
    }
    if (hosts_.size() > 1 && random_.Percent(15)) {
      const Time when = random_.Below(kWork);
      At(when, [this, h = host.get()] { Die(*h); });
      if (random_.Percent(60)) {
        At(when + random_.Below(kSecond), [this, h = host.get()] { Boot(*h); });
      }
    }
  }
  RunUntil(kWork);
  // No more loss, and time for all retries.
  loss_ = 0;
  closing_ = true;
  RunUntil(kWork + kSettle);
  CompareEnds();
  // The applications end.
  for (const auto& host : hosts_) {
    if (host->manager == nullptr) continue;
    while (!host->apps.empty()) Destroy(*host, host->apps.begin()->first);
    Pump(*host);
  }
  RunUntil(kWork + kSettle + kClose);
  CheckNothingLeft();
  return failure_.empty();
}

bool CmSim::IsReliable() const {
  return little_loss_ && statistics_.deaths == 0 && !small_caps_;
}

void CmSim::CompareEnds() {
  for (const auto& [number, pair] : pairs_) {
    if (pair.active.established == pair.passive.established) continue;
    // Accepted if the end that is no longer established ended by itself
    // (End::unheard).
    const bool reason =
        pair.active.established ? pair.passive.unheard : pair.active.unheard;
    const bool believed = !IsReliable() || pair.fragile;
    if (!reason || !believed) {
      Fail("ends disagree: pair " + std::to_string(number));
    }
    ++statistics_.disagreed;
  }
}

void CmSim::CheckNothingLeft() {
  for (const auto& host : hosts_) {
    if (host->manager == nullptr) continue;
    statistics_.retransmitted += host->manager->counters().retransmitted;
    statistics_.stale += host->manager->counters().stale;
    statistics_.no_memory += host->manager->counters().no_memory;
    if (host->manager->size() != 0 || host->manager->half_open() != 0 ||
        host->manager->NextTimeout() != kNever) {
      Fail("host " + std::to_string(host->number) + " keeps " +
           std::to_string(host->manager->size()) + " connections");
    }
  }
}

void CmSim::AddTo(SimStatistics* sum) const {
  sum->mads += statistics_.mads;
  sum->lost += statistics_.lost;
  sum->retransmitted += statistics_.retransmitted;
  sum->connects += statistics_.connects;
  sum->established += statistics_.established;
  sum->rejected += statistics_.rejected;
  sum->unreachable += statistics_.unreachable;
  sum->disconnected += statistics_.disconnected;
  sum->resolved += statistics_.resolved;
  sum->deaths += statistics_.deaths;
  sum->disagreed += statistics_.disagreed;
  sum->stale += statistics_.stale;
  sum->no_memory += statistics_.no_memory;
}

}  // namespace transport::cm
