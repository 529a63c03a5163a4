// The connections of a host's processes, as far as the messages to queue pair 1
// show them. A kernel disconnects the connections of a process that ends. Here
// the process does so itself. If it is killed, the broker sends the DREQs in
// its place, so that the peers do not wait forever. No I/O, no clock.
//
// The records are claims of peers, which may have forged their addresses. A
// claim costs one entry of a limited number, and one DREQ when the process
// ends. A claim never displaces an entry: if there is no space, the process is
// asked for its connections.
#ifndef RXE_USER_BROKER_OPEN_CONNECTIONS_H_
#define RXE_USER_BROKER_OPEN_CONNECTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/open_connection.h"
#include "wire/address.h"
#include "wire/cm.h"

namespace rxe_user::broker {

class OpenConnections {
 public:
  // Limits for each slot.
  static constexpr size_t kMaxOpen = 4096;
  static constexpr size_t kMaxRequested = 1024;

  using Connection = OpenConnection;

  // Records a MAD from `peer` that is forwarded to the process of `slot`. A
  // connection that the process requested is recorded with the peer's REP. One
  // that the peer requested is recorded with the peer's RTU, which names both
  // communication IDs. DREQ, DREP or REJ removes it.
  void Note(uint16_t slot, const LocalAddress& local,
            const wire::IpAddress& peer, const wire::CmView& mad);

  // The process of `slot` reports the RTU of this connection, which was steered
  // past the broker. Has the same effect as Note.
  void Confirm(uint16_t slot, const Connection& connection);

  // The process of `slot` reports this connection. Ignored beyond kMaxOpen.
  void Add(uint16_t slot, const Connection& connection);

  // Whether a record for `slot` was dropped for lack of space, or contradicts
  // another. If so, ask the process for its connections, once all recorded MADs
  // have been delivered to it.
  bool MustAsk(uint16_t slot) const;
  // The process is being asked. It may not know of records that are added from
  // now on.
  void Ask(uint16_t slot);
  // The process's complete answer. Replaces everything recorded before Ask.
  void Replace(uint16_t slot, const std::vector<Connection>& all);

  // Whether the process of `slot` has requests whose RTU is not known yet.
  bool AwaitsRtu(uint16_t slot) const;
  // The number of open connections.
  size_t size() const;

  // The process has ended: removes and returns its connections.
  std::vector<Connection> Take(uint16_t slot);

 private:
  using PeersId = std::pair<wire::IpAddress, uint32_t>;
  struct Open {
    Connection connection;
    uint32_t asked = 0;  // Slot::asked at the time of the record
  };
  struct Slot {
    std::map<PeersId, uint32_t> requested;  // queue pair numbers of REQs
    std::map<uint32_t, Open> open;          // by local_id
    uint32_t asked = 0;
    bool must_ask = false;
  };
  static void Claim(Slot& slot, const Connection& connection);

  std::map<uint16_t, Slot> slots_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_OPEN_CONNECTIONS_H_
