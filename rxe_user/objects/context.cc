#include "rxe_user/objects/context.h"

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace rxe_user {

Context::Context(std::shared_ptr<const Device> device)
    : device_(std::move(device)), engine_(Engine::For(device_)) {}

void Context::WaitForLanes() {
  for (int i = 0; i < engine_->lane_count(); ++i) {
    Lane::Guard guard(engine_->lane(i));
  }
}

int Context::ResolvePath(uint32_t local_qpn, uint32_t remote_qpn,
                         transport::AddressVector* av) {
  if (av->gid_index >= device_->gids.size()) return EINVAL;
  av->source = device_->gids[av->gid_index].address;
  if (av->destination.is_unspecified() ||
      av->destination.is_v4() != av->source.is_v4()) {
    return EINVAL;
  }
  // Programs give 0 or 1 here and mean "as far as it takes": the kernel, too,
  // puts the route's value in its place.
  if (av->hop_limit <= 1) av->hop_limit = 64;
  if (absl::Status status = engine_->OpenAddress(av->source); !status.ok()) {
    return ReportedErrno(status);
  }
  av->source_port =
      engine_->SourcePort(av->source, av->flow_label, local_qpn, remote_qpn);
  return 0;
}

int ReportedErrno(const absl::Status& status) {
  static std::mutex mutex;
  static auto* const reported = new std::set<std::string>;
  {
    std::string message(status.message().data(), status.message().size());
    std::lock_guard<std::mutex> lock(mutex);
    if (reported->insert(message).second) {
      std::fprintf(stderr, "rxe_user: %s\n", message.c_str());
    }
  }
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kPermissionDenied:
      return EACCES;
    case absl::StatusCode::kResourceExhausted:
      return ENOMEM;
    case absl::StatusCode::kUnavailable:
      return EADDRINUSE;
    case absl::StatusCode::kNotFound:
      return EADDRNOTAVAIL;
    default:
      return EIO;
  }
}

}  // namespace rxe_user
