// Two processes exchange messages over the loopback interface while this
// process forges packets. It acts as an ordinary user of the host, from the
// peer's address with another port and from a third address; and as the
// superuser, from the peer's port too, but without an expected PSN. Traffic
// must continue with every byte correct; dropped packets must be counted under
// the right name; strangers must get no reply; descriptors and memory must not
// grow.
//
// Each attack lasts a moment, or RXE_USER_TEST_ATTACK_SECONDS.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/ring_descriptors.h"
#include "tests/attacks/evidence.h"
#include "tests/attacks/forger.h"
#include "tests/attacks/victim.h"
#include "tools/rxe_user_cli/stat_model.h"
#include "wire/aeth.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

namespace attacks {
namespace {

using rxe_user_cli::CounterOf;
using rxe_user_cli::StatDevice;
using wire::Headers;
using wire::IpAddress;
using enum wire::Operation;

// Time limit for any step; the machine may be slow.
constexpr int64_t kTimeoutNs = 20'000'000'000;
// The size of a short attack: packets to each victim, and rounds of the victims
// meanwhile.
constexpr uint64_t kPackets = 2'000;
constexpr uint64_t kRounds = 20;
constexpr uint64_t kWarmUp = 50;
// Packets at a time, of an attack that is not a flood.
constexpr int kBatch = 50;
constexpr long kPauseNs = 500'000;
// The minimum rate of a victim under attack, relative to the undisturbed rate.
// Not checked in short attacks, which are too short on a busy machine.
constexpr double kShare = 0.1;
constexpr uint64_t kMaxInFlight = (1 << 20) + 8192;  // bytes: Path
constexpr uint64_t kMoreMemory = 32 << 20;  // bytes by which a victim may grow
// AddressSanitizer distorts the memory of a process: delayed frees, redzones,
// shadow.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kMemoryTells = false;
#else
constexpr bool kMemoryTells = true;
#endif

// The length of each attack; 0: a moment.
const int seconds = [] {
  const char* const text = std::getenv("RXE_USER_TEST_ATTACK_SECONDS");
  return text != nullptr ? std::atoi(text) : 0;
}();

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void Pause(long ns) {
  const timespec time = {0, ns};
  nanosleep(&time, nullptr);
}

template <typename T>
T* Shared() {
  void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) T();
}

enum class Who : uint8_t {
  kThird,      // an ordinary user, from a third address
  kOtherPort,  // an ordinary user, from the peer's address
  kPeerPort,   // the superuser, from the peer's port
};

struct Victim {
  pid_t pid = 0;
  VictimStatus* status = nullptr;
  // The state when the attack began.
  uint32_t qpn = 0;
  uint32_t peer_port = 0;
  uint32_t expected_psn = 0;
  uint32_t send_psn = 0;
  uint32_t unacked_psn = 0;  // the oldest; older ones are acknowledged
  Evidence evidence;
};

// The input for building a packet.
struct Target {
  const Victim& victim;
  std::mt19937& random;
  uint32_t number;  // of the packet, from 0

