// A transport service's own header, in front of the headers that follow RC.
#ifndef TRANSPORT_QP_HEADER_FRONT_H_
#define TRANSPORT_QP_HEADER_FRONT_H_

#include <cstddef>
#include <cstdint>

#include "wire/packet.h"

namespace transport {

class HeaderFront {
 public:
  // As wire::EmitHeaders. May change AETH's message count.
  virtual size_t Emit(const wire::Headers& headers, uint8_t* out) const = 0;

 protected:
  ~HeaderFront() = default;
};

}  // namespace transport

#endif  // TRANSPORT_QP_HEADER_FRONT_H_
