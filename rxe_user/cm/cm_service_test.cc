// Two services on one host, as if in two processes, with the real broker.
#include "rxe_user/cm/cm_service.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <semaphore>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "rxe_user/broker/test_peer.h"
#include "rxe_user/cm/test_end.h"
#include "rxe_user/observe/report_text.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/testing/net_namespace.h"

namespace rxe_user {
namespace {

using transport::cm::CmId;
using transport::cm::Event;
using transport::cm::EventKind;
using transport::cm::State;

const LocalAddress kLoopback = Local("127.0.0.1");
const LocalAddress kAllV4 = Local("::ffff:0.0.0.0");
const LocalAddress kAll = Local("::");

class CmServiceTest : public broker::BrokerTest {
 protected:
  void TearDown() override {
    a_.Close();
    b_.Close();
    BrokerTest::TearDown();
  }

  // Establishes and ends a connection between two ends.
  void ConnectAndDisconnect(TestEnd& a, TestEnd& b, const LocalAddress& from,
                            const LocalAddress& to) {
    const CmId active = a.Connect(from, to, 0x11);
    const CmId passive = b.Expect(EventKind::kRequest);
    EXPECT_EQ(b.last().local, to.address);
    EXPECT_EQ(b.last().remote, from.address);
    EXPECT_EQ(b.LastMad().req().private_data[0], 0x11);
    EXPECT_EQ(b.Accept(passive, 0x22), 0);
    EXPECT_EQ(a.Expect(EventKind::kReply), active);
    EXPECT_EQ(a.LastMad().rep().local_qpn, 0x22u);
    EXPECT_EQ(a->Establish(active, {}), 0);
    EXPECT_EQ(b.Expect(EventKind::kEstablished), passive);
    EXPECT_EQ(a->state(active), State::kEstablished);
    EXPECT_EQ(b->state(passive), State::kEstablished);
    EXPECT_EQ(b->Disconnect(passive, {}), 0);
    EXPECT_EQ(a.Expect(EventKind::kDisconnected), active);
    EXPECT_EQ(a->Disconnect(active, {}), 0);
    EXPECT_EQ(b.Expect(EventKind::kDisconnected), passive);
    EXPECT_EQ(a.Expect(EventKind::kTimeWaitExit), active);
    EXPECT_EQ(b.Expect(EventKind::kTimeWaitExit), passive);
    EXPECT_EQ(a->Destroy(active), 0);
    EXPECT_EQ(b->Destroy(passive), 0);
    EXPECT_EQ(a->size(), 0u);
    EXPECT_EQ(b->size(), 0u);
  }

  TestEnd a_{1};
  TestEnd b_{2};
};

TEST_F(CmServiceTest, ConnectsAndDisconnectsOverIpv4AndIpv6) {
  for (const char* to : {"127.0.0.1", "::1"}) {
    if (std::string(to) == "::1" && !HaveIpv6()) continue;
    SCOPED_TRACE(to);
    ServiceHandle handle = 0;
    ASSERT_EQ(b_.Listen(Local(to), kTestService, &handle), 0);
    ConnectAndDisconnect(a_, b_, Local(to), Local(to));
    EXPECT_EQ(b_.last().listener, handle);
    EXPECT_EQ(b_->Release(handle), 0);
  }
}

// Loses the first received message of each kind. Of the messages that are sent,
// holds the first of each kind for 5 ms, and duplicates the second.
class SomeFaults final : public CmFaults {
 public:
  Fate Decide(bool sent, wire::CmAttribute attribute,
              const wire::IpAddress& peer) override {
    EXPECT_EQ(peer, Local("127.0.0.1").address);
    const std::lock_guard lock(mutex_);
    const int number = ++seen_[{sent, attribute}];
    if (!sent) return {.copies = number == 1 ? 0 : 1};
    return {.copies = number == 2 ? 2 : 1,
            .delay = number == 1 ? 5 * transport::kMillisecond : 0};
  }
  int seen(bool sent, wire::CmAttribute attribute) {
    const std::lock_guard lock(mutex_);
    return seen_[{sent, attribute}];
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<bool, wire::CmAttribute>, int> seen_;
};

TEST_F(CmServiceTest, FaultsOnCommand) {
  SomeFaults faults;
  TestEnd c(3, {}, &faults);
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  ConnectAndDisconnect(c, b_, kLoopback, kLoopback);
  // The first REP and the first DREQ were lost, and arrived again.
  EXPECT_GE(faults.seen(false, wire::CmAttribute::kRep), 2);
  EXPECT_GE(faults.seen(false, wire::CmAttribute::kDreq), 2);
  c.Close();
}

// Delays the first REQ. When the REQ is due, the link is down.
class LinkDown final : public CmFaults {
 public:
  Fate Decide(bool sent, wire::CmAttribute attribute,
              const wire::IpAddress& /*peer*/) override {
    if (!sent || attribute != wire::CmAttribute::kReq || requests++ > 0) {
      return {};
    }
    return {.delay = transport::kMillisecond};
  }
  bool LinkIsDown() override {
    ++lost;
    return true;
  }

