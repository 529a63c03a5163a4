// A libFuzzer target: the port broker, in a thread, and clients that speak its
// protocol by hand: messages in any order, with any descriptors, and bytes that
// are no message. In its own network namespace.
//
// The broker must answer well-behaved clients, be idle when no client sends,
// end when all clients are gone, and have closed all descriptors then.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/message.h"
#include "rxe_user/broker/raw_client.h"
#include "rxe_user/broker/server.h"
#include "rxe_user/broker/udp.h"
#include "rxe_user/testing/net_namespace.h"
#include "tests/fuzz/fuzz_input.h"
#include "transport/cm/mad_packet.h"
#include "wire/mad.h"

namespace fuzz {
namespace {

using rxe_user::LocalAddress;
using rxe_user::OpenConnection;
using rxe_user::UniqueFd;
using rxe_user::broker::BindUdp;
using rxe_user::broker::Close;
using rxe_user::broker::Connected;
using rxe_user::broker::Extend;
using rxe_user::broker::Header;
using rxe_user::broker::Hello;
using rxe_user::broker::HelloReply;
using rxe_user::broker::ListConnected;
using rxe_user::broker::Message;
using rxe_user::broker::Open;
using rxe_user::broker::OpenReply;
using rxe_user::broker::RawClient;
using rxe_user::broker::Refusal;
using rxe_user::broker::Reserve;
using rxe_user::broker::Restore;
using rxe_user::broker::RestoreEnd;
using rxe_user::broker::Send;
using rxe_user::broker::SendRecord;
using rxe_user::broker::Server;
using rxe_user::broker::Sharing;
using rxe_user::broker::StrayHead;
using rxe_user::broker::Type;
using rxe_user::broker::Unreserve;

constexpr int kMaxSteps = 40;
constexpr size_t kClients = 4;
// Time limit for the answer to a well-behaved client.
constexpr int kPatienceMs = 100;
// While no client sends: the time, and the CPU time it may use.
constexpr long kIdleNs = 10'000'000;
constexpr long kIdleCpuNs = 5'000'000;

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

size_t OpenDescriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

LocalAddress Loopback() { return {*wire::IpAddress::Parse("127.0.0.1"), 0}; }

// An existing address, or an invalid one.
LocalAddress AnyAddress(FuzzInput& input) {
  LocalAddress local = Loopback();
  switch (input.Below(8)) {
    case 0:
      return {*wire::IpAddress::Parse("::1"), input.Below(3)};
    case 1:
      return {*wire::IpAddress::Parse("fe80::1"), input.Below(3)};
    case 2:
      local.scope_id = input.Byte();
      break;
    case 3:
      local.address.bytes[15] = input.Byte();
      break;
    case 4:
      return {wire::IpAddress(), 0};
    case 5:
      for (uint8_t& byte : local.address.bytes) byte = input.Byte();
      break;
    default:
      break;
  }
  return local;
}

struct Talker {
  std::optional<UniqueFd> connection;
  UniqueFd ledger;
  std::vector<UniqueFd> lent;
  UniqueFd anchor;    // slot 0's socket
  uint32_t slot = 0;  // once the broker has assigned it
};

class Run {
 public:
  explicit Run(FuzzInput& input) : input_(input) {
    auto server = Server::Create({.linger = std::chrono::milliseconds(1)});
    Require(server.ok(), "no broker");
    server_ = std::move(*server);
    // Stays connected until the end, so that the broker does not end.
    keeper_.emplace();
    Require(keeper_->connected(), "no connection");
    thread_ = std::thread([this] { server_->Run(); });
    Require(keeper_->Greet() != 0, "no slot");
  }

  void Steps() {
    for (int i = 0; i < kMaxSteps && !input_.empty(); ++i) Step();
  }

  void Finish() {
    UniqueFd socket = keeper_->OpenAddress(Loopback());
    Require(socket.valid() || keeper_->refusal() == Refusal::kPortTaken,
            "who behaves is not served: refusal " +
                std::to_string(static_cast<int>(keeper_->refusal())) + ", " +
                keeper_->refusal_text());
    socket.Reset();
    for (Talker& talker : talkers_) talker = Talker();
    self_bound_.clear();
    RequireIdle();
    keeper_.reset();
    thread_.join();
    server_.reset();
  }

 private:
  static UniqueFd Connect() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto name = rxe_user::broker::BrokerAddress();
    Require(connect(fd.get(), name.get(), name.size) == 0,
            "connections are refused");
    return fd;
  }

