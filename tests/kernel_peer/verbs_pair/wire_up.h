// The TCP connection that synchronizes the two ends of verbs_pair.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_WIRE_UP_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_WIRE_UP_H_

#include <cstdint>
#include <optional>
#include <string>

namespace verbs_pair {

// A failed check. Ends the scenario.
struct Failure {
  std::string what;
};

// This end's device does not support it. Ends the scenario, which counts as
// skipped.
struct NotSupported {
  std::string what;
};

// Throws Failure with a text like printf's.
[[noreturn, gnu::format(printf, 1, 2)]] void Fail(const char* format, ...);

class WireUp {
 public:
  // Waits for the peer on `port`, or connects to it at `server`. Throws.
  WireUp(const char* server, uint16_t port);
  ~WireUp();
  WireUp(const WireUp&) = delete;
  WireUp& operator=(const WireUp&) = delete;

  // Sends `mine` and returns the peer's message. Throws if the peer has ended
  // the scenario. Both ends must make the same calls.
  std::string Exchange(const std::string& mine);

  // Waits until both ends arrive here.
  void Barrier() { Exchange(""); }

  // Ends a scenario on both ends, whatever the peer is doing: sends this end's
  // verdict and returns the peer's.
  std::string EndScenario(const std::string& verdict);

 private:
  enum class Kind : uint8_t { kData = 1, kEnd };

  void Send(Kind kind, const std::string& text);
  // Throws if the connection has ended.
  std::string Receive(Kind* kind);

  int socket_ = -1;
  // The peer's verdict if it came before this end's.
  std::optional<std::string> peer_verdict_;
};

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_WIRE_UP_H_
