#include "rxe_user/broker/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <new>

#include "rxe_user/base/high_fd.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {
namespace {

template <typename T>
bool ReadAt(int fd, size_t offset, T& value) {
  return pread(fd, &value, sizeof(value), static_cast<off_t>(offset)) ==
         ssize_t{sizeof(value)};
}

bool IsLedger(int fd) {
  // Accept only a sealed memory file: reading anything else might block.
  const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
  uint32_t magic = 0, version = 0, groups = 0;
  struct stat file;
  return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) && IsOurs(fd) &&
         fstat(fd, &file) == 0 && file.st_size == off_t{sizeof(LedgerData)} &&
         ReadAt(fd, offsetof(LedgerData, magic), magic) && magic == kMagic &&
         ReadAt(fd, offsetof(LedgerData, version), version) &&
         version == kProtocolVersion &&
         ReadAt(fd, offsetof(LedgerData, group_count), groups) &&
         groups <= LedgerData::kGroups;
}

}  // namespace

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
  // The data are zeros, in pages that exist only once they are written.
  data_ = static_cast<LedgerData*>(memory);
  data_->magic = kMagic;
  data_->version = kProtocolVersion;
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  data_->made_at_ms = now.tv_sec * int64_t{1000} + now.tv_nsec / 1'000'000;
}

Ledger::~Ledger() { munmap(data_, sizeof(LedgerData)); }

std::optional<LedgerEntry> ReadLedgerEntry(int fd, uint16_t slot) {
  LedgerEntry entry;
  if (!IsLedger(fd) ||
      !ReadAt(fd, offsetof(LedgerData, made_at_ms), entry.made_at_ms) ||
      !ReadAt(fd, offsetof(LedgerData, main) + slot * sizeof(entry.main),
              entry.main) ||
      !ReadAt(fd, offsetof(LedgerData, uid) + slot * sizeof(entry.uid),
              entry.uid)) {
    return std::nullopt;
  }
  return entry;
}

std::shared_ptr<const LedgerData> ReadLedger(int fd) {
  if (!IsLedger(fd)) return nullptr;
  auto d = std::make_shared<LedgerData>();
  if (!ReadAt(fd, 0, *d) || d->group_count > LedgerData::kGroups) {
    return nullptr;
  }
  return d;
}

}  // namespace rxe_user::broker
