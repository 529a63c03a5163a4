// A user of a shared broker passes unexpected descriptors, or stops reading
// replies.
#include "rxe_user/testing/descriptors.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/hostile_fixture.h"
#include "rxe_user/broker/raw_client.h"
#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "wire/cm.h"

namespace rxe_user::broker {
namespace {

const LocalAddress kLoopback = {Ip("127.0.0.1"), 0};
constexpr uint64_t kService = 0x0000000001061c06;

size_t OpenFiles(pid_t pid) {
  return static_cast<size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/" + std::to_string(pid) +
                                          "/fd"),
      {}));
}

std::span<const uint8_t> BytesOf(const auto& message) {
  return {reinterpret_cast<const uint8_t*>(&message), sizeof(message)};
}

using DescriptorsTest = HostileTest;

// An empty record is no message. Its descriptors used to stay open.
TEST_F(DescriptorsTest, DescriptorsOfAnEmptyRecordAreClosed) {
  const pid_t broker = BrokerPid();
  const size_t before = OpenFiles(broker);
  Attack([]() -> std::string {
    for (int i = 0; i < 100; ++i) {
      RawClient client;
      if (!client.SendRaw({}, {0, 1})) return "not sent";
      if (!client.Closed()) return "not closed";
    }
    return "";
  });
  EndAttack();
  EXPECT_TRUE(Eventually([&] { return OpenFiles(broker) <= before; }))
      << OpenFiles(broker) << " open, " << before << " before";
  ExpectVictimUnharmed();
}

// The last close of a socket waits for its SO_LINGER. The broker used to wait,
// and so did all its clients.
class SlowCloseTest : public DescriptorsTest {
 protected:
  // `say` passes the descriptors to the broker in some message. When the broker
  // reads it, no other process has them open.
  void Pass(
      size_t count,
      const std::function<void(RawClient&, const std::vector<int>&)>& say) {
    const pid_t broker = BrokerPid();
    kill(broker, SIGSTOP);
    Attack([&]() -> std::string {
      static RawClient client;
      std::vector<UniqueFd> slow;
      std::vector<int> fds;
      for (size_t i = 0; i < count; ++i) {
        slow.push_back(SlowToClose());
        if (!slow.back().valid()) return "no connection";
        fds.push_back(slow.back().get());
      }
      say(client, fds);
      return "";
    });
    kill(broker, SIGCONT);
    // A new process is served, and the end of one is noticed.
    Peer other({}, [] { Become(kAnother); });
    EXPECT_EQ(other.Start(), "");
    other.Kill();
    ExpectVictimUnharmed();
    EndAttack();
  }
};

TEST_F(SlowCloseTest, WithAHello) {
  Pass(2, [](RawClient& client, const std::vector<int>& fds) {
    Hello hello;
    hello.slot = 9;
    client.SendRaw(BytesOf(hello), fds);
  });
}

TEST_F(SlowCloseTest, WithAMessageThatHasNone) {
  Pass(2, [](RawClient& client, const std::vector<int>& fds) {
    client.SendRaw(BytesOf(Hello()), {});
    client.SendRaw(BytesOf(Open{.address = kLoopback}), fds);
  });
}

TEST_F(SlowCloseTest, MoreThanAMessageMayContain) {
  Pass(8, [](RawClient& client, const std::vector<int>& fds) {
    client.SendRaw(BytesOf(Hello()), fds);
  });
}

// The broker stops reading at the message for which it closes the connection.
TEST_F(SlowCloseTest, InAMessageThatIsNeverRead) {
  Pass(2, [](RawClient& client, const std::vector<int>& fds) {
    const std::array<uint8_t, 3> garbage = {};
    client.SendRaw(garbage, {});
    client.SendRaw(garbage, fds);
  });
}

// The broker used to be woken again and again to write to a client that had
// stopped reading.
TEST_F(DescriptorsTest, AClientThatStopsReadingCostsNoCpuTime) {
  Attack([]() -> std::string {
    static RawClient deaf;
    if (deaf.Greet() == 0) return "no slot";
    if (deaf.ReserveService(
            1, {.service_id = kService, .local = kLoopback, .listening = 1}) !=
        Refusal::kNone) {
      return "no service";
    }
    deaf.StopReading();
    wire::CmReq req;
    req.local_comm_id = 7;
    req.service_id = kService;
    transport::cm::Mad mad;
    wire::EmitCm({.id = 7}, req, mad);
    std::array<uint8_t, transport::cm::kMadPacketSize> packet;
    transport::cm::EmitMadPacket({.source = kLoopback.address,
                                  .destination = kLoopback.address,
                                  .source_port = 0xc000},
                                 0, mad, packet);
    StrayHead head;
    std::memcpy(head.source, kLoopback.address.bytes.data(), 16);
    std::memcpy(head.destination, kLoopback.address.bytes.data(), 16);
    head.source_port = 0xc000;
    head.length = static_cast<uint32_t>(packet.size());
    RawClient other;
    if (other.Greet() == 0) return "no second slot";
    other.SendStray(head, packet);
    return other.UnreserveService(1) ? "" : "not heard";
  });
  const pid_t broker = BrokerPid();
  const long before = CpuTicks(broker);
  const int64_t start = MonotonicMs();
  while (MonotonicMs() < start + 1000) {
    ExpectVictimUnharmed();
    const timespec pause{0, 20'000'000};
    nanosleep(&pause, nullptr);
  }
  const double used = static_cast<double>(CpuTicks(broker) - before) /
                      static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_LT(used, 0.25) << "seconds of computing in one";
  EndAttack();
}

}  // namespace
}  // namespace rxe_user::broker