  Headers Header(wire::Operation operation, uint32_t psn,
                 wire::Transport transport = wire::Transport::kRc) const {
    Headers headers;
    headers.bth.opcode = wire::MakeOpcode(transport, operation);
    headers.bth.dest_qpn = victim.qpn;
    headers.bth.psn = psn & 0xffffff;
    headers.reth = {victim.status->address, victim.status->rkey, 8};
    return headers;
  }
  // PSNs just before, at and after the expected one, and far from it.
  uint32_t AnyPsn(uint32_t base) const {
    return number % 2 == 0 ? base + number / 2 : random();
  }
  // A PSN beyond all PSNs in flight or recently used.
  uint32_t FarPsn(uint32_t base) const {
    return base + (1 << 18) + random() % (1 << 21);
  }
};

struct Forged {
  Headers headers;
  size_t payload = 0;
  // Applied to the finished packet.
  std::function<void(Bytes*)> damage = nullptr;
  bool uc_asks = false;
};

struct Attack {
  std::string_view name;
  std::vector<Who> who;
  // The counters of which one must count each packet. The test checks their
  // sum.
  std::vector<std::string_view> counters;
  std::function<Forged(const Target&)> forge;
  bool flood = false;  // at full speed
};

std::vector<Attack> Attacks() {
  using enum Who;
  const auto strangers = std::vector{kThird, kOtherPort};
  const std::vector<std::string_view> stranger = {"rx_drop_source",
                                                  "rx_drop_port"};
  return {
      {"writes at every PSN", strangers, stranger,
       [](const Target& t) {
         return Forged{t.Header(kWriteOnly, t.AnyPsn(t.victim.expected_psn)),
                       8};
       }},
      {"a flood of writes", strangers, stranger,
       [](const Target& t) {
         return Forged{t.Header(kWriteOnly, t.AnyPsn(t.victim.expected_psn)),
                       8};
       },
       true},
      {"a sweep of R_Keys", strangers, stranger,
       [](const Target& t) {
         Forged forged = {
             t.Header(kReadRequest, t.victim.expected_psn + t.number)};
         forged.headers.reth.rkey = t.random();
         return forged;
       }},
      {"a sweep of queue pair numbers",
       strangers,
       {"rx_drop_unknown_qp"},
       [](const Target& t) {
         Forged forged = {t.Header(kSendOnly, t.random()), 16};
         // Queue pair numbers of the same slot, which the kernel steers to the
         // victim.
         forged.headers.bth.dest_qpn =
             (t.victim.qpn & 0xfff000) | (t.random() & 0xfff);
         return forged;
       }},
      {"NAKs that end a connection", strangers, stranger,
       [](const Target& t) {
         Forged forged = {t.Header(kAcknowledge, t.AnyPsn(t.victim.send_psn))};
         forged.headers.aeth.syndrome =
             wire::MakeNakSyndrome(static_cast<wire::NakCode>(t.number % 5));
         return forged;
       }},
      {"an RNR NAK storm", strangers, stranger,
       [](const Target& t) {
         Forged forged = {t.Header(kAcknowledge, t.AnyPsn(t.victim.send_psn))};
         forged.headers.aeth.syndrome = wire::MakeRnrSyndrome(0);
         return forged;
       }},
      {"acknowledgements", strangers, stranger,
       [](const Target& t) {
         Forged forged = {t.Header(kAcknowledge, t.AnyPsn(t.victim.send_psn))};
         forged.headers.aeth = {wire::MakeAckSyndrome(wire::kCreditNone),
                                static_cast<uint32_t>(t.random())};
         return forged;
       }},
      {"READ responses", strangers, stranger,
       [](const Target& t) {
         return Forged{t.Header(t.number % 3 == 0 ? kAtomicAcknowledge
                                                  : kReadResponseOnly,
                                t.AnyPsn(t.victim.send_psn)),
                       t.number % 3 == 0 ? 0u : 1024u};
       }},
      {"congestion notifications", strangers, stranger,
       [](const Target& t) {
         Forged forged = {t.Header({}, 0), wire::kCnpPayloadSize};
         forged.headers.bth.opcode = wire::kOpcodeCnp;
         forged.headers.bth.becn = true;
         return forged;
       }},
      {"garbage",
       {kThird, kOtherPort, kPeerPort},
       {"rx_drop_too_short", "rx_drop_opcode", "rx_drop_length",
        "rx_drop_header", "rx_drop_syndrome", "rx_icrc_encapsulated"},
       [](const Target& t) {
         return Forged{t.Header(kWriteOnly, t.random()), 64,
                       [&random = t.random](Bytes* packet) {
                         packet->resize(random() % packet->size());
                         for (uint8_t& byte : *packet) {
                           if (random() % 2 == 0) {
                             byte = static_cast<uint8_t>(random());
                           }
                         }
                       }};
       }},
      {"truncated packets",
       {kThird, kOtherPort, kPeerPort},
       {"rx_drop_too_short", "rx_drop_length", "rx_drop_header",
        "rx_icrc_encapsulated"},
       [](const Target& t) {
         return Forged{t.Header(kWriteOnly, t.FarPsn(t.victim.expected_psn)),
                       64, [&random = t.random](Bytes* packet) {
                         packet->resize(random() % packet->size());
                       }};
       }},
      {"wrong ICRCs",
       {kThird, kOtherPort, kPeerPort},
       {"rx_icrc_encapsulated"},
       [](const Target& t) {
         return Forged{t.Header(kWriteOnly, t.FarPsn(t.victim.expected_psn)), 8,
                       [&random = t.random](Bytes* packet) {
                         for (int i = 1; i <= 4; ++i) {
                           (*packet)[packet->size() - i] ^=
                               static_cast<uint8_t>(random() | 1);
                         }
                       }};
       }},
      {"wrong versions",
       {kThird, kOtherPort, kPeerPort},
       {"rx_drop_header"},
       [](const Target& t) {
         Forged forged = {t.Header(kWriteOnly, t.FarPsn(t.victim.expected_psn)),
                          8};
         forged.headers.bth.transport_version = 1 + t.random() % 15;
         return forged;
       }},
      {"wrong P_Keys",
       {kOtherPort, kPeerPort},
       {"rx_drop_pkey"},
       [](const Target& t) {
         Forged forged = {t.Header(kWriteOnly, t.AnyPsn(t.victim.expected_psn)),
                          8};
         forged.headers.bth.pkey = t.random() % 0x7fff;
         return forged;
       }},
      {"another transport service",
       {kThird, kOtherPort, kPeerPort},
       {"rx_drop_type"},
       [](const Target& t) {
         Forged forged = {t.Header(kWriteOnly, t.AnyPsn(t.victim.expected_psn)),
                          8};
         forged.headers.bth.opcode =
             wire::MakeOpcode(wire::Transport::kUc, kWriteOnly);
         return forged;
       }},
      {"requests far ahead",
       {kPeerPort},
       {"rx_drop_psn"},
       [](const Target& t) {
         return Forged{t.Header(kWriteOnly, t.FarPsn(t.victim.expected_psn)),
                       8};
       }},
      {"requests that are old",
       {kPeerPort},
       {"duplicate_request"},
       [](const Target& t) {
         return Forged{
             t.Header(kWriteOnly, t.victim.expected_psn - 1 - t.number % 1000),
             8};
       }},
      {"acknowledgements that are old",
       {kPeerPort},
       {"duplicate_response"},
       [](const Target& t) {
         Forged forged = {t.Header(kAcknowledge,
                                   t.victim.unacked_psn - 1 - t.number % 1000)};
         forged.headers.aeth.syndrome =
             t.number % 2 == 0
                 ? wire::MakeAckSyndrome(wire::kCreditNone)
                 : wire::MakeNakSyndrome(wire::NakCode::kPsnSequence);
         return forged;
       }},
      {"responses to nothing",
       {kPeerPort},
       {"rx_drop_psn", "rx_drop_response"},
       [](const Target& t) {
         Forged forged = {
             t.Header(t.number % 2 == 0 ? kAcknowledge : kReadResponseOnly,
                      t.FarPsn(t.victim.send_psn))};
         forged.headers.aeth.syndrome =
             wire::MakeNakSyndrome(wire::NakCode::kRemoteAccess);
         return forged;
       }},
  };
}

// UC between two of our devices: strangers can neither forge nor suppress the
// reports (transport/uc/uc_flight.h).
std::vector<Attack> UcAttacks() {
  using enum Who;
  const auto strangers = std::vector{kThird, kOtherPort};
  const std::vector<std::string_view> stranger = {"rx_drop_source",
                                                  "rx_drop_port"};
  // Any receive buffer, any number of missed packets, or a NAK.
  const auto answer = [](const Target& t, uint32_t psn) {
    Forged forged = {t.Header(kAcknowledge, psn, wire::Transport::kUc)};
    forged.headers.aeth = {static_cast<uint8_t>(t.random() % 128),
                           static_cast<uint32_t>(t.random()) & 0xffffff};
    return forged;
  };
  return {
      {"answers", strangers, stranger,
       [answer](const Target& t) {
         return answer(t, t.AnyPsn(t.victim.send_psn));
       }},
      {"a flood of answers", strangers, stranger,
       [answer](const Target& t) {
         return answer(t, t.AnyPsn(t.victim.send_psn));
       },
       true},
      {"packets that ask", strangers, stranger,
       [](const Target& t) {
         return Forged{t.Header(kSendOnly, t.AnyPsn(t.victim.expected_psn),
                                wire::Transport::kUc),
                       64, nullptr, true};
       }},
      // Some forged reports name a packet that asked for one, and are accepted
      // (UcLoopTest).
      {"answers",
       {kPeerPort},
       {"rx_drop_response"},
       [answer](const Target& t) {
         return answer(t, t.AnyPsn(t.victim.send_psn));
       }},
  };
}

struct Setting {
  bool ipv6 = false;
  bool uc = false;
};

class AttackTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (ipv6() && !rxe_user::HaveIpv6()) GTEST_SKIP() << "no IPv6 here";
    // Nothing of an earlier test remains.
    rxe_user::EnterFreshNetNamespace();
    home_ = *IpAddress::Parse(ipv6() ? "::1" : "127.0.0.1");
    const IpAddress third =
        *IpAddress::Parse(ipv6() ? "fd00:3::3" : "127.0.0.3");
    if (ipv6() && !AddLoopbackAddress(third)) {
      GTEST_SKIP() << "addresses cannot be added here";
    }
    raw_ = std::make_unique<RawSocket>(ipv6());
    if (!raw_->ok()) GTEST_SKIP() << "raw sockets are not allowed here";
    // A new address may not be usable at once.
    ASSERT_TRUE(Await([&] { return UserSocket(third).ok(); }));
    for (const IpAddress& address : {third, home_}) {
      senders_.push_back(std::make_unique<UserSocket>(address));
    }
    ASSERT_TRUE(senders_[0]->ok() && senders_[1]->ok());

