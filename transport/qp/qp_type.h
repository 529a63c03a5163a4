// The properties of the queue pair types: one table, a row for each type.
//
// The rest of the engine asks for a property, not for a type. Besides its row a
// type has a transition table (state_table.h), and a class that
// transport/queue_pairs.cc creates.
#ifndef TRANSPORT_QP_QP_TYPE_H_
#define TRANSPORT_QP_QP_TYPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "transport/base/types.h"
#include "transport/qp/state_table.h"

namespace transport {

// What a send request names, in addition to its operation.
enum class SendTarget : uint8_t {
  kPeer,     // nothing: the queue pair has a connection
  kSrq,      // an SRQ of the connection's peer (XRC)
  kAddress,  // an address and the queue pair there
  kDct,      // an address, the DC target there, and its key
  kFrame,    // nothing: the payload begins with an Ethernet header
};

// Where messages that need a receive take it from.
enum class ReceivesFrom : uint8_t {
  kNothing,     // there are none
  kOwnQueue,    // the queue pair's receive queue, or the SRQ that it was given
  kDomainSrqs,  // the SRQ of its XRC domain that the request names
};

struct QpTypeTraits {
  const char* name = nullptr;  // for `rxe-user stat`; null: no such type
  const TransitionTable* transitions = nullptr;
  // Whether it has a requester, a responder. A type without one has no
  // attributes for that half (retries, outstanding READs).
  bool requests = true;
  bool responds = true;
  ReceivesFrom receives_from = ReceivesFrom::kOwnQueue;
  SendTarget target = SendTarget::kPeer;
  // ibv_create_qp(3) creates this type, by its number.
  bool by_verbs = true;
  // kQpAv is the address of its peer. Otherwise its fields only say how to
  // send (DC).
  bool av_is_peer = true;
  // All queue pairs of the type are in one lane of a device
  // (docs/design/progress.md, "Lanes").
  bool one_lane = false;
  bool joins_groups = false;  // ibv_attach_mcast(3)
  // The send opcodes that it accepts (ibv_post_send(3)), a bit each.
  uint32_t offered = 0;

  bool Offers(SendOpcode opcode) const {
    const auto bit = static_cast<unsigned>(opcode);
    return bit < 32 && (offered >> bit & 1) != 0;
  }
  // Its send requests have fields that those of connected types lack.
  bool has_request_fields() const { return target >= SendTarget::kAddress; }
};

namespace internal {

constexpr uint32_t Bits(std::initializer_list<SendOpcode> opcodes) {
  uint32_t bits = 0;
  for (const SendOpcode opcode : opcodes) {
    bits |= 1u << static_cast<unsigned>(opcode);
  }
  return bits;
}

using enum SendOpcode;
inline constexpr uint32_t kSegmented = Bits({kTso});
inline constexpr uint32_t kDatagrams = Bits({kSend, kSendWithImm});
// The specification has no opcode for SEND with invalidate on UC: see
// wire/opcode.cc.
inline constexpr uint32_t kUnacknowledged =
    kDatagrams | Bits({kRdmaWrite, kRdmaWriteWithImm, kSendWithInvalidate,
                       kLocalInvalidate, kBindMw});
inline constexpr uint32_t kReliable =
    kUnacknowledged |
    Bits({kRdmaRead, kCompareSwap, kFetchAdd, kFlush, kAtomicWrite});

// The opcodes that DC has.
inline constexpr uint32_t kDynamic = kReliable & ~Bits({kFlush, kAtomicWrite});

// mlx5dv_wr_post(3): RC and DC initiators.
inline constexpr uint32_t kOfMlx5 = Bits(
    {kMemcpy, AsRawWqe(kNop), AsRawWqe(kSend), AsRawWqe(kSendWithImm),
     AsRawWqe(kSendWithInvalidate), AsRawWqe(kRdmaWrite),
     AsRawWqe(kRdmaWriteWithImm), AsRawWqe(kRdmaRead), AsRawWqe(kCompareSwap),
     AsRawWqe(kFetchAdd), AsRawWqe(kLocalInvalidate)});

inline constexpr size_t kQpTypes = 13;

constexpr std::array<QpTypeTraits, kQpTypes> MakeQpTypes() {
  std::array<QpTypeTraits, kQpTypes> table{};
  const auto row = [&table](QpType type) -> QpTypeTraits& {
    return table[static_cast<size_t>(type)];
  };
  row(QpType::kRc) = {.name = "RC",
                      .transitions = &kRcTransitions,
                      .offered = kReliable | kOfMlx5 | Bits({kConfigureMkey})};
  row(QpType::kUc) = {
      .name = "UC", .transitions = &kUcTransitions, .offered = kUnacknowledged};
  row(QpType::kUd) = {.name = "UD",
                      .transitions = &kUdTransitions,
                      .target = SendTarget::kAddress,
                      .joins_groups = true,
                      .offered = kDatagrams | kSegmented};
  row(QpType::kRawPacket) = {.name = "RAW_PACKET",
                             .transitions = &kRawPacketTransitions,
                             .target = SendTarget::kFrame,
                             .offered = Bits({kSend}) | kSegmented};
  row(QpType::kXrcInitiator) = {.name = "XRC_INI",
                                .transitions = &kXrcInitiatorTransitions,
                                .responds = false,
                                .receives_from = ReceivesFrom::kNothing,
                                .target = SendTarget::kSrq,
                                .one_lane = true,
                                .offered = kReliable};
  row(QpType::kXrcTarget) = {.name = "XRC_TGT",
                             .transitions = &kXrcTargetTransitions,
                             .requests = false,
                             .receives_from = ReceivesFrom::kDomainSrqs,
                             .one_lane = true};
  row(QpType::kDci) = {.name = "DCI",
                       .transitions = &kDciTransitions,
                       .responds = false,
                       .receives_from = ReceivesFrom::kNothing,
                       .target = SendTarget::kDct,
                       .by_verbs = false,
                       .av_is_peer = false,
                       .one_lane = true,
                       .offered = kDynamic | kOfMlx5};
  row(QpType::kDct) = {.name = "DCT",
                       .transitions = &kDctTransitions,
                       .requests = false,
                       .by_verbs = false,
                       .av_is_peer = false,
                       .one_lane = true};
  return table;
}

inline constexpr auto kQpTypeTable = MakeQpTypes();

}  // namespace internal

// `type` must exist.
inline const QpTypeTraits& TraitsOf(QpType type) {
  return internal::kQpTypeTable[static_cast<size_t>(type)];
}

// Null: `type` is not an enumerator.
inline const QpTypeTraits* FindTraits(QpType type) {
  const auto number = static_cast<size_t>(type);
  if (number >= internal::kQpTypes) return nullptr;
  const QpTypeTraits& traits = internal::kQpTypeTable[number];
  return traits.name != nullptr ? &traits : nullptr;
}

// By number (IBV_QPT_*); null: ibv_create_qp(3) creates no such type.
inline const QpTypeTraits* FindVerbsTraits(uint32_t number) {
  if (number >= internal::kQpTypes) return nullptr;
  const QpTypeTraits* const traits = FindTraits(static_cast<QpType>(number));
  return traits != nullptr && traits->by_verbs ? traits : nullptr;
}

}  // namespace transport

#endif  // TRANSPORT_QP_QP_TYPE_H_
