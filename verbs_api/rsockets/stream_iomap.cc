// Direct access to the peer's memory: riomap, riounmap, riowrite.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "verbs_api/rsockets/stream.h"

namespace rsockets {
namespace {

constexpr size_t kMaxPerWrite = 1 << 16;

}  // namespace

int64_t Stream::FreeMappingIndex() const {
  for (int64_t index = 0; index < endpoint_->peer_iomap_entries(); ++index) {
    if (std::none_of(mappings_.begin(), mappings_.end(),
                     [&](const Mapping& m) { return m.index == index; })) {
      return index;
    }
  }
  return -1;
}

off_t Stream::MapMemory(void* memory, size_t length, int protection,
                        off_t offset) {
  if ((protection & ~PROT_WRITE) != 0 || length == 0 || length > UINT32_MAX) {
    return -EINVAL;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = AwaitConnected(lock, nonblocking(0), std::nullopt)) {
    return error;
  }
  if (endpoint_ == nullptr) return -EINVAL;
  Mapping mapping = {};
  mapping.index = -1;
  mapping.sent = true;
  int access = IBV_ACCESS_LOCAL_WRITE;
  if ((protection & PROT_WRITE) != 0) {
    access |= IBV_ACCESS_REMOTE_WRITE;
    mapping.index = FreeMappingIndex();
    mapping.sent = false;
    if (mapping.index < 0) return -ENOMEM;
  }
  mapping.mr = ibv_reg_mr(id_->qp->pd, memory, length, access);
  if (mapping.mr == nullptr) return -errno;
  if (offset == -1) {
    offset = static_cast<off_t>(reinterpret_cast<uintptr_t>(memory));
  }
  mapping.offset = static_cast<uint64_t>(offset);
  mappings_.push_back(mapping);
  mappings_pending_ |= !mapping.sent;
  return offset;
}

int Stream::UnmapMemory(void* memory, size_t length) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(
      mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
        return mapping.mr->addr == memory && mapping.mr->length == length;
      });
  if (found == mappings_.end()) return -EINVAL;
  ibv_dereg_mr(found->mr);
  mappings_.erase(found);
  return 0;
}

int Stream::SendMappings(std::unique_lock<std::mutex>& lock, bool nonblocking,
                         const Deadline& deadline) {
  for (;;) {
    const auto unsent =
        std::find_if(mappings_.begin(), mappings_.end(),
                     [](const Mapping& mapping) { return !mapping.sent; });
    if (unsent == mappings_.end()) break;
    if (!endpoint_->CanWriteIomap()) {
      if (const int error = Await(lock, nonblocking, deadline, [&] {
            return endpoint_->CanWriteIomap() || !writable_;
          })) {
        return error;
      }
      if (!writable_) return WriteError();
      continue;  // the list may have changed
    }
    if (!writable_) return WriteError();
    const ibv_mr& mr = *unsent->mr;
    const Iomap iomap = {unsent->offset,
                         {reinterpret_cast<uintptr_t>(mr.addr), mr.rkey,
                          static_cast<uint32_t>(mr.length)}};
    if (const int error = endpoint_->WriteIomap(
            static_cast<uint32_t>(unsent->index), iomap)) {
      Fail(error);
      return -error;
    }
    unsent->sent = true;
  }
  mappings_pending_ = false;
  return 0;
}

ssize_t Stream::WriteMapped(IovCursor data, off_t offset, int flags) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool at_once = nonblocking(flags);
  const Deadline deadline = After(options_.send_timeout);
  Turn turn;
  if (const int error = BeginWrite(lock, at_once, deadline, turn)) return error;
  const size_t length = data.left();
  const auto done = [&] { return length - data.left(); };
  const auto result = [&](int error) {
    return done() > 0 ? static_cast<ssize_t>(done())
                      : static_cast<ssize_t>(error);
  };
  while (data.left() > 0) {
    if (const int error = Await(lock, at_once, deadline, [&] {
          return !writable_ || endpoint_->DirectRoom() > 0;
        })) {
      return result(error);
    }
    if (!writable_) return result(WriteError());
    const uint64_t at = static_cast<uint64_t>(offset) + done();
    const Iomap* const iomap = endpoint_->FindIomap(at);
    if (iomap == nullptr) return result(-EINVAL);
    const uint64_t skip = at - iomap->offset;
    const auto part = static_cast<uint32_t>(
        std::min<uint64_t>({data.left(), iomap->buffer.length - skip,
                            endpoint_->DirectRoom(), kMaxPerWrite}));
    const Buffer to = {iomap->buffer.address + skip, iomap->buffer.key, part};
    if (const int error = endpoint_->WriteDirect(data, part, to)) {
      Fail(error);
      return result(-error);
    }
  }
  return static_cast<ssize_t>(length);
}

}  // namespace rsockets
