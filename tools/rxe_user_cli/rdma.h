// `rxe-user rdma`: answers queries of rdma(8) of iproute2 for our devices.
// Under `rxe-user run` programs find it as `rdma`: some ask it for the
// interface, state and counters of a device.
#ifndef TOOLS_RXE_USER_CLI_RDMA_H_
#define TOOLS_RXE_USER_CLI_RDMA_H_

#include <cstdio>
#include <string>
#include <vector>

#include "rxe_user/devices/device.h"
#include "tools/rxe_user_cli/stat_model.h"

namespace rxe_user_cli {

// The devices, and the processes that use them.
struct RdmaState {
  rxe_user::Devices devices;
  std::vector<StatProcess> processes;
};

// A query: [OPTIONS] OBJECT [show] [DEV[/PORT]].
struct RdmaQuestion {
  // The objects of rdma(8). Of its resources: the summary and queue pairs.
  enum class Object {
    kDev,
    kLink,
    kStatistic,
    kResource,
    kQueuePairs,
    kSystem
  };
  Object object = Object::kDev;
  std::string device;  // empty: all devices
  uint32_t port = 0;   // 0: all ports
  bool json = false;
  bool pretty = false;
  bool details = false;
};

// Parses `arguments`, without the program's name. Words may be abbreviated, as
// in `rdma res`. Returns false, with the reason, for an invalid query or one
// that our devices do not support.
bool ParseRdma(const std::vector<std::string>& arguments,
               RdmaQuestion* question, std::string* why);

// Formats the answer like rdma(8): lines of text, or JSON. Returns false if
// there is no such device or port.
bool AnswerRdma(const RdmaQuestion& question, const RdmaState& state,
                std::string* answer);

// Runs the command. Returns the exit status of rdma: 0 or 1.
int RunRdma(const std::vector<std::string>& arguments, std::FILE* out,
            std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_RDMA_H_
