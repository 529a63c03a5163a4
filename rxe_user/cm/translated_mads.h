// MADs whose ICRC is wrong for their addresses because of an address translator
// (docs/nat.md).
#ifndef RXE_USER_CM_TRANSLATED_MADS_H_
#define RXE_USER_CM_TRANSLATED_MADS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "wire/address.h"

namespace rxe_user {

// The peer's address for one of our communication IDs; absent if unknown.
using PeerOfId =
    std::function<std::optional<wire::IpAddress>(transport::cm::CmId)>;

// `in->bytes` is the MAD of `packet`, which arrived with the addresses of
// `flow`. If its ICRC is right for the sender's own address, sets `in->remote`
// to that and `in->via` to the translated one, and returns true. A request
// contains the sender's own address. For another message it is the address of
// the peer of the connection that the message names, or of the sender of an
// earlier request from the same translated address, so that messages for
// connections that are gone can be answered. Without NatMode, prints a warning
// and returns false. Thread: any.
bool FindTranslatedSender(const transport::cm::MadFlow& flow,
                          std::span<const uint8_t> packet,
                          const PeerOfId& peer_of,
                          transport::cm::IncomingMad* in);

}  // namespace rxe_user

#endif  // RXE_USER_CM_TRANSLATED_MADS_H_