    int link[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
    orders_ = Shared<VictimOrders>();
    for (int i = 0; i < 2; ++i) {
      victims_[i].status = Shared<VictimStatus>();
      victims_[i].status->round_began_ns = NowNs();
      victims_[i].pid =
          StartVictim(ipv6(), uc(), link[i], victims_[i].status, orders_);
      ASSERT_GT(victims_[i].pid, 0);
      victims_[i].evidence.at_ns = NowNs();
    }
    close(link[0]);
    close(link[1]);
    ASSERT_TRUE(Await([&] { return Rounds() >= kWarmUp; }));
    answers_ = std::make_unique<PacketsTo>(third);
    ASSERT_TRUE(answers_->ok());
    const int64_t begin = NowNs();
    const uint64_t before = Rounds();
    ASSERT_TRUE(Await([&] { return Rounds() >= before + kWarmUp; }));
    undisturbed_ = RoundsPerSecond(before, begin);
    for (int i = 0; i < 2; ++i) {
      Stat(victims_[i]);  // opens descriptors of its own
      descriptors_[i] = Descriptors(victims_[i].pid);
      memory_[i] = Memory(victims_[i].pid);
    }
  }

  void TearDown() override {
    for (Victim& victim : victims_) {
      if (victim.pid == 0) continue;
      kill(victim.pid, SIGKILL);
      waitpid(victim.pid, nullptr, 0);
    }
  }