  std::atomic<int> requests = 0;
  std::atomic<int> lost = 0;
};

TEST_F(CmServiceTest, HeldMessagesAreLostWhileTheLinkIsDown) {
  LinkDown faults;
  TestEnd c(3, {}, &faults);
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  ConnectAndDisconnect(c, b_, kLoopback, kLoopback);
  EXPECT_EQ(faults.lost, 1);
  EXPECT_GE(faults.requests, 2);
  c.Close();
}

// `rxe-user stat` asks this process, whose two services answer, and the broker.
TEST_F(CmServiceTest, ReportsMessagesByTheKernelsNames) {
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  ConnectAndDisconnect(a_, b_, kLoopback, kLoopback);
  const auto names = ListStatSockets();
  ASSERT_TRUE(names.ok());
  uint64_t sent = 0, received = 0, handed_on = 0, managers = 0;
  for (const std::string& name : *names) {
    const auto reply = AskForReport(name);
    ASSERT_TRUE(reply.ok()) << reply.status();
    const auto records = ParseReport(reply->text);
    ASSERT_TRUE(records.has_value());
    for (const ReportRecord& record : *records) {
      if (record.kind != "connection_manager") continue;
      ++managers;
      for (const auto& [counter, value] : record.counters) {
        if (counter == "cm_tx_msgs_req") sent += value;
        if (counter == "cm_rx_msgs_req") received += value;
        if (counter == "cm_broker_handed_on") handed_on += value;
      }
    }
  }
  EXPECT_EQ(managers, 3u);
  // From REQ to DREP, except the RTU, which is steered past the broker.
  EXPECT_EQ(handed_on, 4u);
  EXPECT_EQ(sent, 1u);
  EXPECT_EQ(received, 1u);
}

TEST_F(CmServiceTest, ConnectsToItself) {
  ASSERT_EQ(a_.Listen(kLoopback), 0);
  const CmId active = a_.Connect(kLoopback, kLoopback, 0x11);
  const CmId passive = a_.Expect(EventKind::kRequest);
  EXPECT_EQ(a_.Accept(passive, 0x22), 0);
  EXPECT_EQ(a_.Expect(EventKind::kReply), active);
  EXPECT_EQ(a_->Establish(active, {}), 0);
  EXPECT_EQ(a_.Expect(EventKind::kEstablished), passive);
}

TEST_F(CmServiceTest, WildcardsListenOnEveryAddress) {
  ASSERT_EQ(b_.Listen(kAll), 0);
  ConnectAndDisconnect(a_, b_, kLoopback, kLoopback);
  if (HaveIpv6()) ConnectAndDisconnect(a_, b_, Local("::1"), Local("::1"));
}

// An address that appears later is served as well.
TEST_F(CmServiceTest, WildcardsListenOnLaterAddresses) {
  if (!Root()) GTEST_SKIP() << "needs a network namespace";
  ASSERT_EQ(b_.Listen(kAllV4), 0);
  ASSERT_TRUE(SetLoopbackAddress("192.0.2.77", true));
  const LocalAddress late = Local("192.0.2.77");
  // The REQ is retransmitted until the address is served.
  ConnectAndDisconnect(a_, b_, late, late);
}

bool Ip(const std::string& arguments) {
  return std::system(("ip " + arguments).c_str()) == 0;
}

// A link-local address follows from the hardware address, so a recreated
// interface has the same one.
TEST_F(CmServiceTest, ARecreatedInterfaceIsServed) {
  if (!Root()) GTEST_SKIP() << "needs a network namespace";
  for (uint32_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    if (!Ip("link add cmll0 type veth peer name cmll1")) {
      GTEST_SKIP() << "no veth here";
    }
    ASSERT_TRUE(Ip("link set cmll1 up"));
    ASSERT_TRUE(Ip("link set cmll0 up"));
    ASSERT_TRUE(Ip("address add fe80::66/64 dev cmll0 nodad"));
    const LocalAddress local = {*wire::IpAddress::Parse("fe80::66"),
                                if_nametoindex("cmll0")};
    ServiceHandle handle = 0;
    ASSERT_EQ(a_->OpenAddress(local), 0);
    ASSERT_EQ(b_->OpenAddress(local), 0);
    ASSERT_EQ(b_.Listen(local, kTestService, &handle), 0);
    ConnectAndDisconnect(a_, b_, local, local);
    EXPECT_EQ(b_->Release(handle), 0);
    ASSERT_TRUE(Ip("link delete cmll0"));
  }
}

size_t OpenDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// The addresses of a container, for example, may change. Addresses in use stay
// open: here, one of a service and one of a connection.
TEST_F(CmServiceTest, UnusedAddressesAreClosed) {
  if (!Root()) GTEST_SKIP() << "needs a network namespace";
  constexpr int kMany = 150;
  const auto address = [](int i) { return "10.78.0." + std::to_string(1 + i); };
  const auto set = [](const char* command, const std::string& address) {
    return Ip(std::string("address ") + command + " " + address + "/32 dev lo");
  };
  const LocalAddress kept = Local("10.78.1.1");
  ASSERT_TRUE(set("add", "10.78.1.1"));
  ASSERT_EQ(b_.Listen(kept), 0);
  const CmId active = a_.Connect(kept, kept, 0x11);
  const CmId passive = b_.Expect(EventKind::kRequest);
  EXPECT_EQ(b_.Accept(passive, 0x22), 0);
  EXPECT_EQ(a_.Expect(EventKind::kReply), active);
  EXPECT_EQ(a_->Establish(active, {}), 0);
  EXPECT_EQ(b_.Expect(EventKind::kEstablished), passive);
  ASSERT_TRUE(set("delete", "10.78.1.1"));
  size_t after_some = 0;
  for (int i = 0; i < kMany; ++i) {
    ASSERT_TRUE(set("add", address(i)));
    ASSERT_EQ(a_->OpenAddress(Local(address(i))), 0) << i;
    ASSERT_EQ(b_->OpenAddress(Local(address(i))), 0) << i;
    ASSERT_TRUE(set("delete", address(i)));
    if (i == kMany / 2) after_some = OpenDescriptors();
  }
  EXPECT_TRUE(broker::Eventually([&] {
    return OpenDescriptors() <= after_some;
  })) << OpenDescriptors()
      << " are open, " << after_some << " were";
  // This address was closed.
  ASSERT_TRUE(set("add", address(0)));
  const LocalAddress back = Local(address(0));
  ServiceHandle handle = 0;
  ASSERT_EQ(b_.Listen(back, kTestService + 1, &handle), 0);
  const CmId again = a_.Connect(back, back, 0x33, kTestService + 1);
  EXPECT_EQ(b_.Expect(EventKind::kRequest), b_.last().id);
  EXPECT_EQ(b_->Reject(b_.last().id, {}), 0);
  EXPECT_EQ(a_.Expect(EventKind::kRejected), again);
  // This address stayed open.
  ASSERT_TRUE(set("add", "10.78.1.1"));
  EXPECT_EQ(a_->Disconnect(active, {}), 0);
  EXPECT_EQ(b_.Expect(EventKind::kDisconnected), passive);
  ASSERT_TRUE(set("delete", "10.78.1.1"));
  ASSERT_TRUE(set("delete", address(0)));
}

// The listener's host reports by ICMP that port 4791 is not open yet.
TEST_F(CmServiceTest, AnUndeliverableRequestIsSoonRetried) {
  if (!Root()) GTEST_SKIP() << "needs a network namespace";
  ASSERT_TRUE(SetLoopbackAddress("192.0.2.78", true));
  const LocalAddress late = Local("192.0.2.78");
  const CmId id = a_.Connect(kLoopback, late, 0x11);
  EXPECT_TRUE(
      broker::Eventually([&] { return a_->counters().undelivered > 0; }));
  ASSERT_EQ(b_.Listen(late), 0);
  const CmId request = b_.Expect(EventKind::kRequest);
  EXPECT_EQ(b_.Accept(request, 0x22), 0);
  EXPECT_EQ(a_.Expect(EventKind::kReply), id);
}

TEST_F(CmServiceTest, RequestsAreRejectedWithAndWithoutListener) {
  ServiceHandle handle = 0;
  ASSERT_EQ(b_.Listen(kLoopback, kTestService, &handle), 0);
  const CmId first = a_.Connect(kLoopback, kLoopback, 0x11);
  const CmId request = b_.Expect(EventKind::kRequest);
  const uint8_t data[] = {1, 2, 3};
  EXPECT_EQ(b_->Reject(request, {.reason = wire::CmRejectReason::kConsumer,
                                 .additional_info = {},
                                 .private_data = data}),
            0);
  EXPECT_EQ(a_.Expect(EventKind::kRejected), first);
  EXPECT_EQ(a_.LastMad().rej().reason, wire::CmRejectReason::kConsumer);
  EXPECT_EQ(a_.LastMad().rej().private_data[2], 3);
  EXPECT_EQ(a_->Destroy(first), 0);
  EXPECT_EQ(b_->Destroy(request), 0);

  // If the service ID is unknown, the broker rejects the request.
  const CmId second = a_.Connect(kLoopback, kLoopback, 0x11, kTestService + 1);
  EXPECT_EQ(a_.Expect(EventKind::kRejected), second);
  EXPECT_EQ(a_.LastMad().rej().reason, wire::CmRejectReason::kInvalidServiceId);
  // The same if the service ID is reserved without a listener.
  ServiceHandle reserved = 0;
  ASSERT_EQ(b_->Reserve({.service_id = kTestService + 1, .local = kLoopback},
                        &reserved, nullptr),
            0);
  const CmId third = a_.Connect(kLoopback, kLoopback, 0x12, kTestService + 1);
  EXPECT_EQ(a_.Expect(EventKind::kRejected), third);
  // The same once the listener is gone.
  EXPECT_EQ(b_->Release(handle), 0);
  EXPECT_EQ(b_->Release(handle), ENOENT);
  const CmId fourth = a_.Connect(kLoopback, kLoopback, 0x13);
  EXPECT_EQ(a_.Expect(EventKind::kRejected), fourth);
  EXPECT_TRUE(b_.recorder()->empty());
}

TEST_F(CmServiceTest, AServiceIdBelongsToOneProcess) {
  ServiceHandle handle = 0;
  ASSERT_EQ(a_.Listen(kLoopback, kTestService, &handle), 0);
  EXPECT_EQ(b_.Listen(kLoopback), EADDRINUSE);
  EXPECT_EQ(b_.Listen(kAllV4), EADDRINUSE);
  EXPECT_EQ(a_.Listen(kAll), EADDRINUSE);
  EXPECT_EQ(a_->Listen(handle, 1, a_.recorder()), EINVAL);
  EXPECT_EQ(a_->Listen(handle + 1000, 1, a_.recorder()), ENOENT);
  EXPECT_EQ(b_.Listen(Local("198.51.100.77")), EADDRNOTAVAIL);
  EXPECT_EQ(a_->Release(handle), 0);
  EXPECT_EQ(b_.Listen(kAllV4), 0);
  EXPECT_EQ(a_.Listen(kLoopback), EADDRINUSE);
  // The end of a process frees its reservations.
  b_.Close();
  EXPECT_TRUE(broker::Eventually([&] { return a_.Listen(kLoopback) == 0; }));
}

TEST_F(CmServiceTest, ServiceIdsWithReuseAreShared) {
  const ServiceOptions options = {
      .service_id = kTestService, .local = kLoopback, .reuse = true};
  ServiceHandle a = 0, b = 0;
  ASSERT_EQ(a_->Reserve(options, &a, nullptr), 0);
  ASSERT_EQ(b_->Reserve(options, &b, nullptr), 0);
  ASSERT_EQ(b_->Listen(b, 1, b_.recorder()), 0);
  EXPECT_EQ(a_->Listen(a, 1, a_.recorder()), EADDRINUSE);
  ASSERT_EQ(b_->Release(b), 0);
  EXPECT_EQ(a_->Listen(a, 1, a_.recorder()), 0);
}

TEST_F(CmServiceTest, FreePortsAreChosen) {
  std::set<uint64_t> chosen;
  for (int i = 0; i < 20; ++i) {
    for (TestEnd* end : {&a_, &b_}) {
      ServiceHandle handle = 0;
      uint64_t service_id = 0;
      ASSERT_EQ((*end)->Reserve({.service_id = 0x0000000001060000,
                                 .local = kLoopback,
                                 .reuse = i % 2 == 1,
                                 .choose_port = true},
                                &handle, &service_id),
                0);
      EXPECT_EQ(service_id >> 16, 0x106u);
      EXPECT_GE(service_id & 0xffff, 49152u);
      EXPECT_TRUE(chosen.insert(service_id).second);
    }
  }
}

// Grants the first reservation, and no later one.
class OneReservationSlot final : public Slot {
 public:
  explicit OneReservationSlot(std::set<uint32_t>* reserved)
      : reserved_(*reserved) {}
  uint16_t number() const override { return 1; }
  absl::StatusOr<int> OpenAddress(const LocalAddress&) override {
    return absl::NotFoundError("");
  }
  int fd() const override { return -1; }
  void OnReadable(const std::function<void(const Stray&)>&) override {}
  void Forward(const Stray&) override {}
  absl::Status Reserve(uint32_t token, const Service&) override {
    if (++asked_ > 1) return absl::ResourceExhaustedError("");
    reserved_.insert(token);
    return absl::OkStatus();
  }
  void Unreserve(uint32_t token) override { reserved_.erase(token); }

