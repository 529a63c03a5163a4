// Breaks queue pairs and memory under traffic.
#include <iterator>

#include "transport/sim/seed_run.h"

namespace sim {

using transport::kMicrosecond;
using transport::QpState;

void SeedRun::ScheduleChaos() {
  const int breaks = random_.Between(1, 4);
  for (int i = 0; i < breaks; ++i) {
    End& end = *ends_[random_.Below(ends_.size())];
    const Time when = random_.Below(
        random_.Pick<Time>({10, 100, 1000, 10'000}) * kMicrosecond);
    const bool memory = random_.Percent(25);
    network_.At(when, *end.host->node, [this, &end, memory] {
      memory ? BreakMemory(*end.host) : Break(end);
    });
  }
}

// Unmaps pages of `host`, or deregisters a key.
void SeedRun::BreakMemory(Host& host) {
  SimMemory& memory = host.node->memory();
  if (random_.Percent(50)) {
    memory.AddFault(host.arena.actual(random_.Below(host.arena.used())),
                    random_.Below(100'000));
    memory.set_translate_faults(random_.Percent(50));
  } else {
    auto pool = host.pools.begin();
    std::advance(pool, random_.Below(host.pools.size()));
    memory.Deregister(pool->second.lkey);
  }
  // Users of that memory get errors; queue pairs without a timeout are broken
  // explicitly.
  for (End* end : host.ends) {
    end->broken = end->peer->broken = true;
    for (End* side : {end, end->peer}) {
      if (side->scenario->timeout != 0) continue;
      network_.At(network_.now() + 20 * transport::kMillisecond,
                  *side->host->node, [this, side] { Break(*side); });
    }
  }
}

void SeedRun::Break(End& end) {
  if (end.gone) return;
  // The other application breaks its end too, unless retries detect it.
  if (!end.peer->broken &&
      (end.peer->scenario->timeout == 0 || random_.Percent(50))) {
    network_.At(network_.now() + random_.Below(20 * transport::kMillisecond),
                *end.peer->host->node, [this, &end] { Break(*end.peer); });
  }
  end.broken = end.peer->broken = true;
  transport::QpAttributes to;
  const uint64_t kind = random_.Below(3);
  if (kind == 0) {
    to.state = QpState::kErr;
    if (end.qp->Modify(to, transport::kQpState, network_.now()) != 0) {
      FailAt(end, "modify to ERR");
    }
    ScheduleApp(*end.host, network_.now());
  } else {
    // Polls earlier completions first.
    RunApp(*end.host);
    end.gone = true;
    for (const auto& cq : end.host->cqs) cq->ForgetSlots(end.qpn);
    if (kind == 1) {
      to.state = QpState::kReset;
      if (end.qp->Modify(to, transport::kQpState, network_.now()) != 0) {
        FailAt(end, "modify to RESET");
      }
    } else {
      end.qp.reset();
    }
  }
}

}  // namespace sim
