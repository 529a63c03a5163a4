#include "rxe_user/memory/guarded_copy.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/testing/refused_calls.h"
#include "wire/icrc.h"

namespace rxe_user {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Two pages, followed by an unmapped one.
class Pages {
 public:
  Pages() {
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(base_ + 2 * kPage, kPage);
  }
  ~Pages() { munmap(base_, 2 * kPage); }
  uint8_t* end() { return base_ + 2 * kPage; }
  uint8_t* begin() { return base_; }

 private:
  uint8_t* base_;
};

// Waits until the cached result of the handler check has expired.
void WaitForRecheck() {
  timespec t = {0, 30'000'000};
  nanosleep(&t, nullptr);
}

class GuardedCopyTest : public testing::Test {
 protected:
  void SetUp() override { PrepareGuardedAccess(); }
};

// Repeated for each way that this processor supports.
#if defined(__x86_64__) || defined(__aarch64__)
extern "C" uint8_t rxe_user_guarded_way __attribute__((visibility("hidden")));

class GuardedCopyByTest : public GuardedCopyTest,
                          public testing::WithParamInterface<uint8_t> {
 protected:
  void SetUp() override {
    GuardedCopyTest::SetUp();
#if defined(__aarch64__)
    if (GetParam() == 1 && before_ < 1) GTEST_SKIP() << "no PMULL or CRC32";
#else
    if (GetParam() == 2 && !__builtin_cpu_supports("avx")) {
      GTEST_SKIP() << "no AVX";
    }
    if (GetParam() == 3 && before_ < 3) GTEST_SKIP() << "no VPCLMULQDQ";
    if (GetParam() == 4 && before_ < 4) GTEST_SKIP() << "no AVX-512";
#endif
    rxe_user_guarded_way = GetParam();
  }
  void TearDown() override { rxe_user_guarded_way = before_; }

 private:
  const uint8_t before_ = rxe_user_guarded_way;
};

#if defined(__aarch64__)
constexpr const char* kWays[] = {"Words", "WordsThatFold"};
#else
constexpr const char* kWays[] = {"Words", "Bytes", "Vectors", "VectorsThatFold",
                                 "WideVectorsThatFold"};
#endif
INSTANTIATE_TEST_SUITE_P(, GuardedCopyByTest,
                         testing::Range<uint8_t>(0, std::size(kWays)),
                         [](const auto& info) { return kWays[info.param]; });
#else
class GuardedCopyByTest : public GuardedCopyTest,
                          public testing::WithParamInterface<uint8_t> {};
INSTANTIATE_TEST_SUITE_P(, GuardedCopyByTest, testing::Values(0));
#endif

TEST_P(GuardedCopyByTest, CopiesEverySize) {
  std::vector<uint8_t> from(700), to(700);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<uint8_t>(i * 7);
  for (size_t size = 0; size < 600; ++size) {
    for (size_t offset : {0, 1, 5}) {
      std::fill(to.begin(), to.end(), 0xee);
      ASSERT_TRUE(
          GuardedCopyTo(to.data() + 8 + offset, from.data() + offset, size));
      EXPECT_EQ(std::memcmp(to.data() + 8 + offset, from.data() + offset, size),
                0)
          << size;
      EXPECT_EQ(to[7 + offset], 0xee);
      EXPECT_EQ(to[8 + offset + size], 0xee) << size;
    }
  }
  std::vector<uint8_t> big(1 << 20, 3), copy(1 << 20);
  ASSERT_TRUE(GuardedCopyFrom(copy.data(), big.data(), big.size()));
  EXPECT_EQ(copy, big);
}

// Around the sizes and alignments at which the stores change.
TEST_P(GuardedCopyByTest, StreamsEverySize) {
  std::vector<uint8_t> from(5000), to(5000);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  for (size_t size : {0, 1, 8, 128, 1023, 1024, 1025, 1087, 1088, 1089, 1151,
                      1152, 2048, 4096, 4097}) {
    for (size_t at = 64; at < 64 + 130; at += at < 130 ? 1 : 7) {
      std::fill(to.begin(), to.end(), 0xee);
      ASSERT_TRUE(GuardedStreamFrom(to.data() + at, from.data() + at % 5, size,
                                    at % 2 == 0));
      ASSERT_EQ(std::memcmp(to.data() + at, from.data() + at % 5, size), 0)
          << size << " bytes at " << at;
      ASSERT_EQ(to[at - 1], 0xee) << size;
      ASSERT_EQ(to[at + size], 0xee) << size;
    }
  }
}

// Every size and alignment of the last word: aligned words are stored
// differently.
TEST_P(GuardedCopyByTest, CopiesToEveryAlignment) {
  std::vector<uint8_t> from(200), to(232);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i);
  for (size_t size = 1; size < 150; ++size) {
    for (size_t at = 8; at < 24; ++at) {
      for (size_t in = 0; in < 8; in += 3) {
        std::fill(to.begin(), to.end(), 0xee);
        ASSERT_TRUE(GuardedCopyTo(to.data() + at, from.data() + in, size));
        ASSERT_EQ(std::memcmp(to.data() + at, from.data() + in, size), 0)
            << size << " bytes at " << at;
        ASSERT_EQ(to[at - 1], 0xee) << size;
        ASSERT_EQ(to[at + size], 0xee) << size;
      }
    }
  }
}

