// Queue pair numbers have 24 bits: the upper twelve are the number of a slot,
// which the process holds (docs/design/broker.md); the process chooses the
// lower twelve.
#ifndef RXE_USER_BASE_QPN_H_
#define RXE_USER_BASE_QPN_H_

#include <cstdint>

namespace rxe_user {

// Slot 0 is the port broker's. Slots from kSlots on do not exist.
inline constexpr int kSlots = 4001;
// Queue pair numbers of a slot.
inline constexpr int kNumbersOfSlot = 4096;

constexpr uint32_t MakeQpn(uint16_t slot, uint16_t number) {
  return uint32_t{slot} << 12 | number;
}
constexpr uint16_t SlotOf(uint32_t qpn) {
  return static_cast<uint16_t>(qpn >> 12);
}
constexpr uint16_t NumberOf(uint32_t qpn) { return qpn & 0xfff; }
// The flow label that all queue pairs of a lane share for packets to the slot
// of `qpn`. Not 0.
constexpr uint32_t FlowLabelOfSlot(uint32_t qpn) { return SlotOf(qpn) + 1u; }

}  // namespace rxe_user

#endif  // RXE_USER_BASE_QPN_H_
