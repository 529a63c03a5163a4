// Packets of the dynamically connected transport (DC), version 2, of ConnectX
// cards. There is no public specification. The layout is that of captured
// packets (tests/golden); what has not been captured (SEND, READ, atomics)
// follows RC.
//
// DC has the operations of RC, with DCETH after BTH, and one of its own: a
// CONNECT, which opens a connection from an initiator (DCI) to a target (DCT).
//
//   CONNECT: BTH to kNoDcQpn, DCETH with the target's number, DCCETH.
//   Answer: an ACKNOWLEDGE of the CONNECT's PSN with kDcAnswerSyndrome and
//   kDcAnswerSize more bytes. DCETH names the target's connection.
//   Data: RC's packets, to the number of the connection.
//
// AETH counts no messages: its MSN is 0.

#ifndef WIRE_DC_H_
#define WIRE_DC_H_

#include <cstddef>
#include <cstdint>

#include "wire/headers.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace wire {

inline constexpr uint8_t kDcVersion = 1;  // in DCETH
// AETH syndrome of the answer to a CONNECT. To RC it is a NAK of reliable
// datagrams.
inline constexpr uint8_t kDcAnswerSyndrome = 0x64;

inline constexpr uint8_t kOpcodeDcConnect =
    MakeOpcode(Transport::kDc, Operation::kConnect);
// Sizes in bytes, BTH to ICRC. An answer is shorter than what it answers.
inline constexpr size_t kDcConnectSize =
    kBthSize + kDcEthSize + kDccEthSize + kIcrcSize;
inline constexpr size_t kDcAnswerPacketSize =
    kBthSize + kDcEthSize + kAethSize + kDcAnswerSize + kIcrcSize;
static_assert(kDcAnswerPacketSize <= kDcConnectSize);

// Writes DCETH into a DC packet that has its other headers, and 0 into the MSN
// of its AETH: DC counts no messages.
void EmitDcEth(const DcEth& dceth, uint8_t opcode, uint8_t* packet);

// As EmitHeaders, for a DC opcode, with DCETH (EmitDcEth).
size_t EmitDcHeaders(const Headers& headers, const DcEth& dceth, uint8_t* out);

// A CONNECT without its ICRC; `bth.opcode` is set here. Returns its size in
// bytes.
size_t EmitDcConnect(const Bth& bth, const DcEth& dceth, const DccEth& dcceth,
                     uint8_t* out);
// The same for the answer.
size_t EmitDcAnswer(const Bth& bth, const DcEth& dceth, uint8_t* out);

}  // namespace wire

#endif  // WIRE_DC_H_
