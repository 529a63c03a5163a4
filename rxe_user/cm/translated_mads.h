// MADs whose ICRC is wrong for their addresses because of an address translator
// (docs/nat.md).
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
  // `in->bytes` is the MAD of `packet`, which arrived with the addresses of
  // `flow`. If its ICRC is right for the sender's own address, sets
  // `in->remote` to that and `in->via` to the translated one, and returns true.
  // Requests contain the sender's own address; other messages are accepted from
  // senders of earlier requests. Without NatMode it prints a warning and
  // returns false.
  bool FindSender(const transport::cm::MadFlow& flow,
                  std::span<const uint8_t> packet,
                  transport::cm::IncomingMad* in);

 private:
  using Seen = std::pair<wire::IpAddress, uint16_t>;  // address, port

  void Remember(const Seen& seen, const wire::IpAddress& sender);

  // A translator gives each sender its own port. The older half is dropped when
  // the table is full.
  std::map<Seen, wire::IpAddress> recent_;
  std::map<Seen, wire::IpAddress> older_;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_TRANSLATED_MADS_H_
