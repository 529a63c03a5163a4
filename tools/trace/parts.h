// Recordings that are larger than memory, on one time line: part by part.
//
// Each part has context: the packets and events around those that it shows, so
// that packets are paired across its borders. What is shown does not depend on
// the size of parts, unless a packet travels for longer, or is sent again
// later, than a quarter of a part lasts: then it counts as lost, or its repeats
// are counted from 1. A message that takes longer has no completion. Clocks are
// compared by the first part in which two files have packets in common.
#ifndef TOOLS_TRACE_PARTS_H_
#define TOOLS_TRACE_PARTS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tools/trace/conversation.h"
#include "tools/trace/recording.h"
#include "tools/trace/timeline.h"
#include "wire/address.h"

namespace trace {

// Packets and events of a file that a part has at most: some 2.5 GB. Large, so
// that files that begin at different times have packets in common early.
inline constexpr size_t kPartRecords = 4'000'000;

// Thread: one.
class Parts {
 public:
  // `locals`: as in Joiner. `most`: packets and events of each file in a part.
  Parts(const std::vector<wire::IpAddress>& locals, size_t most)
      : most_(most), joiner_(locals) {}

  // Adds a file. False: it could not be opened or is of another format;
  // `*why` is one line.
  bool Open(const std::string& path, std::string* why);
  void Add(std::unique_ptr<CaptureFile> file);

  // The next part: its arrows, events and messages with `shown`. Valid until
  // the next call. False after the last one. There is at least one.
  bool Next();
  const Timeline& timeline() const { return timeline_; }
  const Conversation& conversation() const { return conversation_; }
  // The files, in the order in which they were opened. Each has its error once
  // it was read.
  const std::vector<const Recording*>& recordings() const { return readable_; }

 private:
  // How many of the first records, in the order of the file.
  struct Place {
    size_t packets = 0;
    size_t events = 0;
  };
  struct File {
    File() : reader(&recording) {}

    Recording recording;
    RecordingReader reader;
    Place shown;  // by earlier parts
    Place until;  // shown by this one
    Place drop;   // that the next part does not have
  };

  // Sets `until` and `drop` of all files.
  void Divide();
  static void Forward(int64_t time, Place* until, const Recording& recording);

  const size_t most_;
  Joiner joiner_;
  Before before_;
  std::vector<std::unique_ptr<File>> files_;
  std::vector<const Recording*> readable_;
  bool is_done_ = false;
  Timeline timeline_;
  Conversation conversation_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_PARTS_H_
