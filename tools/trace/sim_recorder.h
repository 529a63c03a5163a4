// Records the packets of a simulated node as the device does; for tests.
#ifndef TOOLS_TRACE_SIM_RECORDER_H_
#define TOOLS_TRACE_SIM_RECORDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rxe_user/observe/trace_blocks.h"
#include "transport/endpoint/packet_observer.h"
#include "transport/sim/network.h"

namespace trace {

// The time of day at virtual time 0, ns since 1970.
inline constexpr int64_t kSimStart = 1'795'821'068'000'000'000;

class SimRecorder final : public transport::PacketObserver {
 public:
  // Records the node's packets from now on. `clock`: how far this host's clock
  // is ahead, ns. `boot`: a number that differs between hosts. `frame_bytes`:
  // how much of each frame is recorded.
  SimRecorder(sim::Network* network, sim::Node* node, std::string_view program,
              uint8_t boot, int64_t clock = 0,
              size_t frame_bytes = rxe_user::trace::kFrameBytes);
  ~SimRecorder() override;

  void OnPacket(const transport::ObservedPacket& packet) override;

  // Adds an event at the network's time; sets its id, and returns it.
  template <typename Event>
  uint64_t Add(Event event) {
    event.header.id = ++last_id_;
    event.header.time = Now();
    rxe_user::trace::AppendEvent(event, &bytes_);
    return last_id_;
  }

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  // Writes a file with this name in the test's folder, and returns its path.
  std::string Write(const std::string& name) const;

 private:
  int64_t Now() const;

  sim::Network* const network_;
  sim::Node* const node_;
  const int64_t clock_;
  const size_t frame_bytes_;
  uint64_t last_id_ = 0;
  std::vector<uint8_t> bytes_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_SIM_RECORDER_H_