  bool ipv6() const { return GetParam().ipv6; }
  bool uc() const { return GetParam().uc; }
  uint64_t Rounds() const {  // of the slower victim
    return std::min(victims_[0].status->rounds.load(),
                    victims_[1].status->rounds.load());
  }
  double RoundsPerSecond(uint64_t before, int64_t since) const {
    return static_cast<double>(Rounds() - before) * 1e9 /
           static_cast<double>(NowNs() - since);
  }
  bool Failed() {
    bool failed = false;
    for (const Victim& victim : victims_) {
      failed |= victim.status != nullptr && victim.status->failed;
    }
    if (failed) ExplainOnce();
    return failed;
  }
  // Prints the changes of the victims since the last attack began, once.
  void ExplainOnce() {
    if (std::exchange(explained_, true)) return;
    for (const Victim& victim : victims_) {
      if (victim.pid == 0) continue;
      const VictimStatus& status = *victim.status;
      ADD_FAILURE() << "process " << victim.pid << ": "
                    << (status.failed ? status.message : "goes on") << ", "
                    << status.rounds << " rounds, the last one began "
                    << (NowNs() - status.round_began_ns) / 1'000'000
                    << " ms ago, " << status.outstanding
                    << " requests outstanding"
                    << (status.stopped ? ", stopped" : "") << '\n'
                    << Explain(victim.evidence, Collect(victim.pid));
    }
  }
  bool Await(const std::function<bool()>& done) {
    const int64_t end = NowNs() + kTimeoutNs;
    while (!done()) {
      if (Failed()) return false;
      if (NowNs() > end) {
        ExplainOnce();
        return false;
      }
      Pause(1'000'000);
    }
    return true;
  }

