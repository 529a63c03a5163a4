// The TCP connection by which the two ends of verbs_pair keep in step.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_WIRE_UP_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_WIRE_UP_H_

#include <cstdint>
#include <optional>
#include <string>

namespace verbs_pair {

// A check that did not hold: ends the scenario.
struct Failure {
  std::string what;
};

// What this end's device cannot do: ends the scenario, which does not count.
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

  // Sends `mine` and returns what the peer sent. Throws if the peer has given
  // the scenario up. Both ends must call alike.
  std::string Exchange(const std::string& mine);

  // Both ends get here.
  void Barrier() { Exchange(""); }

  // Ends a scenario on both ends: sends this end's verdict, returns the peer's,
  // whatever it was in the middle of.
  std::string EndScenario(const std::string& verdict);

 private:
  enum class Kind : uint8_t { kData = 1, kEnd };

  void Send(Kind kind, const std::string& text);
  // Throws if the connection has ended.
  std::string Receive(Kind* kind);

  int socket_ = -1;
  // The peer's verdict, when it came before this end had one.
  std::optional<std::string> peer_verdict_;
};

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_WIRE_UP_H_
