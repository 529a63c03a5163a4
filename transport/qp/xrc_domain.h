// How an XRC target reaches the shared receive queues of its XRC domain (IBA
// vol. 1, annex A14): each request names one by its number, and with it the
// protection domain that remote keys are checked against.
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

  // The SRQ of that number. False if the domain has none. Called with the
  // lane's lock held. Before an SRQ goes it is no longer found, and then every
  // target of the domain is told (QueuePair::ForgetSrq).
  virtual bool FindSrq(uint32_t srqn, XrcSrq* out) = 0;
};

}  // namespace transport

#endif  // TRANSPORT_QP_XRC_DOMAIN_H_
