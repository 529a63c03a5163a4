// The connection manager's part of `rxe-user stat`.
#ifndef RXE_USER_CM_CM_REPORT_H_
#define RXE_USER_CM_CM_REPORT_H_

#include <cstddef>

#include "rxe_user/observe/report_text.h"
#include "transport/cm/types.h"

namespace rxe_user {

// Message counters have the names of the kernel's folders and files:
// cm_tx_msgs/req is cm_tx_msgs_req. The counters that follow them are our own.
ManagerReport ReportOf(size_t connections,
                       const transport::cm::Counters& counters);

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_REPORT_H_
