// Faults on command of CM messages (docs/faults-on-command.md), as the service
// asks for them.
#ifndef RXE_USER_CM_CM_FAULTS_H_
#define RXE_USER_CM_CM_FAULTS_H_

#include "transport/base/types.h"
#include "wire/address.h"
#include "wire/cm_messages.h"

namespace rxe_user {

class CmFaults {
 public:
  struct Fate {
    int copies = 1;             // 0: it is lost
    transport::Time delay = 0;  // of all of them
  };
  virtual ~CmFaults() = default;
  // The fate of a message that is about to be sent to `peer`, or processed from
  // it. Call this once for each message, in their order. Thread: any; takes no
  // lock of the service.
  virtual Fate Decide(bool sent, wire::CmAttribute attribute,
                      const wire::IpAddress& peer) = 0;
  // Whether messages that Decide has delayed are lost now. Thread and locks as
  // for Decide.
  virtual bool LinkIsDown() { return false; }
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_FAULTS_H_