// A thread that polls on the last bytes then finds all others, including those
// of an earlier copy. A missing barrier shows only on processors that reorder
// stores: never on x86-64, nor on ARM emulated on it.
TEST_P(GuardedCopyByTest, TheLastWordIsSeenLast) {
  struct alignas(64) {
    uint8_t data[1024];
    uint8_t behind[16];
  } shared = {};
  for (const size_t size : {1, 2, 4, 8, 12, 64, 200, 1000}) {
    // The end of the second copy, at which its last bytes are aligned.
    const size_t word = std::min<size_t>(size & -size, 8);
    std::atomic<uint32_t> done = 0;
    constexpr uint32_t kRounds = 3000;
    std::thread reader([&] {
      for (uint32_t round = 1; round <= kRounds; ++round) {
        const auto value = static_cast<uint8_t>(round);
        const uint8_t* last = shared.behind + 7;
        const uint8_t* end = shared.data + size - 1;
        while (__atomic_load_n(last, __ATOMIC_ACQUIRE) != value) {
          std::this_thread::yield();
        }
        ASSERT_EQ(*end, value) << size;
        ASSERT_EQ(shared.data[0], value) << size;
        ASSERT_EQ(shared.data[size - word], value) << size;
        done.store(round, std::memory_order_release);
      }
    });
    std::vector<uint8_t> from(size);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      std::fill(from.begin(), from.end(), static_cast<uint8_t>(round));
      const std::vector<uint8_t> flag(8, static_cast<uint8_t>(round));
      EXPECT_TRUE(GuardedCopyTo(shared.data, from.data(), size));
      EXPECT_TRUE(GuardedCopyTo(shared.behind, flag.data(), 8));
      while (done.load(std::memory_order_acquire) != round) {
        if (testing::Test::HasFailure()) break;
        std::this_thread::yield();
      }
    }
    reader.join();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST_P(GuardedCopyByTest, FaultsReturn) {
  Pages pages;
  std::vector<uint8_t> buffer(kPage);
  for (size_t size : {1, 2, 3, 4, 7, 8, 16, 100, 129, 200, 1000, 2000}) {
    EXPECT_TRUE(GuardedCopyTo(pages.end() - size, buffer.data(), size));
    EXPECT_TRUE(GuardedCopyFrom(buffer.data(), pages.end() - size, size));
    EXPECT_FALSE(GuardedCopyTo(pages.end() - size + 1, buffer.data(), size));
    EXPECT_FALSE(GuardedCopyFrom(buffer.data(), pages.end() - size + 1, size));
    EXPECT_TRUE(GuardedStreamFrom(buffer.data(), pages.end() - size, size));
    EXPECT_FALSE(
        GuardedStreamFrom(buffer.data(), pages.end() - size + 1, size));
    EXPECT_FALSE(GuardedCopyTo(nullptr, buffer.data(), size));
    // A non-canonical address.
    EXPECT_FALSE(GuardedCopyTo(reinterpret_cast<void*>(0x8000'0000'0000'0000),
                               buffer.data(), size));
  }
  ASSERT_EQ(mprotect(pages.begin(), kPage, PROT_READ), 0);
  EXPECT_TRUE(GuardedCopyFrom(buffer.data(), pages.begin(), 100));
  EXPECT_FALSE(GuardedCopyTo(pages.begin(), buffer.data(), 100));
}

// The bytes after the copy need not be mapped.
TEST_P(GuardedCopyByTest, PrefetchingNeedsNoMemory) {
  Pages pages;
  std::vector<uint8_t> buffer(kPage);
  for (size_t size : {1, 128, 200, 1000, 4096}) {
    uint8_t* const last = pages.end() - size;
    std::memset(last, 0x5a, size);
    EXPECT_TRUE(GuardedCopyFrom(buffer.data(), last, size, true));
    EXPECT_EQ(std::memcmp(buffer.data(), last, size), 0);
    std::memset(buffer.data(), 0, size);
    EXPECT_TRUE(GuardedStreamFrom(buffer.data(), last, size, true));
    EXPECT_EQ(std::memcmp(buffer.data(), last, size), 0);
    std::memset(buffer.data(), 0xa5, size);
    EXPECT_TRUE(GuardedCopyTo(last, buffer.data(), size, true));
    EXPECT_EQ(std::memcmp(buffer.data(), last, size), 0);
    uint32_t icrc = 7;
    std::memset(buffer.data(), 0, size);
    EXPECT_TRUE(
        GuardedCopyFromWithIcrc(buffer.data(), last, size, true, &icrc));
    EXPECT_EQ(std::memcmp(buffer.data(), last, size), 0);
    EXPECT_EQ(icrc, wire::IcrcFlow::Extend(7, {last, size}));
  }
}

std::vector<uint8_t> RandomBytes(size_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST_P(GuardedCopyByTest, ContinuesTheIcrc) {
  constexpr size_t kMax = 9000;
  const std::vector<uint8_t> from = RandomBytes(kMax + 64);
  std::vector<uint8_t> to(kMax + 66);
  uint32_t seed = 0;
  for (size_t size = 0; size <= kMax; ++size) {
    const uint8_t* in = from.data() + size * 7 % 64;
    uint8_t* out = to.data() + 1 + size * 5 % 64;
    out[-1] = out[size] = 0xee;
    uint32_t icrc = seed;
    ASSERT_TRUE(GuardedCopyFromWithIcrc(out, in, size, false, &icrc));
    ASSERT_EQ(std::memcmp(out, in, size), 0) << size;
    ASSERT_EQ(icrc, wire::IcrcFlow::Extend(seed, {in, size})) << size;
    ASSERT_EQ(out[-1], 0xee) << size;
    ASSERT_EQ(out[size], 0xee) << size;
    seed = size % 100 == 0 ? ~uint32_t{0} : icrc;
  }
}

TEST_P(GuardedCopyByTest, ContinuesTheIcrcAtEveryAlignment) {
  const std::vector<uint8_t> from = RandomBytes(4096 + 64);
  std::vector<uint8_t> to(4096 + 64);
  for (size_t in = 0; in < 64; ++in) {
    for (size_t out = 0; out < 64; ++out) {
      uint32_t icrc = 0x12345678;
      ASSERT_TRUE(GuardedCopyFromWithIcrc(to.data() + out, from.data() + in,
                                          1024, false, &icrc));
      ASSERT_EQ(icrc,
                wire::IcrcFlow::Extend(0x12345678, {from.data() + in, 1024}));
    }
  }
}

TEST_P(GuardedCopyByTest, FaultsReturnWithAnIcrc) {
  Pages pages;
  std::vector<uint8_t> buffer(2 * kPage);
  uint32_t icrc = 0;
  for (size_t size : {1, 127, 128, 129, 256, 300, 1024, 4096, 8192}) {
    uint8_t* const to = buffer.data();
    EXPECT_TRUE(
        GuardedCopyFromWithIcrc(to, pages.end() - size, size, false, &icrc));
    for (size_t there : {size - 1, size / 2, size_t{0}}) {
      EXPECT_FALSE(
          GuardedCopyFromWithIcrc(to, pages.end() - there, size, false, &icrc));
    }
    EXPECT_FALSE(GuardedCopyFromWithIcrc(to, nullptr, size, false, &icrc));
    EXPECT_FALSE(GuardedCopyFromWithIcrc(
        to, reinterpret_cast<void*>(0x8000'0000'0000'0000), size, false,
        &icrc));
  }
  // Protects the first page, then the last.
  for (uint8_t* page : {pages.begin(), pages.begin() + kPage}) {
    ASSERT_EQ(mprotect(page, kPage, PROT_NONE), 0);
    EXPECT_FALSE(GuardedCopyFromWithIcrc(buffer.data(), pages.begin(),
                                         2 * kPage, false, &icrc));
    ASSERT_EQ(mprotect(page, kPage, PROT_READ), 0);
  }
  icrc = 7;
  EXPECT_TRUE(GuardedCopyFromWithIcrc(buffer.data(), pages.begin(), 2 * kPage,
                                      false, &icrc));
  EXPECT_EQ(icrc, wire::IcrcFlow::Extend(7, buffer));
}

// The ICRC is that of the stored bytes, even if the application changes its
// memory meanwhile: here the stores do, since the areas overlap. A word that is
// loaded separately for copy and ICRC would differ.
TEST_P(GuardedCopyByTest, TheIcrcIsThatOfTheCopy) {
  constexpr int kReach = 300;
  std::mt19937 random(3);
  std::vector<uint8_t> memory(4096 + 2 * kReach);
  for (const size_t size : {128, 472, 1024, 4096}) {
    for (int shift = -kReach; shift <= kReach; ++shift) {
      for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random());
      uint8_t* const from = memory.data() + kReach;
      uint32_t icrc = 1;
      ASSERT_TRUE(
          GuardedCopyFromWithIcrc(from + shift, from, size, false, &icrc));
      ASSERT_EQ(icrc, wire::IcrcFlow::Extend(1, {from + shift, size}))
          << size << " bytes by " << shift;
    }
  }
}

TEST_F(GuardedCopyTest, FileThatShrank) {
  const int fd = memfd_create("test", 0);
  ASSERT_EQ(ftruncate(fd, kPage), 0);
  void* memory =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  uint8_t byte = 1;
  EXPECT_TRUE(GuardedCopyTo(memory, &byte, 1));
  ASSERT_EQ(ftruncate(fd, 0), 0);
  EXPECT_FALSE(GuardedCopyTo(memory, &byte, 1));  // SIGBUS
  munmap(memory, kPage);
  close(fd);
}

TEST_F(GuardedCopyTest, Atomics) {
  Pages pages;
  auto* word = reinterpret_cast<uint64_t*>(pages.end() - 8);
  *word = 10;
  uint64_t original = 0;
  EXPECT_TRUE(GuardedFetchAdd(word, 5, &original));
  EXPECT_EQ(original, 10u);
  EXPECT_EQ(*word, 15u);
  EXPECT_TRUE(GuardedCompareSwap(word, 14, 99, &original));
  EXPECT_EQ(original, 15u);
  EXPECT_EQ(*word, 15u);
  EXPECT_TRUE(GuardedCompareSwap(word, 15, 99, &original));
  EXPECT_EQ(original, 15u);
  EXPECT_EQ(*word, 99u);
  EXPECT_FALSE(GuardedFetchAdd(pages.end(), 1, &original));
  EXPECT_FALSE(GuardedCompareSwap(pages.end(), 1, 2, &original));
}

// Without these system calls (filters, an emulator) accesses are not guarded.
bool TheKernelCopies() {
  uint64_t from = 1, to = 0;
  iovec local = {&to, sizeof(to)}, remote = {&from, sizeof(from)};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(sizeof(to));
}

TEST_F(GuardedCopyTest, CopiesByTheKernel) {
  if (!TheKernelCopies()) GTEST_SKIP() << "no process_vm_readv";
  Pages pages;
  std::vector<uint8_t> from(300), to(300);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i);
  for (size_t size : {1, 7, 8, 9, 300}) {
    std::fill(to.begin(), to.end(), 0);
    EXPECT_TRUE(internal::KernelCopyTo(to.data(), from.data(), size));
    EXPECT_EQ(std::memcmp(to.data(), from.data(), size), 0);
    EXPECT_TRUE(internal::KernelCopyTo(pages.end() - size, from.data(), size));
    EXPECT_FALSE(
        internal::KernelCopyTo(pages.end() - size + 1, from.data(), size));
    EXPECT_FALSE(
        internal::KernelCopyFrom(to.data(), pages.end() - size + 1, size));
  }
}

// The size at which a copy was wrong; 0: none.
size_t WrongCopyByTheKernel() {
  uint8_t from[16], to[16];
  for (size_t i = 0; i < sizeof(from); ++i) from[i] = static_cast<uint8_t>(~i);
  for (size_t size = 1; size <= sizeof(from); ++size) {
    std::memset(to, 0, sizeof(to));
    if (!internal::KernelCopyTo(to, from, size) ||
        std::memcmp(to, from, size) != 0) {
      return size;
    }
    std::memset(to, 0, sizeof(to));
    if (!internal::KernelCopyFrom(to, from, size) ||
        std::memcmp(to, from, size) != 0) {
      return size;
    }
  }
  return 0;
}

TEST_F(GuardedCopyTest, CopiesWhenTheKernelRefusesTo) {
  for (const int error : {EPERM, ENOSYS}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!RefuseCall(SYS_process_vm_writev, error) ||
          !RefuseCall(SYS_process_vm_readv, error)) {
        _exit(99);
      }
      _exit(static_cast<int>(WrongCopyByTheKernel()));
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 99) GTEST_SKIP() << "no seccomp filters";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "bytes";
  }
}

