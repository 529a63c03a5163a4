#include "transport/sim/scenario.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "transport/sim/random.h"

namespace sim {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;

constexpr uint32_t kPpm = 1'000'000;

LinkProfile MakeLink(Random& random) {
  LinkProfile link;
  const uint64_t kind = random.Below(100);
  if (kind < 15) {
    // No loss.
  } else if (kind < 40) {
    link.loss = random.Between(100, kPpm / 100);
  } else if (kind < 70) {
    link.loss = random.Between(kPpm / 100, kPpm / 20);
  } else if (kind < 90) {
    link.loss = random.Between(kPpm / 20, kPpm / 10);
  } else {
    link.loss = random.Between(kPpm / 10, kPpm / 5);
  }
  if (random.Percent(20)) link.loss_run = random.Between(2, 8);
  // With runs, the same loss rate needs fewer loss events.
  link.loss = link.loss * 2 / (link.loss_run + 1);
  if (random.Percent(40)) link.duplicate = random.Between(100, kPpm / 20);
  if (random.Percent(40)) link.reorder = random.Between(100, kPpm / 10);
  if (random.Percent(30)) link.corrupt = random.Between(100, kPpm / 50);
  if (random.Percent(20)) link.forge = random.Between(1000, kPpm / 10);
  link.delay = random.Pick<Time>({0, 1, 2, 5, 20, 100, 500}) * kMicrosecond;
  if (random.Percent(40)) link.jitter = random.Between(1, 50) * kMicrosecond;
  link.reorder_delay = random.Pick<Time>({5, 50, 300, 1000}) * kMicrosecond;
  if (random.Percent(40)) {
    link.bytes_per_us = random.Pick<uint64_t>({100, 500, 1250, 12500});
    link.queue_bytes = random.Pick<uint64_t>({20'000, 64'000, 212'992});
    if (random.Percent(50)) link.ecn_threshold = link.queue_bytes / 3;
    link.receiver_queue = random.Percent(50);
  }
  return link;
}

NodeProfile MakeNode(Random& random) {
  NodeProfile node;
  const uint64_t kind = random.Below(100);
  node.ip_id = kind < 70   ? IpIdMode::kSegment
               : kind < 85 ? IpIdMode::kZero
                           : IpIdMode::kCounting;
  node.max_segments =
      node.ip_id == IpIdMode::kZero ? 1 : random.Pick<int>({1, 2, 8, 32, 64});
  node.burst_bytes = random.Percent(70) ? 65507 : random.Between(4200, 65507);
  node.gro = random.Percent(70);
  if (random.Percent(50)) {
    node.timer_slack = random.Between(1, 100) * kMicrosecond;
  }
  if (random.Percent(30)) {
    node.bytes_per_us = random.Pick<uint64_t>({500, 1250, 12500});
  }
  return node;
}

// Code of the shortest local ACK timeout of at least `time`.
uint8_t TimeoutCode(Time time) {
  uint8_t code = 1;
  while ((Time{4096} << code) < time) ++code;
  return code;
}

uint32_t MakePsn(Random& random) {
  switch (random.Below(4)) {
    case 0:
      return random.Between(0xffff00, 0xffffff);
    case 1:
      return random.Between(0, 3);
    case 2:
      return 0x800000 - random.Between(0, 200);
    default:
      return random.Below(1 << 24);
  }
}

EndScenario MakeEnd(Random& random, const Scenario& scenario, int host) {
  EndScenario end;
  end.host = host;
  end.pd = 1 + random.Below(3);
  end.capacity.max_send_wr = random.Pick<uint32_t>({1, 2, 4, 16, 64, 256});
  end.capacity.max_recv_wr = random.Pick<uint32_t>({1, 2, 8, 64, 256});
  end.capacity.max_send_sge = random.Between(1, 8);
  end.capacity.max_recv_sge = random.Between(1, 8);
  end.capacity.max_inline_data = random.Pick<uint32_t>({0, 16, 64, 256, 1000});
  end.signal_all = random.Percent(20);
  end.srq = random.Percent(25);
  end.send_cq = random.Below(scenario.hosts[host].cqs);
  end.recv_cq =
      random.Percent(50) ? end.send_cq : random.Below(scenario.hosts[host].cqs);
  end.first_psn = MakePsn(random);
  end.max_rd_atomic = random.Pick<int>({1, 1, 2, 3, 4, 8, 16});
  end.min_rnr_timer = random.Percent(1) ? 0 : random.Between(1, 14);
  end.source_port = 0xc000 + random.Below(0x4000);
  if (scenario.link.ecn_threshold != 0) {
    end.traffic_class = random.Pick<int>({0, 1, 2, 0x62});
  }
  if (random.Percent(15)) end.pauses = random.Between(1, 5);
  end.send_batch = random.Pick<int>({1, 3, 16, 1000});
  end.send_pause = random.Pick<Time>({0, 1, 20, 300}) * kMicrosecond;
  if (random.Percent(60)) {
    end.recv_ahead = 1000;
    end.recv_batch = 1000;
  } else {
    end.recv_ahead = random.Below(4);
    end.recv_batch = random.Pick<int>({1, 3, 16});
    end.recv_pause = random.Pick<Time>({1, 20, 300, 2000}) * kMicrosecond;
  }
  return end;
}

}  // namespace

Scenario Scenario::Make(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  const bool many = random.Percent(10);
  scenario.link = MakeLink(random);
  scenario.max_length = random.Pick<uint32_t>({5'000, 70'000, 400'000});
  const int hosts = many ? 8 : 2;
  const bool v6 = random.Percent(25);
  for (int i = 0; i < hosts; ++i) {
    HostScenario host;
    host.profile = MakeNode(random);
    host.profile.batches = seed % 2 == 0;
    host.cqs = random.Between(1, many ? 4 : 2);
    host.poll_delay = random.Pick<Time>({0, 2, 50, 1000}) * kMicrosecond;
    host.span_bytes = random.Pick<uint64_t>({0, 0, 64, 4096});
    host.v6 = v6;
    scenario.hosts.push_back(host);
  }
  const int connections = many                 ? random.Between(8, 24)
                          : random.Percent(60) ? 1
                                               : random.Between(2, 5);
  // Maximum response time without losses.
  const LinkProfile& link = scenario.link;
  Time slowest = 2 * (link.delay + link.jitter + link.reorder_delay);
  if (link.bytes_per_us != 0) {
    slowest += 2 * link.queue_bytes / link.bytes_per_us * kMicrosecond;
  }
  for (const HostScenario& host : scenario.hosts) {
    slowest = std::max(slowest, slowest + host.profile.timer_slack);
  }
  const bool lossless = !link.lossy();
  const uint64_t total_bytes = 1'500'000;
  for (int i = 0; i < connections; ++i) {
    ConnectionScenario connection;
    const int a = random.Below(hosts);
    int b = random.Below(hosts - 1);
    if (b >= a) ++b;
    // Sometimes both ends are on one host.
    if (random.Percent(4)) b = a;
    connection.path_mtu = random.Pick<uint32_t>({256, 512, 1024, 2048, 4096});
    // Sometimes only one end sends.
    const int one_sided = random.Percent(25) ? random.Below(2) : -1;
    for (int e = 0; e < 2; ++e) {
      EndScenario end = MakeEnd(random, scenario, e == 0 ? a : b);
      end.sends = one_sided == e ? 0 : random.Between(1, many ? 25 : 70);
      end.byte_budget = total_bytes / connections / 2;
      // Late receives delay the sender; few sends limit the total time.
      if (end.min_rnr_timer == 0) end.sends = std::min(end.sends, 10);
      end.timeout =
          lossless && random.Percent(10)
              ? 0
              : TimeoutCode(4 * slowest + 200 * kMicrosecond) + random.Below(3);
      end.retry_cnt = lossless ? random.Between(1, 7) : 7;
      if (!lossless || link.reorder == 0) {
        end.ready_after = random.Below(100 * kMicrosecond);
      }
      connection.end[e] = end;
    }
    for (int e = 0; e < 2; ++e) {
      if (connection.end[e].timeout == 0) {
        connection.end[0].ready_after = connection.end[1].ready_after = 0;
      }
    }
    scenario.connections.push_back(connection);
  }
  return scenario;
}

std::string Scenario::ToString() const {
  std::string text = absl::StrFormat(
      "seed %d: %d hosts, %d connections, loss %.2f%% x%d, dup %.2f%%, "
      "reorder %.2f%%/%dus, corrupt %.2f%%, delay %dus+%dus",
      seed, hosts.size(), connections.size(), link.loss / 1e4, link.loss_run,
      link.duplicate / 1e4, link.reorder / 1e4,
      link.reorder_delay / kMicrosecond, link.corrupt / 1e4,
      link.delay / kMicrosecond, link.jitter / kMicrosecond);
  if (link.bytes_per_us != 0) {
    absl::StrAppendFormat(&text, ", %d B/us, queue %d", link.bytes_per_us,
                          link.queue_bytes);
  }
  for (const ConnectionScenario& c : connections) {
    absl::StrAppendFormat(&text, "\n    mtu %d", c.path_mtu);
    for (const EndScenario& e : c.end) {
      absl::StrAppendFormat(
          &text,
          " | host %d sends %d sq %d rq %d%s rd %d psn %06x timeout %d retry "
          "%d rnr %d",
          e.host, e.sends, e.capacity.max_send_wr, e.capacity.max_recv_wr,
          e.srq ? " srq" : "", e.max_rd_atomic, e.first_psn, e.timeout,
          e.retry_cnt, e.min_rnr_timer);
    }
  }
  return text;
}

}  // namespace sim
