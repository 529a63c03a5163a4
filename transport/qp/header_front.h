// A transport service's own header, in front of the headers that follow RC.
#ifndef TRANSPORT_QP_HEADER_FRONT_H_
#define TRANSPORT_QP_HEADER_FRONT_H_

#include <cstdint>

namespace transport {

class HeaderFront {
 public:
  // Writes it into a packet that has its AETH, if any. May change AETH's
  // message count.
  virtual void Emit(uint8_t opcode, uint8_t* packet) const = 0;

 protected:
  ~HeaderFront() = default;
};

}  // namespace transport

#endif  // TRANSPORT_QP_HEADER_FRONT_H_