// Even if the thread blocks all signals, a missing page does not end the
// process.
TEST_F(GuardedCopyTest, ThreadThatBlocksEverySignal) {
  if (!TheKernelCopies()) GTEST_SKIP() << "no process_vm_readv";
  std::thread([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    Pages pages;
    uint64_t value = 1, original;
    EXPECT_FALSE(GuardedCopyTo(pages.end(), &value, 8));
    EXPECT_FALSE(GuardedCopyFrom(&value, pages.end(), 8));
    std::vector<uint8_t> copy(1000);
    uint32_t icrc = 3;
    EXPECT_TRUE(GuardedCopyFromWithIcrc(copy.data(), pages.begin(), 1000, false,
                                        &icrc));
    EXPECT_EQ(icrc, wire::IcrcFlow::Extend(3, copy));
    EXPECT_FALSE(GuardedCopyFromWithIcrc(copy.data(), pages.end() - 999, 1000,
                                         false, &icrc));
    EXPECT_FALSE(GuardedFetchAdd(pages.end(), 1, &original));
    EXPECT_FALSE(GuardedCompareSwap(pages.end(), 1, 1, &original));
    auto* word = reinterpret_cast<uint64_t*>(pages.begin());
    *word = 3;
    EXPECT_TRUE(GuardedFetchAdd(word, 1, &original));
    EXPECT_EQ(original, 3u);
    EXPECT_TRUE(GuardedCompareSwap(word, 4, 9, &original));
    EXPECT_EQ(*word, 9u);
    EXPECT_EQ(mprotect(pages.begin(), kPage, PROT_READ), 0);
    EXPECT_FALSE(GuardedFetchAdd(word, 1, &original));
  }).join();
}

