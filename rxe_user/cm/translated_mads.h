// MADs whose ICRC is wrong for the addresses that they came with, since
// something between translates addresses (docs/nat.md).
#ifndef RXE_USER_CM_TRANSLATED_MADS_H_
#define RXE_USER_CM_TRANSLATED_MADS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "wire/address.h"

namespace rxe_user {

// Thread: one at a time.
class TranslatedMads {
 public:
  // `in->bytes` is the MAD of `packet`, which came as `flow` says. If its ICRC
  // is right for the sender's own address, sets `in->remote` to that and
  // `in->via` to where it came from, and returns true. Requests name that
  // address themselves; other messages are believed of those whose requests
  // were. Without NatMode it warns instead, and returns false.
  bool FindSender(const transport::cm::MadFlow& flow,
                  std::span<const uint8_t> packet,
                  transport::cm::IncomingMad* in);

 private:
  using Seen = std::pair<wire::IpAddress, uint16_t>;  // address, port

  void Remember(const Seen& seen, const wire::IpAddress& sender);

  // What translates gives each sender a port of its own. The older half is
  // forgotten.
  std::map<Seen, wire::IpAddress> recent_;
  std::map<Seen, wire::IpAddress> older_;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_TRANSLATED_MADS_H_
