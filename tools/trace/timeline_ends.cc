#include "tools/trace/timeline_ends.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "wire/address.h"
#include "wire/mad.h"

namespace trace {
namespace {

std::string NameOfEnd(size_t index) {
  std::string name(1, static_cast<char>('A' + index % 26));
  if (index >= 26) name += std::to_string(index / 26);
  return name;
}

// With many queue pairs: the one to which a packet with the same PSN goes.
// `partners` is filled by the first call.
size_t PartnerOf(const Timeline& t, const Arrow& arrow,
                 const std::vector<size_t>& others,
                 std::map<size_t, size_t>* partners) {
  if (partners->empty()) {
    std::map<uint32_t, std::set<size_t>> by_psn;
    for (const Arrow& a : t.arrows) {
      if (t.ends[a.to].qpn > wire::kGsiQpn) by_psn[a.packet().psn].insert(a.to);
    }
    for (const auto& [psn, ends] : by_psn) {
      if (ends.size() != 2) continue;
      (*partners)[*ends.begin()] = *ends.rbegin();
      (*partners)[*ends.rbegin()] = *ends.begin();
    }
    partners->try_emplace(kNone, kNone);
  }
  const auto partner = partners->find(arrow.to);
  return partner != partners->end() ? partner->second : others[0];
}

// The time at which each end appears: the first event of its queue pair, or
// its first packet. 0: the end is not a single queue pair.
std::vector<int64_t> FirstTimes(const Timeline& t) {
  std::map<std::pair<size_t, uint32_t>, int64_t> events;
  for (const TimedEvent& e : t.events) {
    events.try_emplace({e.file, e.event->header().qpn}, e.time);
  }
  std::vector<int64_t> first(t.ends.size(), 0);
  for (size_t e = 0; e < t.ends.size(); ++e) {
    if (t.ends[e].qpn == 0) continue;
    const auto event = events.find({t.ends[e].file, t.ends[e].qpn});
    first[e] = event != events.end() ? event->second : kLatestTime;
  }
  for (const Arrow& arrow : t.arrows) {
    for (const size_t e : {arrow.from, arrow.to}) {
      if (t.ends[e].qpn != 0) first[e] = std::min(first[e], arrow.start());
    }
  }
  return first;
}

}  // namespace

void FindPartners(Timeline* t) {
  std::map<size_t, size_t> partners;
  std::map<size_t, std::vector<size_t>> queue_pairs;  // ends, by file
  for (size_t e = 0; e < t->ends.size(); ++e) {
    const End& end = t->ends[e];
    if (end.qpn > wire::kGsiQpn && end.qpn != kPartner) {
      queue_pairs[end.file].push_back(e);
    }
  }
  for (Arrow& arrow : t->arrows) {
    const End& end = t->ends[arrow.from];
    // Messages between queue pair 1 and itself are from the process.
    if (end.qpn != kPartner || t->ends[arrow.to].qpn == wire::kGsiQpn) {
      continue;
    }
    const auto& others = queue_pairs[end.file];
    if (others.size() == 2) {
      arrow.from = arrow.to == others[0] ? others[1] : others[0];
    } else if (others.size() > 2) {
      arrow.from = PartnerOf(*t, arrow, others, &partners);
    }
  }
}

void SortEnds(size_t known, Timeline* t) {
  std::vector<bool> used(t->ends.size());
  std::fill_n(used.begin(), known, true);
  for (const Arrow& arrow : t->arrows) used[arrow.from] = used[arrow.to] = true;
  std::set<size_t> has_end;  // files with an end
  for (size_t e = 0; e < t->ends.size(); ++e) {
    if (used[e]) has_end.insert(t->ends[e].file);
  }
  for (size_t f = 0; f < t->recordings.size(); ++f) {
    if (!has_end.contains(f) && !t->recordings[f]->events.empty()) {
      t->ends.push_back({f, wire::IpAddress(), 0, "", ""});
      used.push_back(true);
    }
  }
  std::vector<size_t> order;
  for (size_t e = 0; e < t->ends.size(); ++e) {
    if (used[e]) order.push_back(e);
  }
  const std::vector<int64_t> first = FirstTimes(*t);
  const auto place_of = [&](size_t e) {
    const End& end = t->ends[e];
    return std::tuple(std::min(e, known), end.file, end.qpn == kPartner,
                      first[e], end.qpn);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return place_of(a) < place_of(b);
  });
  std::vector<size_t> place(t->ends.size(), 0);
  std::vector<End> ends;
  for (const size_t e : order) {
    place[e] = ends.size();
    End end = t->ends[e];
    end.name = NameOfEnd(ends.size());
    end.label = end.name;
    if (!end.address.is_unspecified()) {
      end.label += " " + end.address.ToString();
    }
    if (end.qpn != 0 && end.qpn != kPartner) {
      absl::StrAppendFormat(&end.label, " qp 0x%06x", end.qpn);
    }
    if (end.file == kNone) {
      end.label += " (not recorded)";
    } else if (const auto& about = t->recordings[end.file]->about) {
      end.label += " " + rxe_user::trace::TextOf(about->program) + "[" +
                   std::to_string(about->pid) + "]";
      const std::string host = rxe_user::trace::TextOf(about->host);
      if (!host.empty()) end.label += " on " + host;
    }
    ends.push_back(end);
  }
  for (Arrow& arrow : t->arrows) {
    arrow.from = place[arrow.from];
    arrow.to = place[arrow.to];
  }
  t->ends = std::move(ends);
}

EndIndex::EndIndex(const Timeline& t) {
  for (size_t e = 0; e < t.ends.size(); ++e) {
    ends_.try_emplace({t.ends[e].file, t.ends[e].qpn}, e);
    first_ends_.try_emplace(t.ends[e].file, e);
  }
}

size_t EndIndex::Find(size_t file, uint32_t qpn) const {
  const auto own = ends_.find({file, qpn});
  if (own != ends_.end()) return own->second;
  const auto of_file = first_ends_.find(file);
  return of_file == first_ends_.end() ? kNone : of_file->second;
}

}  // namespace trace
