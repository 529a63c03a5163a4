#include "rxe_user/observe/explain.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <set>

#include "gtest/gtest.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/observe/peer_finding.h"
#include "rxe_user/observe/status_text.h"

namespace rxe_user {
namespace {

using transport::RareEventKind;
using transport::Reason;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

transport::QpReport Qp(uint32_t qpn, uint32_t peer) {
  transport::QpReport qp;
  qp.qpn = qpn;
  qp.dest_qpn = peer;
  qp.path_mtu = 1024;
  qp.state = transport::QpState::kRts;
  qp.source = qp.destination = *wire::IpAddress::Parse("127.0.0.1");
  return qp;
}

// A process with one queue pair, in slot 5 or 6.
Witness Process(pid_t pid, const transport::QpReport& qp,
                std::vector<RecordedEvent> events = {},
                std::vector<FaultRuleStatus> rules = {}) {
  LaneReport lane;
  lane.slot = SlotOf(qp.qpn);
  lane.queue_pairs = {qp};
  lane.events = std::move(events);
  DeviceReport device;
  device.name = "rxeu0";
  device.netdev = "lo";
  device.now = 10 * transport::kSecond;
  device.lanes = {lane};
  device.fault_rules = std::move(rules);
  return WitnessOf(pid, ReportText(device));
}

transport::QpReport Failed(Reason reason) {
  transport::QpReport qp = Qp(0x50001, 0x60001);
  qp.state = transport::QpState::kErr;
  qp.first_error = reason;
  return qp;
}

TEST(Explain, EveryReasonHasAStatusAndNames) {
  std::set<std::string_view> names;
  uint32_t last = 0;
  for (const transport::ReasonText& reason : transport::kReasons) {
    const auto number = static_cast<uint32_t>(reason.reason);
    EXPECT_TRUE(number == 0 || number > last) << "in order: " << number;
    last = number;
    EXPECT_TRUE(names.insert(reason.name).second) << reason.name;
    EXPECT_NE(FindStatus(StatusOf(reason.reason)), nullptr);
    EXPECT_EQ(StatusOf(reason.reason) == 0, number == 0);
    EXPECT_FALSE(reason.what.empty() || reason.advice.empty() ||
                 reason.spec.empty());
    EXPECT_LT(number, 100u) << "distinct from what mlx5 reports (0x81 ...)";
  }
  EXPECT_EQ(transport::FindReason(99), nullptr);
}

TEST(Explain, AllStatusesOfTheVerbs) {
  for (uint32_t status = 0; status <= 23; ++status) {
    EXPECT_NE(FindStatus(status), nullptr) << status;
  }
  EXPECT_EQ(FindStatus(24), nullptr);
  EXPECT_EQ(FindSyndrome(0x81)->status, 12u);
  EXPECT_EQ(FindSyndrome(249)->status, 5u);
}

// The same silence, with different knowledge in the host's processes.
TEST(Explain, TellsFourSilencesApart) {
  const Witness own = Process(100, Failed(Reason::kNeverAnswered));
  const auto explain = [&](const std::vector<Witness>& others) {
    return ExplainQueuePair(own, 0x50001, others);
  };
  const Witness alive = Process(200, Qp(0x60001, 0x50001));
  EXPECT_TRUE(Has(explain({alive}), "packets are lost on the way"));
  const Witness other_peer = Process(200, Qp(0x60001, 0x50002));
  EXPECT_TRUE(
      Has(explain({other_peer}), "is connected to queue pair 0x050002"));
  transport::QpReport early = Qp(0x60001, 0x50001);
  early.state = transport::QpState::kInit;
  EXPECT_TRUE(Has(explain({Process(200, early)}), "is in INIT"));
  const Witness another = Process(200, Qp(0x60009, 0x50009));
  EXPECT_TRUE(Has(explain({another}), "so the number is wrong"));
  RecordedEvent gone;
  gone.event = {.time = 8 * transport::kSecond,
                .qpn = 0x60001,
                .kind = RareEventKind::kDestroyed};
  const Witness destroyer = Process(200, Qp(0x60009, 0x50009), {gone});
  EXPECT_TRUE(Has(explain({destroyer}), "was destroyed by process 200"));
  EXPECT_TRUE(Has(explain({destroyer}), "2.000 s ago"));
  Witness stopped;
  stopped.pid = 300;
  stopped.silent = stopped.stopped = true;
  EXPECT_TRUE(Has(explain({stopped}), "process 300 is stopped"));
  EXPECT_TRUE(Has(explain({}), "the peer has ended, or the number is wrong"));
}

// Packets are lost on command.
TEST(Explain, NamesTheRulesForFaultsOfBothEnds) {
  transport::QpReport failed = Failed(Reason::kPeerSilent);
  failed.unacked_psn = 7;
  failed.timeout = 14;
  failed.retry_cnt = 7;
  failed.counters.retransmitted = 8;
  RecordedEvent fault;
  fault.event = {.time = 8 * transport::kSecond,
                 .qpn = 0x50001,
                 .kind = RareEventKind::kFault,
                 .value = 2};
  fault.last = fault.event.time;
  fault.count = 9;
  const std::vector<FaultRuleStatus> rules = {
      {.number = 1, .text = "ce tx"},
      {.number = 2, .text = "drop rx op=ack nth=1- p=1%"}};
  transport::QpReport peer = Qp(0x60001, 0x50001);
  peer.expected_psn = 8;
  const std::string own = ExplainQueuePair(Process(100, failed, {fault}, rules),
                                           0x50001, {Process(200, peer)});
  EXPECT_TRUE(Has(own,
                  "rule 2 (drop rx op=ack nth=1- p=1%) for faults hit 9 "
                  "packets of this queue pair"))
      << own;
  EXPECT_TRUE(Has(own, "It has executed what this side waits for")) << own;
  EXPECT_TRUE(Has(own, "whose side    the faults on command")) << own;
  EXPECT_TRUE(Has(own,
                  "after 8 retransmissions; timeout 14 is 67.1 ms without an "
                  "acknowledgement, and retry_cnt allows 8 of them in a row"))
      << own;
  fault.event.qpn = 0x60001;
  fault.count = 1;
  const std::string theirs = ExplainQueuePair(
      Process(100, failed), 0x50001, {Process(200, peer, {fault}, rules)});
  EXPECT_TRUE(Has(theirs, "hit 1 packet of the peer, by its process 200"))
      << theirs;
  const std::string none =
      ExplainQueuePair(Process(100, failed), 0x50001, {Process(200, peer)});
  EXPECT_FALSE(Has(none, "fault")) << none;
}

// A NAK is a fault on command only if a rule answers with NAKs.
TEST(Explain, NamesTheRulesThatAnswerRequests) {
  RecordedEvent fault;
  fault.event = {.time = 8 * transport::kSecond,
                 .qpn = 0x60001,
                 .kind = RareEventKind::kFault,
                 .value = 1};
  fault.last = fault.event.time;
  fault.count = 1;
  const auto explain = [&](Reason reason, const char* rule) {
    return ExplainQueuePair(
        Process(100, Failed(reason)), 0x50001,
        {Process(200, Qp(0x60001, 0x50001), {fault},
                 {FaultRuleStatus{.number = 1, .text = rule}})});
  };
  const char* const by_command = "whose side    the faults on command";
  for (const auto& [reason, rule] :
       {std::pair(Reason::kNakAccess, "nak REM_ACCESS_ERR nth=2"),
        std::pair(Reason::kNakInvalidRequest, "nak REM_INV_REQ_ERR"),
        std::pair(Reason::kNakOperational, "nak REM_OP_ERR"),
        std::pair(Reason::kRnrRetriesExceeded, "rnr rx")}) {
    EXPECT_TRUE(Has(explain(reason, rule), by_command)) << rule;
    EXPECT_FALSE(Has(explain(reason, "drop rx nth=2"), by_command)) << rule;
  }
  EXPECT_TRUE(Has(explain(Reason::kPeerSilent, "no-ack rx"), by_command));
}

// PSNs have 24 bits.
TEST(Explain, CountsUnacknowledgedPacketsAcrossThePsnWrap) {
  transport::QpReport qp = Failed(Reason::kNeverAnswered);
  qp.unacked_psn = 0xfffffe;
  qp.send_psn = 5;
  const std::string text = ExplainQueuePair(
      Process(100, qp), 0x50001, {Process(200, Qp(0x60001, 0x50001))});
  EXPECT_TRUE(Has(text, "this side has sent 7 packets")) << text;
}

// A queue pair in ERR no longer knows its position. The event of its failure
// does.
TEST(Explain, WhatAFailedQueuePairWaitedFor) {
  transport::QpReport failed = Failed(Reason::kPeerSilent);
  failed.send_psn = failed.unacked_psn = 3;
  RecordedEvent end;
  end.event = {.time = 8 * transport::kSecond,
               .qpn = 0x50001,
               .kind = RareEventKind::kRetriesExceeded,
               .psn = 7};
  end.last = end.event.time;
  end.count = 1;
  transport::QpReport peer = Qp(0x60001, 0x50001);
  const auto explain = [&](uint32_t expected) {
    peer.expected_psn = expected;
    return ExplainQueuePair(Process(100, failed, {end}), 0x50001,
                            {Process(200, peer)});
  };
  EXPECT_TRUE(Has(explain(7),
                  "so packets are lost on the way, of either direction; it "
                  "expects PSN 7\n"))
      << explain(7);
  EXPECT_TRUE(Has(explain(8),
                  "It has executed what this side waits for, so its answers "
                  "are lost on the way; it expects PSN 8\n"))
      << explain(8);
}

TEST(Explain, AnotherHostIsNotGuessedAt) {
  transport::QpReport qp = Failed(Reason::kPeerSilent);
  qp.destination = *wire::IpAddress::Parse("192.0.2.9");
  const std::string text = ExplainQueuePair(Process(100, qp), 0x50001, {});
  EXPECT_TRUE(Has(text, "it is another host (192.0.2.9)"));
  EXPECT_TRUE(Has(text, "status 12 (IBV_WC_RETRY_EXC_ERR), vendor_err 2"));
}

// Two hosts assign the same numbers.
TEST(Explain, AProcessHereIsNotThePeerOfAnotherHost) {
  transport::QpReport qp = Failed(Reason::kPeerSilent);
  qp.destination = *wire::IpAddress::Parse("192.0.2.9");
  const Witness own = Process(100, qp);
  const auto explain = [&](const transport::QpReport& here) {
    return ExplainQueuePair(own, 0x50001, {Process(200, here)});
  };
  EXPECT_TRUE(Has(explain(Qp(0x60001, 0x50002)), "it is another host"));
  // The peer's address is not one of this host's interfaces (NAT).
  EXPECT_TRUE(Has(explain(Qp(0x60001, 0x50001)), "lost on the way"));
}

// A process of any user may have any name, and never answer.
TEST(Explain, NoNameOfAProcessControlsTheTerminal) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const std::string name =
        "rxe_user-stat-" + std::to_string(::getpid()) + "-0";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const bool good =
        ::prctl(PR_SET_NAME, "a\x1b[2J\x9b b") == 0 &&
        ::bind(fd, reinterpret_cast<sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                      name.size())) == 0 &&
        ::listen(fd, 1) == 0 && ::write(ready[1], "1", 1) == 1;
    if (!good) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ready[1]);
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  const auto all = AskWitnesses(0, std::chrono::milliseconds(100));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto found = std::ranges::find(*all, child, &Witness::pid);
  ASSERT_NE(found, all->end());
  EXPECT_TRUE(found->silent);
  EXPECT_EQ(found->command, "a?[2J??b");
}

