#include "rxe_user/broker/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <functional>

#include "gtest/gtest.h"

namespace rxe_user::broker {
namespace {

TEST(LedgerTest, AnEntryIsReadAsTheWholeIs) {
  Ledger ledger;
  ASSERT_GE(ledger.fd(), 0);
  ledger.data().main[kSlots - 1] = 7;
  ledger.data().uid[kSlots - 1] = 1234;
  const auto all = ReadLedger(ledger.fd());
  ASSERT_NE(all, nullptr);
  const auto entry = ReadLedgerEntry(ledger.fd(), kSlots - 1);
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->made_at_ms, ledger.data().made_at_ms);
  EXPECT_EQ(entry->main, 7);
  EXPECT_EQ(entry->uid, 1234u);
  EXPECT_EQ(all->Of(kSlots - 1).uid, 1234u);
  EXPECT_EQ(all->Of(1).main, 0);
}

// A memory file with the bytes of a ledger, after `change`.
UniqueFd FileOf(const std::function<void(int)>& change, int seals) {
  UniqueFd fd(memfd_create("ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const Ledger ledger;
  char bytes[4096];
  for (off_t at = 0;; at += sizeof(bytes)) {
    const ssize_t n = pread(ledger.fd(), bytes, sizeof(bytes), at);
    if (n <= 0) break;
    EXPECT_EQ(pwrite(fd.get(), bytes, static_cast<size_t>(n), at), n);
  }
  change(fd.get());
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

bool Accepted(int fd) {
  const bool entry = ReadLedgerEntry(fd, 1).has_value();
  EXPECT_EQ(ReadLedger(fd) != nullptr, entry);
  return entry;
}

TEST(LedgerTest, MalformedOnesAreRefused) {
  const auto put = [](size_t offset, uint32_t value) {
    return [=](int fd) {
      EXPECT_EQ(pwrite(fd, &value, sizeof(value), static_cast<off_t>(offset)),
                ssize_t{sizeof(value)});
    };
  };
  const auto resize = [](size_t size) {
    return
        [=](int fd) { EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0); };
  };
  const auto accepted = [](const std::function<void(int)>& change,
                           int seals = F_SEAL_FUTURE_WRITE) {
    return Accepted(FileOf(change, seals).get());
  };
  EXPECT_TRUE(accepted([](int) {}));
  EXPECT_FALSE(accepted([](int) {}, F_SEAL_GROW));
  EXPECT_FALSE(accepted(resize(0)));
  EXPECT_FALSE(accepted(resize(sizeof(LedgerData) - 1)));
  EXPECT_FALSE(accepted(put(offsetof(LedgerData, magic), kMagic + 1)));
  EXPECT_FALSE(
      accepted(put(offsetof(LedgerData, version), kProtocolVersion - 1)));
  EXPECT_TRUE(
      accepted(put(offsetof(LedgerData, group_count), LedgerData::kGroups)));
  EXPECT_FALSE(accepted(
      put(offsetof(LedgerData, group_count), LedgerData::kGroups + 1)));
  EXPECT_FALSE(Accepted(-1));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  EXPECT_FALSE(Accepted(ends[0]));  // and does not wait
}

}  // namespace
}  // namespace rxe_user::broker
