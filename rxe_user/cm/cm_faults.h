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
  // Of a message that is about to be sent to, or processed from `peer`. Call
  // once for each, in their order. Thread: any; takes no lock of the service.
  virtual Fate Decide(bool sent, wire::CmAttribute attribute,
                      const wire::IpAddress& peer) = 0;
  // Whether what Decide has delayed is lost now. As Decide.
  virtual bool LinkIsDown() { return false; }
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_FAULTS_H_
