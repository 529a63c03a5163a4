#include "rxe_user/testing/test_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <iterator>

#include "rxe_user/base/qpn.h"
#include "rxe_user/ports/udp_socket.h"
#include "wire/headers.h"
#include "wire/packet.h"

namespace rxe_user {

class TestSlots::OneSlot final : public Slot {
 public:
  OneSlot(TestSlots& all, int number) : all_(all), number_(number) {}
  ~OneSlot() override {
    const std::lock_guard lock(all_.mutex_);
    all_.taken_[static_cast<size_t>(number_)] = false;
  }
  uint16_t number() const override { return static_cast<uint16_t>(number_); }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    return all_.Open(number_, local);
  }
  int fd() const override { return box().event_fd; }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override {
    uint64_t count;
    (void)!::read(fd(), &count, sizeof(count));
    for (;;) {
      std::pair<Stray, std::vector<uint8_t>> next;
      {
        const std::lock_guard lock(all_.mutex_);
        if (box().strays.empty()) return;
        next = std::move(box().strays.front());
        box().strays.pop_front();
      }
      next.first.bytes = next.second;
      deliver(next.first);
    }
  }
  void Forward(const Stray& stray) override {
    ++all_.forwarded_;
    const int number = SlotOf(wire::PeekDestQpn(stray.bytes).value_or(0));
    if (number < 1 || number > kSlots) return;
    const std::lock_guard lock(all_.mutex_);
    Mailbox& to = all_.mailboxes_[static_cast<size_t>(number)];
    to.strays.emplace_back(
        stray, std::vector<uint8_t>(stray.bytes.begin(), stray.bytes.end()));
    const uint64_t one = 1;
    (void)!::write(to.event_fd, &one, sizeof(one));
  }

 private:
  Mailbox& box() const { return all_.mailboxes_[static_cast<size_t>(number_)]; }
  TestSlots& all_;
  const int number_;
};

TestSlots::TestSlots() {
  for (Mailbox& box : mailboxes_) {
    box.event_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  }
}

TestSlots::~TestSlots() {
  for (Mailbox& box : mailboxes_) ::close(box.event_fd);
  for (auto& [address, sockets] : groups_) {
    for (const int fd : sockets) ::close(fd);
  }
}

absl::StatusOr<std::unique_ptr<Slot>> TestSlots::Acquire() {
  const std::lock_guard lock(mutex_);
  for (int i = 1; i <= kSlots; ++i) {
    if (taken_[static_cast<size_t>(i)]) continue;
    taken_[static_cast<size_t>(i)] = true;
    return std::unique_ptr<Slot>(new OneSlot(*this, i));
  }
  return absl::UnavailableError("all test slots are taken");
}

absl::StatusOr<int> TestSlots::Open(int number, const LocalAddress& local) {
  const std::lock_guard lock(mutex_);
  std::vector<int>& sockets = groups_[local];
  while (static_cast<int>(sockets.size()) < kSlots) {
    const bool v6 = !local.address.is_v4();
    const int fd = ::socket(v6 ? AF_INET6 : AF_INET,
                            SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int one = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    if (v6) {
      ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    }
    SocketAddress bound;
    const socklen_t length = ToSocketAddress(local.address, wire::kRoceUdpPort,
                                             local.scope_id, &bound);
    if (::bind(fd, &bound.any, length) != 0) {
      absl::Status status = absl::ErrnoToStatus(errno, "bind of port 4791");
      ::close(fd);
      return status;
    }
    sockets.push_back(fd);
    // Slot n's socket is number n - 1 of its group. A DC packet to kNoDcQpn is
    // for the target that DCETH names.
    constexpr uint32_t kShift = std::countr_zero(MakeQpn(1, 0));
    sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 4},
        {BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xffffff},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, wire::kNoDcQpn},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 24},
        {BPF_ALU | BPF_RSH | BPF_K, 0, 0, kShift},
        {BPF_ALU | BPF_AND | BPF_K, 0, 0, SlotOf(0xffffff)},
        {BPF_ALU | BPF_SUB | BPF_K, 0, 0, 1},
        {BPF_RET | BPF_A, 0, 0, 0},
    };
    const sock_fprog program = {std::size(code), code};
    ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                 sizeof(program));
  }
  return ::fcntl(sockets[static_cast<size_t>(number) - 1], F_DUPFD_CLOEXEC, 0);
}

}  // namespace rxe_user
