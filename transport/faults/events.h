// The asynchronous events that a rule `event NAME` can name.
#ifndef TRANSPORT_FAULTS_EVENTS_H_
#define TRANSPORT_FAULTS_EVENTS_H_

#include <cstdint>
#include <string_view>

namespace transport::faults {

// The kind of object that an asynchronous event is about.
enum class EventOf : uint8_t {
  kQueuePair,
  kCompletionQueue,
  kSharedReceiveQueue,
  kDevice,  // or its port
};

struct EventText {
  int type;  // enum ibv_event_type
  std::string_view name;
  EventOf of;
};
// The events of ibv_get_async_event(3) without IBV_EVENT_, in the order of
// their numbers. WQ_FATAL is not one of them: no queue pair leads to a work
// queue.
inline constexpr EventText kEvents[] = {
    {0, "CQ_ERR", EventOf::kCompletionQueue},
    {1, "QP_FATAL", EventOf::kQueuePair},
    {2, "QP_REQ_ERR", EventOf::kQueuePair},
    {3, "QP_ACCESS_ERR", EventOf::kQueuePair},
    {4, "COMM_EST", EventOf::kQueuePair},
    {5, "SQ_DRAINED", EventOf::kQueuePair},
    {6, "PATH_MIG", EventOf::kQueuePair},
    {7, "PATH_MIG_ERR", EventOf::kQueuePair},
    {8, "DEVICE_FATAL", EventOf::kDevice},
    {9, "PORT_ACTIVE", EventOf::kDevice},
    {10, "PORT_ERR", EventOf::kDevice},
    {11, "LID_CHANGE", EventOf::kDevice},
    {12, "PKEY_CHANGE", EventOf::kDevice},
    {13, "SM_CHANGE", EventOf::kDevice},
    {14, "SRQ_ERR", EventOf::kSharedReceiveQueue},
    {15, "SRQ_LIMIT_REACHED", EventOf::kSharedReceiveQueue},
    {16, "QP_LAST_WQE_REACHED", EventOf::kQueuePair},
    {17, "CLIENT_REREGISTER", EventOf::kDevice},
    {18, "GID_CHANGE", EventOf::kDevice},
};
inline constexpr int kDeviceFatal = 8;

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_EVENTS_H_