 private:
  std::set<uint32_t>& reserved_;
  int asked_ = 0;
};

// A chosen port is first reserved alone and then shared.
TEST_F(CmServiceTest, APortThatCannotBeSharedIsNotKept) {
  std::set<uint32_t> reserved;
  CmServiceImpl service(
      [&]() -> absl::StatusOr<std::unique_ptr<Slot>> {
        return std::make_unique<OneReservationSlot>(&reserved);
      },
      {});
  ServiceHandle handle = 0;
  EXPECT_EQ(service.Reserve({.service_id = 0x0000000001060000,
                             .local = kAllV4,
                             .reuse = true,
                             .choose_port = true},
                            &handle, nullptr),
            ENOBUFS);
  EXPECT_TRUE(reserved.empty());
}

TEST_F(CmServiceTest, ServiceIdsAreResolved) {
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  transport::cm::ResolveOptions options;
  options.local = options.remote = kLoopback.address;
  options.timeout = transport::kSecond;
  options.req.service_id = kTestService;
  CmId id = 0;
  ASSERT_EQ(a_->Resolve(options, a_.recorder(), &id), 0);
  const CmId request = b_.Expect(EventKind::kServiceRequest);
  EXPECT_EQ(b_->AnswerService(request, {.qpn = 0x123, .qkey = 0x456}), 0);
  EXPECT_EQ(a_.Expect(EventKind::kServiceReply), id);
  EXPECT_EQ(a_.LastMad().sidr_rep().qpn, 0x123u);
  options.req.service_id = kTestService + 1;
  ASSERT_EQ(a_->Resolve(options, a_.recorder(), &id), 0);
  EXPECT_EQ(a_.Expect(EventKind::kServiceReply), id);
  EXPECT_EQ(a_.LastMad().sidr_rep().status,
            wire::CmSidrStatus::kInvalidServiceId);
}

TEST_F(CmServiceTest, InvalidCallsAreRefused) {
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  EXPECT_EQ(a_->Destroy(0x1234), ENOENT);
  EXPECT_EQ(a_->Accept(1, {}), ENOENT);
  EXPECT_EQ(a_->state(1), std::nullopt);
  const CmId id = a_.Connect(kLoopback, kLoopback, 0x11);
  EXPECT_EQ(a_->Establish(id, {}), EINVAL);
  EXPECT_EQ(a_->Disconnect(id, {}), EINVAL);
  transport::cm::ConnectOptions again;
  again.local = again.remote = kLoopback.address;
  again.req.local_ca_guid = 1;  // a_'s device
  again.req.local_qpn = 0x11;
  CmId other = 0;
  EXPECT_EQ(a_->Connect(again, a_.recorder(), &other), EBUSY);
  again.local = Local("198.51.100.77").address;
  EXPECT_EQ(a_->Connect(again, a_.recorder(), &other), EADDRNOTAVAIL);
  again.local = {};
  EXPECT_EQ(a_->Connect(again, a_.recorder(), &other), EINVAL);
  EXPECT_EQ(a_->SetHandler(id + 1, a_.recorder()), ENOENT);
  EXPECT_EQ(a_->Destroy(id), 0);
  EXPECT_EQ(a_->Destroy(id), ENOENT);
}

// A handler that blocks the control thread until it is released.
class Gate final : public CmEventHandler {
 public:
  void OnCmEvent(const Event& event) override {
    id = event.id;
    entered.release();
    left.acquire();
    done = true;
  }
  CmId id = 0;
  std::binary_semaphore entered{0};
  std::binary_semaphore left{0};
  std::atomic<bool> done = false;
};

TEST_F(CmServiceTest, DestroyAndReleaseWaitForTheHandler) {
  const auto gate = std::make_shared<Gate>();
  ServiceHandle handle = 0;
  ASSERT_EQ(b_->Reserve({.service_id = kTestService, .local = kLoopback},
                        &handle, nullptr),
            0);
  ASSERT_EQ(b_->Listen(handle, 8, gate), 0);
  a_.Connect(kLoopback, kLoopback, 0x11);
  gate->entered.acquire();
  // The call returns only after the handler.
  const auto waits_for_handler = [&](const std::function<int()>& call) {
    std::thread letting_go([&] { gate->left.release(); });
    EXPECT_EQ(call(), 0);
    EXPECT_TRUE(gate->done);
    letting_go.join();
  };
  waits_for_handler([&] { return b_->Destroy(gate->id); });
  EXPECT_EQ(a_.Expect(EventKind::kRejected) != 0, true);
  gate->done = false;
  a_.Connect(kLoopback, kLoopback, 0x12);
  gate->entered.acquire();
  waits_for_handler([&] { return b_->Release(handle); });
  // Otherwise the gate would get the end of `a_`'s connection, and block.
  EXPECT_EQ(b_->Destroy(gate->id), 0);
}

// The RTU and later messages arrive on different paths.
TEST_F(CmServiceTest, IsEstablishedBeforeItIsDisconnected) {
  constexpr uint64_t kGated = kTestService + 1;
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  const auto gate = std::make_shared<Gate>();
  ServiceHandle gated = 0;
  ASSERT_EQ(
      b_->Reserve({.service_id = kGated, .local = kLoopback}, &gated, nullptr),
      0);
  ASSERT_EQ(b_->Listen(gated, 1, gate), 0);
  const CmId active = a_.Connect(kLoopback, kLoopback, 0x11);
  const CmId passive = b_.Expect(EventKind::kRequest);
  ASSERT_EQ(b_.Accept(passive, 0x22), 0);
  ASSERT_EQ(a_.Expect(EventKind::kReply), active);

  a_.Connect(kLoopback, kLoopback, 0x12, kGated);
  gate->entered.acquire();
  // Returns when the broker has forwarded all earlier messages.
  const auto await_broker = [&](uint64_t service_id) {
    ServiceHandle other = 0;
    return a_->Reserve({.service_id = service_id, .local = kLoopback}, &other,
                       nullptr);
  };
  // Makes the connection to the broker readable before the socket.
  a_.Connect(kLoopback, kLoopback, 0x13);
  ASSERT_EQ(await_broker(kGated + 1), 0);
  ASSERT_EQ(a_->Establish(active, {}), 0);
  ASSERT_EQ(a_->Disconnect(active, {}), 0);
  ASSERT_EQ(await_broker(kGated + 2), 0);
  gate->left.release();

  std::vector<EventKind> of_passive;
  while (of_passive.size() < 2) {
    const auto event = b_.recorder()->Next();
    ASSERT_TRUE(event.has_value());
    if (event->id == passive) of_passive.push_back(event->kind);
    if (event->kind == EventKind::kDisconnected) break;
  }
  EXPECT_EQ(of_passive, (std::vector<EventKind>{EventKind::kEstablished,
                                                EventKind::kDisconnected}));
  // Otherwise the gate would get the end of `a_`'s connection, and block.
  EXPECT_EQ(b_->Destroy(gate->id), 0);
}

// A handler that destroys the id of its event.
class Destroyer final : public CmEventHandler {
 public:
  explicit Destroyer(CmService* service) : service_(service) {}
  void OnCmEvent(const Event& event) override {
    result = service_->Destroy(event.id);
    called.release();
  }
  int result = -1;
  std::binary_semaphore called{0};