  // The number of a process's descriptors, except those of io_urings: a lane
  // gets a second ring when it is polled for long.
  static size_t Descriptors(pid_t pid) {
    size_t others = 0;
    size_t of_rings = 0;
    for (const auto& entry : std::filesystem::directory_iterator(
             "/proc/" + std::to_string(pid) + "/fd")) {
      ++(rxe_user::IsOfRing(entry.path()) ? of_rings : others);
    }
    EXPECT_LE(of_rings, 3u);  // ring, bell and the bell's pipe
    return others;
  }
  static uint64_t Memory(pid_t pid) {  // resident bytes
    std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
    uint64_t size = 0;
    uint64_t resident = 0;
    file >> size >> resident;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }

  StatDevice Stat(const Victim& victim) {
    StatDevice found;
    std::string missing;
    // A busy victim may not answer at once.
    EXPECT_TRUE(Await([&] {
      const rxe_user_cli::Stat stat = rxe_user_cli::AskAll(victim.pid);
      missing = stat.missing;
      for (const rxe_user_cli::StatProcess& process : stat.processes) {
        for (const StatDevice& device : process.devices) {
          if (device.queue_pairs.empty()) continue;
          found = device;
          return true;
        }
      }
      return false;
    })) << missing;
    return found;
  }
  static uint64_t Sum(const StatDevice& device,
                      const std::vector<std::string_view>& counters) {
    uint64_t sum = 0;
    for (std::string_view counter : counters) {
      sum += CounterOf(device.device, counter);
    }
    return sum;
  }

  bool Send(Who who, const Victim& victim, const Bytes& packet) {
    if (who == Who::kPeerPort) {
      return raw_->Send(home_, static_cast<uint16_t>(victim.peer_port), home_,
                        packet);
    }
    return senders_[static_cast<int>(who)]->Send(home_, packet);
  }
  IpAddress AddressOf(Who who) const {
    return who == Who::kThird ? senders_[0]->address() : home_;
  }
  uint16_t PortOf(Who who, const Victim& victim) const {
    return who == Who::kPeerPort ? static_cast<uint16_t>(victim.peer_port)
                                 : senders_[static_cast<int>(who)]->port();
  }

  // Reads the state of the connections, for packets near it.
  void Locate(std::vector<StatDevice>* reports) {
    reports->clear();
    for (const Victim& victim : victims_) reports->push_back(Stat(victim));
    ASSERT_FALSE(HasFailure());
    for (int i = 0; i < 2; ++i) {
      const rxe_user::ReportRecord& own = (*reports)[i].queue_pairs[0];
      victims_[i].qpn = static_cast<uint32_t>(own.Number("qpn"));
      victims_[i].expected_psn =
          static_cast<uint32_t>(own.Number("expected_psn"));
      victims_[i].send_psn = static_cast<uint32_t>(own.Number("send_psn"));
      victims_[i].unacked_psn =
          static_cast<uint32_t>(own.Number("unacked_psn"));
      victims_[1 - i].peer_port =
          static_cast<uint32_t>(own.Number("source_port"));
    }
  }

