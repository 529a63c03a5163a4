// Writes the packets of this process to a pcap file (docs/decode.md). A record
// is one RoCEv2 packet as on the wire, in either direction, even where GRO or
// segmentation merges several.
#ifndef RXE_USER_OBSERVE_CAPTURE_H_
#define RXE_USER_OBSERVE_CAPTURE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rxe_user/observe/buffered_file.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

// Captures the packets of any number of lanes, in the order in which they reach
// OnPacket. The caller only copies a packet (BufferedFile).
class Capture final : public transport::PacketObserver {
 public:
  using Limits = BufferedFile::Limits;

  // Starts a capture in file `name` (OpenOutputFile). Null on failure, after a
  // line on stderr.
  static std::unique_ptr<Capture> Begin(const std::string& name,
                                        const Limits& limits);
  static std::unique_ptr<Capture> Begin(const std::string& name) {
    return Begin(name, Limits());
  }

  // Thread: any.
  void OnPacket(const transport::ObservedPacket& packet) override;

  BufferedFile& file() { return *file_; }

 private:
  explicit Capture(std::unique_ptr<BufferedFile> file)
      : file_(std::move(file)) {}

  const std::unique_ptr<BufferedFile> file_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_CAPTURE_H_
