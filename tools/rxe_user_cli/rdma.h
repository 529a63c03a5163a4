// `rxe-user rdma`: what rdma(8) of iproute2 shows of the kernel's devices,
// shown of ours. Under `rxe-user run` programs find it as `rdma`, since they
// ask it for the interface of a device, its state and its counters.
#ifndef TOOLS_RXE_USER_CLI_RDMA_H_
#define TOOLS_RXE_USER_CLI_RDMA_H_

#include <cstdio>
#include <string>
#include <vector>

#include "rxe_user/devices/device.h"
#include "tools/rxe_user_cli/stat_model.h"

namespace rxe_user_cli {

// What is shown: the devices and what runs on them.
struct RdmaState {
  rxe_user::Devices devices;
  std::vector<StatProcess> processes;
};

// What rdma has been asked: [OPTIONS] OBJECT [show] [DEV[/PORT]].
struct RdmaQuestion {
  // As rdma(8) has them, and of its resources the summary and queue pairs.
  enum class Object {
    kDev,
    kLink,
    kStatistic,
    kResource,
    kQueuePairs,
    kSystem
  };
  Object object = Object::kDev;
  std::string device;  // empty: every one
  uint32_t port = 0;   // 0: every one
  bool json = false;
  bool pretty = false;
  bool details = false;
};

// `arguments` are without the program's name. False, with why, if there is no
// such question or our devices cannot do it; what is asked may be shortened as
// in `rdma res`.
bool ParseRdma(const std::vector<std::string>& arguments,
               RdmaQuestion* question, std::string* why);

// Format of rdma(8): a line each, or JSON. False if there is no such device or
// port.
bool AnswerRdma(const RdmaQuestion& question, const RdmaState& state,
                std::string* answer);

// The whole command; the exit status: as rdma's, 0 or 1.
int RunRdma(const std::vector<std::string>& arguments, std::FILE* out,
            std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_RDMA_H_