 private:
  CmService* const service_;
};

TEST_F(CmServiceTest, HandlersMayDestroy) {
  const auto destroyer = std::make_shared<Destroyer>(&*b_.operator->());
  ServiceHandle handle = 0;
  ASSERT_EQ(b_->Reserve({.service_id = kTestService, .local = kLoopback},
                        &handle, nullptr),
            0);
  ASSERT_EQ(b_->Listen(handle, 8, destroyer), 0);
  a_.Connect(kLoopback, kLoopback, 0x11);
  destroyer->called.acquire();
  EXPECT_EQ(destroyer->result, 0);
  a_.Expect(EventKind::kRejected);
}

// At exit, requests do not wait until the peer has answered earlier ones.
TEST_F(CmServiceTest, AnExitEndsAllConnectionsToAPeer) {
  transport::cm::Config config;
  config.max_unanswered = 1;
  config.unanswered_hold = 600 * transport::kSecond;
  TestEnd c(3, config);
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  for (const uint32_t qpn : {0x11, 0x12, 0x13}) {
    const CmId active = c.Connect(kLoopback, kLoopback, qpn);
    EXPECT_EQ(b_.Accept(b_.Expect(EventKind::kRequest), qpn + 0x10), 0);
    EXPECT_EQ(c.Expect(EventKind::kReply), active);
    EXPECT_EQ(c->Establish(active, {}), 0);
    b_.Expect(EventKind::kEstablished);
  }
  c->DestroyAll();
  ASSERT_EQ(c->counters().tx_msgs.Of(wire::CmAttribute::kDreq), 3u);
  for (int i = 0; i < 3; ++i) b_.Expect(EventKind::kDisconnected);
}

TEST_F(CmServiceTest, AChildOfForkStartsWithANewService) {
  const std::shared_ptr<CmService> ours = CmService::Get(Slot::Acquire);
  EXPECT_EQ(CmService::Get(Slot::Acquire), ours);
  ASSERT_EQ(ours->OpenAddress(kLoopback), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (ours->OpenAddress(kLoopback) != ENODEV) _exit(1);
    if (ours->Destroy(1) != ENODEV) _exit(2);
    ServiceHandle handle = 0;
    if (ours->Reserve({.local = kLoopback}, &handle, nullptr) != ENODEV) {
      _exit(5);
    }
    const std::shared_ptr<CmService> its = CmService::Get(Slot::Acquire);
    if (its == ours) _exit(3);
#ifndef __SANITIZE_THREAD__  // which allows a child no threads
    if (its->OpenAddress(kLoopback) != 0) _exit(4);
#endif
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ours->OpenAddress(kLoopback), 0);
}

}  // namespace
}  // namespace rxe_user
