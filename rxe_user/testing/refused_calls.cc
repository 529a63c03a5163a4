#include "rxe_user/testing/refused_calls.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rxe_user {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which seccomp architecture?"
#endif

// (argument & mask) == value, of the lower 32 bits.
struct Condition {
  uint32_t argument;
  uint32_t mask;
  uint32_t value;
};

bool Refuse(long number, const std::vector<Condition>& conditions, int error) {
  constexpr uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr uint16_t kJumpIfEqual = BPF_JMP | BPF_JEQ | BPF_K;
  const sock_filter allow =
      BPF_STMT(BPF_RET | BPF_K, uint32_t{SECCOMP_RET_ALLOW});
  std::vector<sock_filter> code = {
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
      BPF_JUMP(kJumpIfEqual, kArchitecture, 1, 0),
      allow,
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
      BPF_JUMP(kJumpIfEqual, static_cast<uint32_t>(number), 1, 0),
      allow,
  };
  for (const Condition& c : conditions) {
    // Both architectures are little-endian: the lower half comes first.
    code.push_back(
        BPF_STMT(kLoad, static_cast<uint32_t>(offsetof(seccomp_data, args) +
                                              sizeof(uint64_t) * c.argument)));
    code.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, c.mask));
    code.push_back(BPF_JUMP(kJumpIfEqual, c.value, 1, 0));
    code.push_back(allow);
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K,
                          SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  const sock_fprog program = {static_cast<unsigned short>(code.size()),
                              code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

}  // namespace

bool RefuseCall(long number, int error) { return Refuse(number, {}, error); }

bool RefuseSocketOption(int level, int name, int error) {
  return Refuse(SYS_setsockopt,
                {{1, ~0u, static_cast<uint32_t>(level)},
                 {2, ~0u, static_cast<uint32_t>(name)}},
                error);
}

bool RefuseCloneWithoutSignal(int error) {
  return Refuse(SYS_clone, {{0, CSIGNAL | CLONE_THREAD, 0}}, error);
}

bool RefuseDatagramCalls(int error) {
  const Condition descriptor = {0, 1u << 31, 0};
  return Refuse(SYS_sendmmsg, {descriptor}, error) &&
         Refuse(SYS_recvmmsg, {descriptor}, error) &&
         Refuse(SYS_recvmsg, {descriptor, {2, ~0u, MSG_DONTWAIT}}, error);
}

bool RefuseSteering(int error) {
  return RefuseSocketOption(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, error) &&
         RefuseSocketOption(SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, error);
}

int InterceptCall(long number) {
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(number)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program = {4, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                  SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

}  // namespace rxe_user