TEST_F(GuardedCopyTest, TheApplicationsLaterHandlerStays) {
  if (!TheKernelCopies()) GTEST_SKIP() << "no process_vm_readv";
  struct sigaction before, theirs = {};
  theirs.sa_handler = [](int) { _exit(42); };
  ASSERT_EQ(sigaction(SIGSEGV, &theirs, &before), 0);
  WaitForRecheck();
  Pages pages;
  uint8_t byte = 0;
  EXPECT_FALSE(GuardedCopyTo(pages.end(), &byte, 1));
  EXPECT_FALSE(GuardedCopyFrom(&byte, pages.end(), 1));
  EXPECT_TRUE(GuardedCopyTo(pages.begin(), &byte, 1));
  struct sigaction current;
  ASSERT_EQ(sigaction(SIGSEGV, nullptr, &current), 0);
  EXPECT_EQ(current.sa_handler, theirs.sa_handler);
  sigaction(SIGSEGV, &before, nullptr);
  WaitForRecheck();
}

// Runs `body` in a child and returns its wait status.
template <typename Body>
int InChild(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// An unmapped address. Not null, which UBSan would report.
volatile uintptr_t nowhere = 16;
void Crash() { *reinterpret_cast<volatile int*>(nowhere) = 1; }

// These tests run in children, where no handler is installed yet, since the
// order of installing matters.
#if defined(__x86_64__) || defined(__aarch64__)
// A scope checks once: a handler that is installed within it gets the fault.
TEST(GuardedCopyChainTest, ChecksOnceInAScope) {
  const auto fault_behind = [](bool in_scope) {
    PrepareGuardedAccess();
    Pages pages;
    uint8_t byte = 0;
    std::optional<ScopedFaultGuard> guard;
    guard.emplace();
    if (!GuardedCopyTo(pages.begin(), &byte, 1)) _exit(1);
    struct sigaction theirs = {};
    theirs.sa_handler = [](int) { _exit(17); };
    sigaction(SIGSEGV, &theirs, nullptr);
    WaitForRecheck();
    if (!in_scope) guard.reset();
    _exit(GuardedCopyTo(pages.end(), &byte, 1) ? 2 : 18);
  };
  EXPECT_EQ(WEXITSTATUS(InChild([&] { fault_behind(true); })), 17);
  if (!TheKernelCopies()) return;
  EXPECT_EQ(WEXITSTATUS(InChild([&] { fault_behind(false); })), 18);
}
#endif

TEST(GuardedCopyChainTest, OtherFaultsStillKill) {
  const int status = InChild([] {
    struct sigaction fresh = {};
    fresh.sa_handler = SIG_DFL;
    sigaction(SIGSEGV, &fresh, nullptr);
    PrepareGuardedAccess();
    Crash();
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

}  // namespace

// Programs that installed a handler before ours. Each runs as its own process,
// since a process installs our handlers once.

// Exits with 17 when called for Crash().
void ExitWithAddress(int, siginfo_t* info, void*) {
  _exit(reinterpret_cast<uintptr_t>(info->si_addr) == nowhere ? 17 : 18);
}

void InstallTheirs(int flags, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction theirs = {};
  theirs.sa_flags = SA_SIGINFO | flags;
  theirs.sa_sigaction = handler;
  sigaction(SIGSEGV, &theirs, nullptr);
  sigaction(SIGBUS, &theirs, nullptr);
}

// Our faults do not reach their handler; all others do.
int ChainMain() {
  InstallTheirs(0, ExitWithAddress);
  PrepareGuardedAccess();
  Pages pages;
  uint8_t byte = 0;
  if (GuardedCopyTo(pages.end(), &byte, 1)) return 1;
  Crash();
  return 2;
}

// A signal sent by kill(), and no handler before ours.
int SentMain() {
  struct sigaction fresh = {};
  fresh.sa_handler = SIG_DFL;
  sigaction(SIGSEGV, &fresh, nullptr);
  PrepareGuardedAccess();
  kill(getpid(), SIGSEGV);
  return 2;
}

// A handler that reports, returns, and expects to be called only once.
int OnceMain() {
  alarm(20);
  InstallTheirs(SA_RESETHAND, [](int, siginfo_t*, void*) {
    (void)!write(STDOUT_FILENO, "x", 1);
  });
  PrepareGuardedAccess();
  Crash();
  return 2;
}

// A handler that runs on the thread's stack although there is an alternate one.
char other_stack[1 << 16];
int StackMain() {
  stack_t stack = {};
  stack.ss_sp = other_stack;
  stack.ss_size = sizeof(other_stack);
  sigaltstack(&stack, nullptr);
  InstallTheirs(0, [](int, siginfo_t*, void*) {
    char here;
    volatile char* where = &here;
    _exit(where >= other_stack && where < other_stack + sizeof(other_stack)
              ? 18
              : 17);
  });
  PrepareGuardedAccess();
  Crash();
  return 2;
}

#if defined(__x86_64__) || defined(__aarch64__)
extern "C" const char rxe_user_guarded_begin[]
    __attribute__((visibility("hidden")));

// A report of broken memory that was not accessed is not a fault of a copy in
// progress. The test calls our handler with the siginfo that the kernel would
// pass.
int BrokenMemoryMain() {
  InstallTheirs(0, [](int signal, siginfo_t*, void*) {
    _exit(signal == SIGBUS ? 17 : 18);
  });
  PrepareGuardedAccess();
  siginfo_t info = {};
  info.si_code = BUS_MCEERR_AO;
  ucontext_t context = {};
#if defined(__aarch64__)
  context.uc_mcontext.pc = reinterpret_cast<uintptr_t>(rxe_user_guarded_begin);
#else
  context.uc_mcontext.gregs[REG_RIP] =
      reinterpret_cast<greg_t>(rxe_user_guarded_begin);
#endif
  struct sigaction ours;
  sigaction(SIGBUS, nullptr, &ours);
  ours.sa_sigaction(SIGBUS, &info, &context);
  return 2;
}
#else
int BrokenMemoryMain() { return 17; }  // there is no handler of ours
#endif

// Runs this program again with `argument`. Returns its wait status and its
// output.
int Again(const char* argument, std::string* output = nullptr) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    // By its name, since under emulation the link leads to the emulator.
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    execl(self.c_str(), "guarded_copy_test", argument, nullptr);
    _exit(99);
  }
  close(ends[1]);
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    if (output != nullptr && output->size() < 1000) {
      output->append(buffer, static_cast<size_t>(n));
    }
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(GuardedCopyChainTest, TheEarlierHandlerIsCalled) {
  const int status = Again("--chain");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 17);
}

TEST(GuardedCopyChainTest, SentSignalsStillKill) {
  const int status = Again("--sent");
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

TEST(GuardedCopyChainTest, AnEarlierHandlerForOneFaultIsCalledOnce) {
  std::string output;
  const int status = Again("--once", &output);
  EXPECT_EQ(output, "x");
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

TEST(GuardedCopyChainTest, TheEarlierHandlerKeepsItsStack) {
  const int status = Again("--stack");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 17);
}

TEST(GuardedCopyChainTest, BrokenMemoryElsewhereIsNotOurFault) {
  const int status = Again("--broken-memory");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 17);
}

}  // namespace rxe_user

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--chain") return rxe_user::ChainMain();
  if (mode == "--sent") return rxe_user::SentMain();
  if (mode == "--once") return rxe_user::OnceMain();
  if (mode == "--stack") return rxe_user::StackMain();
  if (mode == "--broken-memory") return rxe_user::BrokenMemoryMain();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
