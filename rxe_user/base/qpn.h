// Queue pair numbers have 24 bits: the upper eight are a slot of the process
// (docs/design/broker.md), the lower sixteen are its own choice.
#ifndef RXE_USER_BASE_QPN_H_
#define RXE_USER_BASE_QPN_H_

#include <cstdint>

namespace rxe_user {

inline constexpr int kSlots = 256;  // slot 0 is the port broker's

constexpr uint32_t MakeQpn(uint8_t slot, uint16_t number) {
  return uint32_t{slot} << 16 | number;
}
constexpr uint8_t SlotOf(uint32_t qpn) {
  return static_cast<uint8_t>(qpn >> 16);
}
constexpr uint16_t NumberOf(uint32_t qpn) { return static_cast<uint16_t>(qpn); }

}  // namespace rxe_user

#endif  // RXE_USER_BASE_QPN_H_
