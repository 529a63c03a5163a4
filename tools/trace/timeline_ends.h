// The ends of a timeline: which queue pair of a process sends to itself, and
// the order and names of the ends.
#ifndef TOOLS_TRACE_TIMELINE_ENDS_H_
#define TOOLS_TRACE_TIMELINE_ENDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "tools/trace/timeline.h"

namespace trace {

// End::qpn of the queue pair that sends to its own process, until FindPartners
// finds it.
inline constexpr uint32_t kPartner = UINT32_MAX;

// Finds the senders of packets that a process sends to itself: if there are two
// queue pairs, the one by which the packets are answered.
void FindPartners(Timeline* t);

// Sorts the ends that are used in the order of the files, those without a file
// last, and names them. Queue pairs of one file are in the order of their
// creation. The first `known` ends keep their places.
void SortEnds(size_t known, Timeline* t);

// Finds the ends of queue pairs.
class EndIndex {
 public:
  explicit EndIndex(const Timeline& t);

  // The end of a file's queue pair: its own end if the process sends to itself,
  // otherwise that of the file. kNone: the file has no end.
  size_t Find(size_t file, uint32_t qpn) const;

 private:
  std::map<std::pair<size_t, uint32_t>, size_t> ends_;  // by file, queue pair
  std::map<size_t, size_t> first_ends_;                 // by file
};

}  // namespace trace

#endif  // TOOLS_TRACE_TIMELINE_ENDS_H_
