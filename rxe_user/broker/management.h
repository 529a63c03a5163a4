// Queue pair 1 of a host: which process a MAD is for. No I/O, no clock.
//
// Requests (REQ, SIDR_REQ) are for the process that listens on the service ID;
// what answers something is for the process that gave out the communication ID
// it names, whose upper bits are the process's slot. So there is nothing about
// connections to remember to find it. What is for nobody is
// answered as the specification has it, with one MAD of the same size: a REJ
// for a REQ or a REP, a SIDR_REP, a DREP; for each address so many a second
// (transport/cm/answer_limit.h).
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

// What came to queue pair 1, each counted once.
struct ManagementCounters {
  uint64_t handed_on = 0;
  uint64_t answered = 0;   // by the broker itself
  uint64_t malformed = 0;  // no MAD, or not to queue pair 1
  uint64_t bad_key = 0;
  uint64_t bad_icrc = 0;
  uint64_t no_cm = 0;    // of another class, or no message of CM
  uint64_t waited = 0;   // for a process that has not come back yet: dropped
  uint64_t nobodys = 0;  // for nobody, and not to be answered, or not so often
  uint64_t queue_full = 0;  // the process does not keep up
};

class Management {
 public:
  struct Datagram {
    LocalAddress local;  // where it came to
    wire::IpAddress source;
    uint16_t source_port = 0;
    std::span<const uint8_t> bytes;  // UDP payload
  };
  // How it stands with a slot.
  enum class Holder : uint8_t {
    kNobody,
    kProcess,
    // One that takes datagrams whose ICRC is wrong for the addresses that they
    // came with (protocol.h, Open), and verifies them itself, as all do. Others
    // are handed a few of them, to say why they are dropped. Nothing is learned
    // of such a datagram here, nor is it answered.
    kVerifies,
    kMayComeBack
  };
  using HolderOf = std::function<Holder(uint8_t slot)>;

  struct Verdict {
    enum class What : uint8_t { kDrop, kHandOn, kAnswer } what = What::kDrop;
    uint8_t slot = 0;  // kHandOn
    // kHandOn: a request, as long as nobody has answered it. kAnswer: a request
    // for which nobody listens.
    bool initial = false;
    bool unverified = false;  // kHandOn: its ICRC is wrong
    uint64_t service_id = 0;  // of a request
    transport::cm::Mad answer{};
    std::span<const uint8_t> mad;  // kHandOn: within the datagram's bytes
  };

  Management();
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;

  ServiceTable& services() { return services_; }

  // `all_known`: no process that may listen is still to come back. Until then
  // requests that nobody listens for are dropped: the peer asks again.
  Verdict Route(const Datagram& datagram, const HolderOf& holder_of,
                bool all_known, transport::Time now);
  // The slot's process has gone.
  void Forget(uint8_t slot);

  ManagementCounters& counters() { return counters_; }

 private:
  // Requests that were handed on, so that duplicates find the same process
  // though another one listens by now: source, communication ID or request ID,
  // which of both. Bounded by number and time: the older half is forgotten.
  using RequestKey = std::tuple<wire::IpAddress, uint32_t, bool>;
  struct Request {
    uint64_t service_id;
    uint8_t slot;
  };
  using Requests = std::map<RequestKey, Request>;

  const Request* Recent(const RequestKey& key) const;
  void Remember(const RequestKey& key, const Request& request,
                transport::Time now);
  std::optional<uint8_t> FindRequest(const RequestKey& key, uint64_t service_id,
                                     const LocalAddress& local,
                                     const HolderOf& holder_of,
                                     transport::Time now);
  // One whose ICRC is wrong.
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
  // Knows no connection and has no listener: it answers as one to whom nothing
  // belongs.
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
