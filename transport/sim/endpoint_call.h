// Whether an endpoint is being called, for tests of what it may do meanwhile.
#ifndef TRANSPORT_SIM_ENDPOINT_CALL_H_
#define TRANSPORT_SIM_ENDPOINT_CALL_H_

#include <utility>

namespace sim {

// By the network, and not from within by what the simulation puts under it
// (SimCq). Each thread has its own.
inline thread_local bool in_endpoint = false;

// Sets it for as long as this lives.
class ScopedEndpointCall {
 public:
  explicit ScopedEndpointCall(bool inside)
      : before_(std::exchange(in_endpoint, inside)) {}
  ~ScopedEndpointCall() { in_endpoint = before_; }
  ScopedEndpointCall(const ScopedEndpointCall&) = delete;
  ScopedEndpointCall& operator=(const ScopedEndpointCall&) = delete;

 private:
  const bool before_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_ENDPOINT_CALL_H_