  // A descriptor for a message; -1: none. The caller does not own it.
  int AnyDescriptor(Talker& talker) {
    switch (input_.Below(8)) {
      case 0:
        return -1;
      case 1:
        return talker.ledger.get();
      case 2:
        self_bound_.push_back(BindUdp(AnyAddress(input_),
                                      input_.Byte() & 1 ? 4791 : 0,
                                      Sharing::kReusePort));
        return self_bound_.back().get();
      case 3:
        self_bound_.emplace_back(memfd_create("fuzz", MFD_CLOEXEC));
        {
          const auto bytes = input_.Bytes(64);
          (void)!write(self_bound_.back().get(), bytes.data(), bytes.size());
        }
        return self_bound_.back().get();
      case 4:
        return talker.connection ? talker.connection->get() : -1;
      case 5:
        return keeper_->ledger();
      case 6:
        return talker.anchor.get();
      default:
        if (talker.lent.empty()) return -1;
        return talker.lent[input_.Byte() % talker.lent.size()].get();
    }
  }

  void Step() {
    const uint8_t step = input_.Byte();
    Talker& talker = talkers_[step / 16 % kClients];
    if (!talker.connection) {
      talker.connection = Connect();
      // Most runs begin correctly.
      if (step & 0x80) {
        SendHello(talker, 0);
        return Receive(talker, kPatienceMs);
      }
    }
    switch (step % 16) {
      case 0:
        return SendHello(talker, input_.Byte());
      case 1: {
        Close close;
        close.address = AnyAddress(input_);
        // The other end may keep copies.
        const uint8_t ways = input_.Byte();
        if (ways & 1) talker.lent.clear();
        if (ways & 2) {
          Extend extend;
          extend.slot = ways & 4 ? 0 : input_.Byte();
          Send(talker.connection->get(), extend);
        }
        Send(talker.connection->get(), close);
        return;
      }
      case 4:
        return SendConnected(talker);
      case 2:
      case 3: {
        Open open;
        open.address = AnyAddress(input_);
        Send(talker.connection->get(), open);
        return;
      }
      case 5:
      case 6:
      case 7: {
        Restore restore;
        restore.index = input_.Byte();
        restore.address = AnyAddress(input_);
        const int socket = AnyDescriptor(talker);
        Send(talker.connection->get(), restore,
             {socket, AnyDescriptor(talker)});
        return;
      }
      case 8:
        Send(talker.connection->get(), RestoreEnd{});
        return;
      case 9: {
        StrayHead head;
        head.length = input_.Byte();
        head.source[0] = input_.Byte();
        return head.source[0] & 1 ? SendMad(talker) : SendParts(talker, head);
      }
      case 10:
        return SendGarbage(talker);
      case 11:
        talker.connection.reset();
        return;
      case 12:
      case 13:
        return Receive(talker, 1);
      case 14:
        return ReserveOrNot(talker);
      case 15:
        return MisuseLent(talker);
    }
  }

  void ReserveOrNot(Talker& talker) {
    if (input_.Below(3) == 0) {
      Unreserve unreserve;
      unreserve.token = input_.Below(4);
      Send(talker.connection->get(), unreserve);
      return;
    }
    Reserve reserve;
    reserve.token = input_.Below(4);
    reserve.sequence = input_.Byte();
    reserve.service.service_id = input_.Below(3);
    if (input_.Byte() & 1) reserve.service.mask = input_.Byte();
    reserve.service.local = AnyAddress(input_);
    const uint8_t flags = input_.Byte();
    reserve.service.ipv6_only = flags & 3;
    reserve.service.reuse = flags >> 2 & 3;
    reserve.service.listening = flags >> 4 & 3;
    Send(talker.connection->get(), reserve);
  }

  // Reports a connection that it may or may not have.
  void SendConnected(Talker& talker) {
    Connected connected;
    const uint32_t count = input_.Below(5);
    connected.count = count < 4 ? count : input_.Byte();
    connected.last = input_.Byte() & 1;
    for (uint32_t i = 0; i < count; ++i) {
      OpenConnection& connection = connected.connections[i];
      connection.local = AnyAddress(input_);
      connection.peer = AnyAddress(input_).address;
      connection.local_id = AnyId();
      connection.remote_id = AnyId();
      connection.remote_qpn = input_.Byte();
    }
    Send(talker.connection->get(), connected);
  }

  // A communication ID, mostly of a client.
  uint32_t AnyId() {
    const uint32_t of = input_.Below(kClients + 1);
    const uint32_t prefix =
        of < kClients ? talkers_[of].slot : uint32_t{input_.Byte()};
    return prefix << 20 | input_.Below(4);
  }

  void SendHello(Talker& talker, uint32_t slot) {
    Hello hello;
    hello.slot = slot;
    Send(talker.connection->get(), hello,
         {slot == 0 ? -1 : AnyDescriptor(talker)});
  }

  template <typename T>
  void SendParts(Talker& talker, const T& head) {
    const std::span<const uint8_t> parts[] = {
        {reinterpret_cast<const uint8_t*>(&head), sizeof(head)},
        input_.Bytes(input_.Byte())};
    SendRecord(talker.connection->get(), parts);
  }

