#include "tools/trace/timeline_clocks.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tools/trace/time_text.h"

namespace trace {
namespace {

using wire::pcapng::Direction;

bool SameBoot(const Recording& a, const Recording& b) {
  return a.about && b.about &&
         std::equal(a.about->boot_id, a.about->boot_id + 16, b.about->boot_id);
}

}  // namespace

void TimelineClocks::Compare(const SightingsOf& sightings, Timeline* t) {
  const size_t files = t->recordings.size();
  offsets_.resize(files);
  uncertainties_.resize(files);
  is_compared_.resize(files);
  CompareAll(sightings, t);
  is_later_ = true;
  t->offsets = offsets_;
  t->uncertainties = uncertainties_;
}

void TimelineClocks::CompareAll(const SightingsOf& sightings, Timeline* t) {
  const size_t files = t->recordings.size();
  std::vector<bool> done = is_compared_;
  for (size_t root = 0; root < files; ++root) {
    std::vector<size_t> reached;
    if (root == 0) {
      done[0] = true;
      for (size_t f = 0; f < files; ++f) {
        if (done[f]) reached.push_back(f);
      }
    } else {
      // Later parts compare only with the first file: the offsets of others
      // relative to each other are kept.
      if (is_later_) return;
      if (done[root]) continue;
      done[root] = true;
      reached.push_back(root);
    }
    for (size_t n = 0; n < reached.size(); ++n) {
      for (size_t f = 0; f < files; ++f) {
        if (!done[f] && CompareTwo(sightings, reached[n], f, t)) {
          done[f] = true;
          reached.push_back(f);
        }
      }
    }
    if (root == 0) {
      is_compared_ = done;
    } else {
      t->notes.push_back(t->recordings[root]->path +
                         ": no packet tells how its clock differs: it is "
                         "taken as equal");
    }
  }
}

bool TimelineClocks::CompareTwo(const SightingsOf& sightings, size_t known,
                                size_t file, Timeline* t) {
  const Recording& a = *t->recordings[known];
  const Recording& b = *t->recordings[file];
  if (SameBoot(a, b)) {
    offsets_[file] = offsets_[known];
    uncertainties_[file] = uncertainties_[known];
    return true;
  }
  const ClockBounds bounds = CompareClocks(
      sightings(known, Direction::kSent), sightings(file, Direction::kReceived),
      sightings(file, Direction::kSent),
      sightings(known, Direction::kReceived));
  const bool has_least = bounds.least != INT64_MIN;
  const bool has_most = bounds.most != INT64_MAX;
  if (!has_least && !has_most) return false;
  const bool known_boots = a.about && b.about;
  int64_t offset = 0;
  int64_t error = 0;
  std::string how;
  if (has_least && has_most) {
    // If it is unknown whether the hosts are the same, and the clocks can be
    // equal, they are taken as equal.
    error = std::max<int64_t>(0, bounds.most - bounds.least) / 2;
    if (known_boots || bounds.least > 0 || bounds.most < 0) {
      offset = bounds.least + (bounds.most - bounds.least) / 2;
      how = "its clock is " + Duration(std::abs(offset)) +
            (offset < 0 ? " behind that of " : " ahead of that of ") + a.path +
            ", by packets both ways (within " + Duration(error) +
            "): its times are corrected";
    }
    if (bounds.least > bounds.most) {
      how +=
          "; some packets arrive before they are sent: a clock was set "
          "meanwhile";
    }
  } else if (has_least ? bounds.least > 0 : bounds.most < 0) {
    offset = has_least ? bounds.least : bounds.most;
    how = "its clock differs from that of " + a.path + " by at least " +
          Duration(std::abs(offset)) +
          ": packets one way only tell no more; its times are corrected by "
          "that";
  }
  // Clamped, so that differences of corrected times fit even after a chain of
  // files.
  offsets_[file] =
      std::clamp(offsets_[known] + offset, -kLatestTime, kLatestTime);
  uncertainties_[file] = std::min(uncertainties_[known] + error, kLatestTime);
  if (!how.empty()) t->notes.push_back(b.path + ": " + how);
  return true;
}

}  // namespace trace