  // Calls `send` with increasing numbers, one packet to a victim each, until
  // there were enough packets and enough rounds of the victims.
  void Attack(std::string_view name, bool flood,
              const std::vector<std::string_view>& counters,
              const std::function<bool(const Victim&, uint32_t)>& send) {
    SCOPED_TRACE(name);
    std::vector<StatDevice> before;
    Locate(&before);
    if (HasFatalFailure()) return;
    for (Victim& victim : victims_) victim.evidence = Collect(victim.pid);
    const int64_t begin = NowNs();
    const uint64_t rounds = Rounds();
    uint32_t sent = 0;
    const auto enough = [&] {
      return sent >= kPackets && Rounds() >= rounds + kRounds &&
             NowNs() - begin >= seconds * int64_t{1'000'000'000};
    };
    while (!enough()) {
      ASSERT_FALSE(Failed());
      if (NowNs() - begin >= kTimeoutNs + seconds * int64_t{1'000'000'000}) {
        ExplainOnce();
        FAIL() << Rounds() - rounds << " rounds in time";
      }
      for (int i = 0; i < kBatch; ++i, ++sent) {
        for (const Victim& victim : victims_) send(victim, sent);
      }
      if (!flood) Pause(kPauseNs);
    }
    const double share = RoundsPerSecond(rounds, begin) / undisturbed_;
    if (seconds > 0) {
      EXPECT_GE(share, kShare);
    }
    std::printf("%-42.*s %7u packets to each, %3.0f %% of the traffic\n",
                static_cast<int>(name.size()), name.data(), sent, 100 * share);
    for (int i = 0; i < 2; ++i) {
      CheckVictim(i, before[i], counters);
    }
    if (HasFailure()) ExplainOnce();
    EXPECT_EQ(answers_->Take(), 0u) << "an answer to a third address";
    for (const auto& sender : senders_) EXPECT_EQ(sender->Take(), 0u);
  }

  void CheckVictim(int i, const StatDevice& before,
                   const std::vector<std::string_view>& counters) {
    const StatDevice after = Stat(victims_[i]);
    ASSERT_FALSE(after.queue_pairs.empty());
    EXPECT_EQ(after.queue_pairs[0].Word("state"), "RTS");
    EXPECT_LE(after.queue_pairs[0].Number("in_flight"), kMaxInFlight);
    EXPECT_GT(Sum(after, counters), Sum(before, counters))
        << "not counted: " << counters[0];
    for (std::string_view counter :
         {"rcvd_fatal_nak", "send_fatal_nak", "retry_exceeded_err",
          "retry_rnr_exceeded_err", "req_cqe_error", "resp_cqe_error"}) {
      EXPECT_EQ(CounterOf(after.device, counter),
                CounterOf(before.device, counter))
          << counter;
    }
    EXPECT_TRUE(
        Await([&] { return Descriptors(victims_[i].pid) <= descriptors_[i]; }));
    if (kMemoryTells) {
      EXPECT_LT(Memory(victims_[i].pid), memory_[i] + kMoreMemory);
    }
  }

  // Every packet was taken for the peer's or dropped and counted.
  void CheckNothingUncounted() {
    orders_->stop = true;
    ASSERT_TRUE(Await([&] {
      return victims_[0].status->stopped && victims_[1].status->stopped;
    }));
    for (const Victim& victim : victims_) {
      const StatDevice device = Stat(victim);
      EXPECT_EQ(
          CounterOf(device.device, "port_rcv_packets"),
          Sum(device, {"rcvd_pkts", "rx_drop_too_short", "rx_drop_opcode",
                       "rx_drop_length", "rx_drop_header", "rx_drop_syndrome",
                       "rx_icrc_encapsulated", "rx_drop_unknown_qp",
                       "rx_drop_source", "rx_drop_port", "rx_drop_state",
                       "rx_drop_type", "rx_drop_pkey"}));
    }
  }

  void RunAll(const std::vector<struct Attack>& attacks) {
    for (const struct Attack& attack : attacks) {
      for (const Who who : attack.who) {
        constexpr std::string_view kFrom[] = {", third address", ", other port",
                                              ", peer's port"};
        Attack(std::string(attack.name) +
                   std::string(kFrom[static_cast<int>(who)]),
               attack.flood, attack.counters,
               [&](const Victim& victim, uint32_t number) {
                 return Send(who, victim, Packet(attack, who, victim, number));
               });
        if (HasFatalFailure()) return;
      }
    }
    CheckNothingUncounted();
  }

  Bytes Packet(const struct Attack& attack, Who who, const Victim& victim,
               uint32_t number) {
    const Forged forged = attack.forge({victim, random_, number});
    const uint16_t port = PortOf(who, victim);
    Bytes packet = BuildPacket(forged.headers, forged.payload, AddressOf(who),
                               port, home_);
    if (forged.uc_asks) {
      packet[wire::kBthAckReqOffset] = wire::kUcReportRequest;
      wire::IcrcFlow(AddressOf(who), home_, port, wire::kRoceUdpPort)
          .Store(packet, 0);
    }
    if (forged.damage) forged.damage(&packet);
    return packet;
  }

  IpAddress home_;
  std::unique_ptr<RawSocket> raw_;
  std::vector<std::unique_ptr<UserSocket>> senders_;  // indexed by Who
  std::unique_ptr<PacketsTo> answers_;
  VictimOrders* orders_ = nullptr;
  Victim victims_[2];
  size_t descriptors_[2] = {};
  uint64_t memory_[2] = {};
  double undisturbed_ = 0;  // rounds a second
  bool explained_ = false;
  std::mt19937 random_{1};
};

class RcAttackTest : public AttackTest {};
class UcAttackTest : public AttackTest {};

class ReplayTest : public AttackTest {};

TEST_P(RcAttackTest, ForgeriesChangeNothing) { RunAll(Attacks()); }

TEST_P(UcAttackTest, ForgeriesChangeNothing) { RunAll(UcAttacks()); }

// Replays packets that were captured on the wire, where all have to go by UDP.
TEST_P(ReplayTest, ReplaysChangeNothing) {
  const std::vector<Captured> captured = Capture(ipv6(), 2'000);
  ASSERT_GE(captured.size(), 2'000u);
  Attack("replays, other port", false, {"rx_drop_port"},
         [&](const Victim&, uint32_t number) {
           Bytes packet = captured[number % captured.size()].bytes;
           wire::IcrcFlow(home_, home_, senders_[1]->port(), wire::kRoceUdpPort)
               .Store(packet, 0);
           return senders_[1]->Send(home_, packet);
         });
  if (HasFatalFailure()) return;
  Attack("replays, third address", false, {"rx_drop_source"},
         [&](const Victim&, uint32_t number) {
           Bytes packet = captured[number % captured.size()].bytes;
           wire::IcrcFlow(senders_[0]->address(), home_, senders_[0]->port(),
                          wire::kRoceUdpPort)
               .Store(packet, 0);
           return senders_[0]->Send(home_, packet);
         });
  if (HasFatalFailure()) return;
  // Unchanged: late copies, as a network also makes them.
  Attack("replays, peer's port", false,
         {"duplicate_request", "rx_drop_psn", "rx_drop_response"},
         [&](const Victim&, uint32_t number) {
           const Captured& packet = captured[number % captured.size()];
           return raw_->Send(home_, packet.source_port, home_, packet.bytes,
                             packet.ip_id);
         });
  if (HasFatalFailure()) return;
  CheckNothingUncounted();
}

std::string NameOf(const testing::TestParamInfo<Setting>& info) {
  return info.param.ipv6 ? "Ipv6" : "Ipv4";
}

INSTANTIATE_TEST_SUITE_P(, RcAttackTest,
                         testing::Values(Setting{}, Setting{.ipv6 = true}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(, ReplayTest,
                         testing::Values(Setting{}, Setting{.ipv6 = true}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(, UcAttackTest,
                         testing::Values(Setting{.uc = true},
                                         Setting{.ipv6 = true, .uc = true}),
                         NameOf);

}  // namespace
}  // namespace attacks
