// Queue pair 1 of a host: routes each MAD to a process. No I/O, no clock.
//
// Requests (REQ, SIDR_REQ) go to the process that listens on the service ID.
// Other messages go to the process that created the communication ID they name:
// its upper bits are the process's slot, so routing needs no connection state.
// Unclaimed messages get the answer that the specification defines, one MAD of
// the same size: a REJ for a REQ or a REP, a SIDR_REP, a DREP. Each address has
// a rate limit (transport/cm/answer_limit.h).
#ifndef RXE_USER_BROKER_MANAGEMENT_H_
#define RXE_USER_BROKER_MANAGEMENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/service_table.h"
#include "rxe_user/broker/token_bucket.h"
#include "transport/base/types.h"
#include "transport/cm/connection_manager.h"
#include "transport/cm/mad_packet.h"
#include "wire/address.h"
#include "wire/cm.h"

namespace rxe_user::broker {

// Messages to queue pair 1. Each is counted once.
struct ManagementCounters {
  uint64_t handed_on = 0;
  uint64_t answered = 0;   // by the broker itself
  uint64_t malformed = 0;  // not a MAD, or not to queue pair 1
  uint64_t bad_key = 0;
  uint64_t bad_icrc = 0;
  uint64_t no_cm = 0;       // another class, or not a CM message
  uint64_t waited = 0;      // dropped: its process has not come back yet
  uint64_t nobodys = 0;     // unclaimed, and not answered
  uint64_t queue_full = 0;  // the process is too slow
};

class Management {
 public:
  struct Datagram {
    LocalAddress local;  // the address that it arrived at
    wire::IpAddress source;
    uint16_t source_port = 0;
    std::span<const uint8_t> bytes;  // UDP payload
  };
  // The state of a slot.
  enum class Holder : uint8_t {
    kNobody,
    kProcess,
    // A process that also wants datagrams whose ICRC is wrong for their
    // addresses (protocol.h, Open); every process verifies the ICRC itself.
    // Other processes get a few of these, so that they can report the reason of
    // the drop. The broker neither records nor answers such a datagram.
    kWantsUnverified,
    kMayComeBack
  };
  using HolderOf = std::function<Holder(uint16_t slot)>;

  struct Verdict {
    enum class What : uint8_t { kDrop, kHandOn, kAnswer } what = What::kDrop;
    uint16_t slot = 0;  // kHandOn
    // kHandOn: a request that has not been answered. kAnswer: a request without
    // a listener.
    bool initial = false;
    bool unverified = false;  // kHandOn: its ICRC is wrong
    uint64_t service_id = 0;  // of a request
    transport::cm::Mad answer{};
    std::span<const uint8_t> mad;  // kHandOn: a part of the datagram's bytes
  };

  Management();
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;

  ServiceTable& services() { return services_; }

  // `all_known`: all processes that may listen have come back. Otherwise
  // requests without a listener are dropped, and the peer retries.
  Verdict Route(const Datagram& datagram, const HolderOf& holder_of,
                bool all_known, transport::Time now);
  // The slot's process has ended.
  void Forget(uint16_t slot);

  ManagementCounters& counters() { return counters_; }

 private:
  // Requests that were forwarded, so that duplicates reach the same process
  // even if another one listens by now. Key: source, communication ID or
  // request ID, whether it is SIDR. Limited in number and age; the older half
  // is dropped.
  using RequestKey = std::tuple<wire::IpAddress, uint32_t, bool>;
  struct Request {
    uint64_t service_id;
    uint16_t slot;
  };
  using Requests = std::map<RequestKey, Request>;

  const Request* Recent(const RequestKey& key) const;
  void Remember(const RequestKey& key, const Request& request,
                transport::Time now);
  std::optional<uint16_t> FindRequest(const RequestKey& key,
                                      uint64_t service_id,
                                      const LocalAddress& local,
                                      const HolderOf& holder_of,
                                      transport::Time now);
  // Routes a datagram with a wrong ICRC.
  Verdict RouteUnverified(const Datagram& datagram,
                          std::span<const uint8_t> bytes,
                          const HolderOf& holder_of, transport::Time now);
  Verdict Answer(const Datagram& datagram, std::span<const uint8_t> mad,
                 transport::Time now);

  class Random final : public transport::cm::RandomSource {
   public:
    uint32_t Next32() override;
  };

  Random random_;
  // Has no connections and no listeners, so it answers every message as
  // unclaimed.
  transport::cm::ConnectionManager nobody_;
  ServiceTable services_;
  Requests recent_;
  Requests older_;
  transport::Time recent_since_ = 0;
  ManagementCounters counters_;
  TokenBucket unverified_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_MANAGEMENT_H_
