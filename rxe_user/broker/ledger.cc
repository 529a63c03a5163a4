#include "rxe_user/broker/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "rxe_user/base/high_fd.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

Ledger::Ledger() {
  void* memory = MAP_FAILED;
  fd_.Reset(MoveHigh(
      memfd_create("rxe-user-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (fd_.valid() && ftruncate(fd_.get(), sizeof(LedgerData)) == 0) {
    memory = mmap(nullptr, sizeof(LedgerData), PROT_READ | PROT_WRITE,
                  MAP_SHARED, fd_.get(), 0);
  }
  // From here on no other process can map it for writing.
  constexpr int kSeals =
      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (memory == MAP_FAILED || fcntl(fd_.get(), F_ADD_SEALS, kSeals) != 0) {
    if (memory != MAP_FAILED) munmap(memory, sizeof(LedgerData));
    fd_.Reset();
    memory = mmap(nullptr, sizeof(LedgerData), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  // Zeros, in pages that exist only once they are written.
  data_ = static_cast<LedgerData*>(memory);
  data_->magic = kMagic;
  data_->version = kProtocolVersion;
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  data_->made_at_ms = now.tv_sec * int64_t{1000} + now.tv_nsec / 1'000'000;
}

Ledger::~Ledger() { munmap(data_, sizeof(LedgerData)); }

std::shared_ptr<const LedgerData> ReadLedger(int fd) {
  // Only a sealed memory file: reading anything else might block.
  const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_FUTURE_WRITE) || !IsOurs(fd)) {
    return nullptr;
  }
  auto d = std::make_shared<LedgerData>();
  if (pread(fd, d.get(), sizeof(*d), 0) != ssize_t{sizeof(*d)} ||
      d->magic != kMagic || d->version != kProtocolVersion ||
      d->group_count > LedgerData::kGroups) {
    return nullptr;
  }
  return d;
}

}  // namespace rxe_user::broker