  // Claims to have received a MAD on queue pair 1, with a correct ICRC.
  void SendMad(Talker& talker) {
    const wire::IpAddress address = Loopback().address;
    std::array<uint8_t, wire::kMadSize> mad{};
    const auto bytes = input_.Bytes(mad.size());
    std::copy(bytes.begin(), bytes.end(), mad.begin());
    // The second ID routes the MAD to its process.
    for (const size_t at : {wire::kMadHeaderSize, wire::kMadHeaderSize + 4}) {
      const uint32_t id = htonl(AnyId());
      std::memcpy(mad.data() + at, &id, sizeof(id));
    }
    wire::EmitMadHeader(
        {.management_class = wire::kMadClassCm,
         .class_version = wire::kCmClassVersion,
         .method = wire::kMadMethodSend,
         .attribute_id = static_cast<uint16_t>(0x10 + input_.Below(12))},
        mad.data());
    std::array<uint8_t, transport::cm::kMadPacketSize> packet;
    transport::cm::EmitMadPacket(
        {.source = address, .destination = address, .source_port = 0xc000}, 0,
        mad, packet);
    StrayHead head;
    std::memcpy(head.source, address.bytes.data(), sizeof(head.source));
    std::memcpy(head.destination, address.bytes.data(),
                sizeof(head.destination));
    head.source_port = 0xc000;
    head.length = static_cast<uint32_t>(packet.size());
    const std::span<const uint8_t> parts[] = {
        {reinterpret_cast<const uint8_t*>(&head), sizeof(head)}, packet};
    SendRecord(talker.connection->get(), parts);
  }

  void SendGarbage(Talker& talker) {
    Header header;
    header.type = static_cast<Type>(input_.Below(17));
    if (input_.Byte() & 1) header.version = input_.Byte();
    const std::span<const uint8_t> parts[] = {
        {reinterpret_cast<const uint8_t*>(&header), sizeof(header)},
        input_.Bytes(input_.Byte())};
    const bool bare = input_.Byte() & 1;
    SendRecord(talker.connection->get(),
               bare ? std::span(parts).subspan(1) : std::span(parts),
               {AnyDescriptor(talker)});
  }

  // Reads the answers that have arrived.
  void Receive(Talker& talker, int patience_ms) {
    pollfd answered = {
        .fd = talker.connection->get(), .events = POLLIN, .revents = 0};
    (void)poll(&answered, 1, patience_ms);
    Message message;
    if (message.Receive(talker.connection->get()) !=
        Message::Outcome::kMessage) {
      return;
    }
    if (const auto reply = message.As<HelloReply>()) {
      talker.slot = reply->slot;
      talker.ledger = message.TakeFd(0);
    }
    if (message.As<ListConnected>()) return SendConnected(talker);
    if (message.As<OpenReply>()) {
      UniqueFd socket = message.TakeFd(0);
      if (socket.valid()) talker.lent.push_back(std::move(socket));
      talker.anchor = message.TakeFd(1);
    }
  }

  // Except slot 0's socket, with which a trusted process can end the service of
  // an address (SECURITY.md).
  void MisuseLent(Talker& talker) {
    if (talker.lent.empty()) return;
    const int fd = talker.lent.back().get();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(4791);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    switch (input_.Below(4)) {
      case 0:
        (void)!connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to));
        return;
      case 1:
        shutdown(fd, SHUT_RDWR);
        return;
      case 2: {
        const auto bytes = input_.Bytes(input_.Byte());
        (void)!sendto(fd, bytes.data(), bytes.size(), MSG_DONTWAIT,
                      reinterpret_cast<sockaddr*>(&to), sizeof(to));
        return;
      }
      case 3:
        setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &to, sizeof(int));
        return;
    }
  }

  void RequireIdle() {
    clockid_t clock;
    if (pthread_getcpuclockid(thread_.native_handle(), &clock) != 0) return;
    // It may be busy at first: up to hundreds of ms to find sockets that were
    // handed back.
    for (int tries = 0;; ++tries) {
      timespec before;
      timespec after;
      clock_gettime(clock, &before);
      const timespec idle = {0, kIdleNs};
      nanosleep(&idle, nullptr);
      clock_gettime(clock, &after);
      const long used = (after.tv_sec - before.tv_sec) * 1'000'000'000 +
                        after.tv_nsec - before.tv_nsec;
      if (used < kIdleCpuNs) return;
      Require(tries < 500, "the broker is busy though nobody asks");
    }
  }

  FuzzInput& input_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::optional<RawClient> keeper_;
  std::array<Talker, kClients> talkers_;
  std::vector<UniqueFd> self_bound_;
};

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool kNamespace = rxe_user::EnterFreshNetNamespace();
  if (!kNamespace) return 0;
  const size_t before = fuzz::OpenDescriptors();
  fuzz::FuzzInput input(data, size);
  {
    fuzz::Run run(input);
    run.Steps();
    run.Finish();
  }
  fuzz::Require(fuzz::OpenDescriptors() == before, "descriptors are left open");
  return 0;
}
