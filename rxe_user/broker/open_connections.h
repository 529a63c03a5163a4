// The connections of a host's processes, as far as what came to queue pair 1
// shows them. A kernel disconnects what a process that ends has left connected;
// here the process itself was to do so, and one that was killed cannot. Its
// peers, which may wait for nothing but a message, hear of it by a DREQ that
// the broker sends in its place. No I/O, no clock.
//
// What is noted are claims of peers, at worst of forged addresses: they cost a
// bounded number of entries, and one DREQ each when the process ends. What is
// there makes no room for claims: where there is none, the process is asked,
// which knows.
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
  // Of a slot each.
  static constexpr size_t kMostOpen = 4096;
  static constexpr size_t kMostRequested = 1024;

  using Connection = OpenConnection;

  // A MAD from `peer` that is handed on to the process of `slot`. Connections
  // that the process has asked for are there with the peer's REP; those it was
  // asked for with the peer's RTU, which names both communication IDs; until
  // DREQ, DREP or REJ.
  void Note(uint8_t slot, const LocalAddress& local,
            const wire::IpAddress& peer, const wire::CmView& mad);

  // The process of `slot` says that the RTU of this one has come, which is
  // steered past the broker. As if Note had seen it.
  void Confirm(uint8_t slot, const Connection& connection);

  // The process of `slot` says that it has this one. Not more than kMostOpen.
  void Add(uint8_t slot, const Connection& connection);

  // Something has come for the process of `slot` that there was no room for, or
  // that is not as it is known: the process is to be asked what it has. Not
  // while something is under way to it that is noted here.
  bool Lacks(uint8_t slot) const;
  // It is asked. What is noted from here on it may not have heard of yet.
  void Ask(uint8_t slot);
  // What it has answered: all of it. What was noted before Ask and is not among
  // it is no connection.
  void Replace(uint8_t slot, const std::vector<Connection>& all);

  // Whether the process of `slot` was asked for connections whose RTU has not
  // been heard of.
  bool AwaitsRtu(uint8_t slot) const;
  // How many are open.
  size_t size() const;

  // The process has ended: what it has left connected.
  std::vector<Connection> Take(uint8_t slot);

 private:
  using PeersId = std::pair<wire::IpAddress, uint32_t>;
  struct Open {
    Connection connection;
    uint32_t asked = 0;  // how often the process had been, when it was noted
  };
  struct Slot {
    std::map<PeersId, uint32_t> requested;  // queue pair numbers of REQs
    std::map<uint32_t, Open> open;          // by local_id
    uint32_t asked = 0;
    bool lacks = false;
  };
  static void Claim(Slot& slot, const Connection& connection);

  std::map<uint8_t, Slot> slots_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_OPEN_CONNECTIONS_H_
