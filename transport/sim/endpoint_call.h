// Whether an endpoint is being called, for tests of what it may do meanwhile.
#ifndef TRANSPORT_SIM_ENDPOINT_CALL_H_
#define TRANSPORT_SIM_ENDPOINT_CALL_H_

#include <utility>

namespace sim {

// Set during calls by the network; not set inside callbacks from the endpoint
// to the simulation (SimCq). Per thread.
inline thread_local bool in_endpoint = false;

// Sets in_endpoint within its scope.
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