// The peer names the failed check. Its own side is the peer's side here.
TEST(Explain, ThePeersReasonExplainsANak) {
  transport::QpReport peer = Qp(0x60001, 0x50001);
  peer.state = transport::QpState::kErr;
  peer.first_error = Reason::kRemoteRight;
  const std::string text = ExplainQueuePair(
      Process(100, Failed(Reason::kNakAccess)), 0x50001, {Process(200, peer)});
  EXPECT_TRUE(Has(text, "for its reason 54 (remote_right)"));
  EXPECT_TRUE(Has(text, "whose side    the peer's side"));
}

TEST(Explain, Chain) {
  std::vector<RecordedEvent> events;
  for (int i = 0; i < 100; ++i) {
    RecordedEvent event;
    event.event = {.time = i * transport::kMillisecond,
                   .qpn = 0x50001,
                   .kind = RareEventKind::kSequenceNakReceived,
                   .psn = static_cast<uint32_t>(i)};
    event.count = 3;
    events.push_back(event);
  }
  const std::string text =
      ExplainQueuePair(Process(100, Qp(0x50001, 0x60001), events), 0x50001, {});
  EXPECT_TRUE(Has(text, "-10.000 s"));
  EXPECT_TRUE(Has(text, "PSN 99]"));
  EXPECT_TRUE(Has(text, "... 76 more"));
  EXPECT_TRUE(Has(text, ", 3 times"));
}

TEST(Explain, NothingKnown) {
  const Witness own = Process(100, Qp(0x50001, 0x60001));
  EXPECT_EQ(ExplainQueuePair(own, 0x50002, {}), "");
  EXPECT_EQ(QueuePairsOf(own), std::vector<uint32_t>{0x50001});
  EXPECT_TRUE(WitnessOf(1, "nonsense").records.empty());
  EXPECT_FALSE(Has(ExplainQueuePair(own, 0x50001, {}), "first cause"));
}

}  // namespace
}  // namespace rxe_user
