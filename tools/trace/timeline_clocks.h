// How the clocks of recordings differ.
#ifndef TOOLS_TRACE_TIMELINE_CLOCKS_H_
#define TOOLS_TRACE_TIMELINE_CLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/trace/match.h"
#include "tools/trace/timeline.h"
#include "wire/pcapng.h"

namespace trace {

class TimelineClocks {
 public:
  // The packets of a file that were sent or received, by its own clock.
  using SightingsOf = std::function<std::vector<Sighting>(
      size_t file, wire::pcapng::Direction direction)>;

  // Sets `offsets` and `uncertainties` of the timeline from its recordings, and
  // adds to its notes. May be called again with later parts of the same files.
  // Then only files are compared that had no packet in common with others yet.
  void Compare(const SightingsOf& sightings, Timeline* t);

 private:
  void CompareAll(const SightingsOf& sightings, Timeline* t);
  // Sets the offset of `file` relative to that of `known`. False: they have
  // nothing in common.
  bool CompareTwo(const SightingsOf& sightings, size_t known, size_t file,
                  Timeline* t);

  std::vector<int64_t> offsets_;
  std::vector<int64_t> uncertainties_;
  std::vector<bool> is_compared_;  // with the clock of the first file
  bool is_later_ = false;
};

}  // namespace trace

#endif  // TOOLS_TRACE_TIMELINE_CLOCKS_H_
