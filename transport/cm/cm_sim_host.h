// A host of CmSim. Private to the simulation.
#ifndef TRANSPORT_CM_CM_SIM_HOST_H_
#define TRANSPORT_CM_CM_SIM_HOST_H_

#include <map>
#include <memory>
#include <set>
#include <string>

#include "transport/cm/cm_sim.h"

namespace transport::cm {

// Hosts listen on the first, and on the range of sixteen that contains the
// second; the third has no listener.
inline constexpr uint64_t kServices[] = {0x0000000001060001, 0x0000000001060002,
                                         0x0000000001110003};
// Timeout exponent: a REQ is retransmitted after 3 * 4.2 ms or more.
inline constexpr uint8_t kExponent = 10;

struct CmSim::Host {
  class Ids : public RandomSource {
   public:
    explicit Ids(sim::Random* random) : random_(random) {}
    uint32_t Next32() override {
      return static_cast<uint32_t>(random_->Next());
    }

   private:
    sim::Random* const random_;
  };

  Host(int number, sim::Random* random)
      : number(number),
        address(*wire::IpAddress::Parse("10.0.0." + std::to_string(number))),
        ids(random) {}

  const int number;
  const wire::IpAddress address;
  Ids ids;
  std::unique_ptr<ConnectionManager> manager;  // null while dead
  uint64_t incarnation = 0;
  Time armed = kNever;
  std::map<CmId, Id> apps;
  std::set<uint32_t> qpns;  // in use according to the applications
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CM_SIM_HOST_H_
