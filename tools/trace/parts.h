// Shows recordings that are larger than memory on one time line, part by part.
//
// Each part has context: the packets and events around those that it shows, so
// that packets are paired across its borders. What is shown does not depend on
// the size of the parts, with two exceptions: a packet that travels for longer
// than a quarter of a part counts as lost, and if it is sent again later than
// that, its repeats are counted from 1. A message that takes longer has no
// completion. Clocks are compared in the first part in which two files have
// packets in common.
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

// The maximum number of packets and events of a file in a part: some 2.5 GB.
// Large, so that files that begin at different times soon have packets in
// common.
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

  // Computes the next part, in which the arrows, events and messages to show
  // have `shown`. Valid until the next call. False after the last part. There
  // is at least one part.
  bool Next();
  const Timeline& timeline() const { return timeline_; }
  const Conversation& conversation() const { return conversation_; }
  // The files, in the order in which they were opened. Recording::error is
  // final once the file has been read.
  const std::vector<const Recording*>& recordings() const { return readable_; }

 private:
  // Numbers of records from the start of the file.
  struct Position {
    size_t packets = 0;
    size_t events = 0;
  };
  struct File {
    File() : reader(&recording) {}

    Recording recording;
    RecordingReader reader;
    Position shown;  // shown by earlier parts
    Position until;  // shown by this part
    Position drop;   // not needed by the next part
  };

  // Sets `until` and `drop` of all files.
  void Divide();
  static void Forward(int64_t time, Position* until,
                      const Recording& recording);

  const size_t most_;
  Joiner joiner_;
  CarriedState carried_;
  std::vector<std::unique_ptr<File>> files_;
  std::vector<const Recording*> readable_;
  bool is_done_ = false;
  Timeline timeline_;
  Conversation conversation_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_PARTS_H_
