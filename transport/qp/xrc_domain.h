// An XRC target's access to the shared receive queues of its XRC domain (IBA
// vol. 1, annex A14). Each request names an SRQ by number; the SRQ's protection
// domain applies to remote keys.
#ifndef TRANSPORT_QP_XRC_DOMAIN_H_
#define TRANSPORT_QP_XRC_DOMAIN_H_

#include <cstdint>

#include "transport/base/types.h"
#include "transport/base/work.h"

namespace transport {

struct XrcSrq {
  PdId pd = 0;
  ReceiveSource* receives = nullptr;
  CompletionSink* cq = nullptr;
};

class XrcDomain {
 public:
  virtual ~XrcDomain() = default;

  // Finds an SRQ by number. False if the domain has none. Called with the
  // lane's lock held. A dying SRQ is first made unfindable; then every target
  // of the domain is told (QueuePair::ForgetSrq).
  virtual bool FindSrq(uint32_t srqn, XrcSrq* out) = 0;
};

}  // namespace transport

#endif  // TRANSPORT_QP_XRC_DOMAIN_H_
