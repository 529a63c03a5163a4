// Helpers for tests of the port broker: a network namespace for each test, and
// processes that hold slots.
#ifndef RXE_USER_BROKER_TEST_PEER_H_
#define RXE_USER_BROKER_TEST_PEER_H_

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

wire::IpAddress Ip(const std::string& text);

// As ProbePorts, for one address. kUnavailable if its port cannot be used.
absl::Status PortAvailable(const LocalAddress& local);

// Waits until `done` returns true, for a very long time. False if it never did.
bool Eventually(const std::function<bool()>& done);

// The running broker of this network namespace; 0 if there is none.
pid_t BrokerPid();
// Waits for a broker if need be, and kills it with SIGKILL. Returns its process
// ID.
pid_t KillBroker();
// Sockets bound to the RoCE port in this network namespace.
int PortSockets();
// Whether the broker's name exists.
bool NameExists();
// Whether a process has ended.
bool ProcessGone(pid_t pid);

// The UDP payload for a queue pair of a slot: 24 bytes of BTH and more.
std::vector<uint8_t> PacketFor(uint16_t slot, uint32_t tag = 0);
uint16_t SlotIn(std::span<const uint8_t> packet);
// How a Peer answers such a packet.
struct TestAnswer {
  uint32_t tag = 0;
  uint32_t slot = 0;
};

// A process that holds a slot, answers every datagram for it with its slot
// number and the datagram's tag, and forwards datagrams for other slots.
class Peer {
 public:
  // `before` runs in the process before it takes the slot. Without addresses it
  // opens 127.0.0.1.
  explicit Peer(std::vector<LocalAddress> addresses = {},
                const std::function<void()>& before = {});
  ~Peer();
  Peer(Peer&&) = default;
  Peer& operator=(Peer&&) = default;

  // Waits until it has its sockets. Returns the error's text if that failed.
  std::string Start();
  uint16_t slot() const { return slot_; }
  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Sends SIGKILL and waits for the end.
  void Kill();

 private:
  pid_t pid_ = 0;
  UniqueFd control_;
  uint16_t slot_ = 0;
};

// Sends datagrams to slots and receives the answers.
class Asker {
 public:
  explicit Asker(const wire::IpAddress& to = Ip("127.0.0.1"),
                 uint32_t scope_id = 0);
  // Whether `slot` answers. Retries every `again` until `patience` is over.
  bool Ask(uint16_t slot,
           std::chrono::milliseconds again = std::chrono::milliseconds(30),
           std::chrono::milliseconds patience = std::chrono::seconds(20));
  // Sends one datagram and waits a long time.
  bool AskOnce(uint16_t slot);
  void Send(const std::vector<uint8_t>& payload);
  int asked() const { return asked_; }

 private:
  SocketAddress to_;
  UniqueFd fd_;
  uint32_t tag_ = 0;
  int asked_ = 0;
};

// Users that tests become when root runs them.
inline constexpr uid_t kSomebody = 12345;
inline constexpr uid_t kAnother = 23456;
void Become(uid_t uid);

// A copy of the broker that every user may execute. It exists as long as this
// object.
class PublicBroker {
 public:
  PublicBroker();
  ~PublicBroker();

 private:
  const std::string before_;
  std::filesystem::path folder_;
};

// For root, each test has a fresh network namespace with loopback; otherwise it
// uses the current one, where the port must be unused. Brokers end quickly.
class BrokerTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  static bool Root();
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_TEST_PEER_H_
