#include "tools/rxe_user_cli/explain_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/observe/trace_blocks.h"
#include "tools/trace/sim_recorder.h"
#include "transport/base/rare_event.h"
#include "transport/base/reason.h"
#include "transport/base/types.h"
#include "transport/sim/pair.h"
#include "wire/cm.h"

namespace rxe_user_cli {
namespace {

namespace events = rxe_user::trace;

using testing::HasSubstr;
using testing::Not;
using transport::QpState;
using transport::RareEventKind;
using transport::Reason;

constexpr int64_t kStart = 1'795'821'068'000'000'000;
constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kQpn = 0x11011;
constexpr uint32_t kPeerQpn = 0x22022;

// A recording of a host that does not exist here.
class Host {
 public:
  Host(const std::string& program, uint8_t address, uint8_t peer)
      : program_(program), address_(address), peer_(peer) {
    events::RecordingEvent about;
    about.header = Header(0, 0);
    about.pid = address;
    std::fill(std::begin(about.boot_id), std::end(about.boot_id), 1);
    events::SetText(program, about.program);
    events::AppendBeginning(about, &bytes_);
  }

  void State(int64_t ms, uint32_t qpn, uint32_t peer, QpState from, QpState to,
             Reason reason = Reason::kNone) {
    events::QpStateEvent state;
    state.header = Header(ms, qpn);
    state.type = static_cast<uint8_t>(transport::QpType::kRc);
    state.from = static_cast<uint8_t>(from);
    state.to = static_cast<uint8_t>(to);
    state.dest_qpn = peer;
    state.path_mtu = 1024;
    state.reason = static_cast<uint32_t>(reason);
    SetAddress(address_, state.source);
    SetAddress(peer_, state.destination);
    events::AppendEvent(state, &bytes_);
  }
  void Incident(int64_t ms, uint32_t qpn, RareEventKind kind,
                uint16_t value = 0) {
    events::IncidentEvent incident;
    incident.header = Header(ms, qpn);
    incident.kind = static_cast<uint8_t>(kind);
    incident.value = value;
    events::AppendEvent(incident, &bytes_);
  }
  // Returns the id of the event.
  uint64_t Post(int64_t ms, uint32_t qpn, uint64_t wr_id) {
    events::PostedEvent post;
    post.header = Header(ms, qpn);
    post.wr_id = wr_id;
    events::AppendEvent(post, &bytes_);
    return post.header.id;
  }
  // A receive to a shared receive queue.
  void PostShared(int64_t ms) {
    events::PostedEvent post;
    post.header = Header(ms, 0);
    post.queue = static_cast<uint8_t>(events::QueueKind::kShared);
    events::AppendEvent(post, &bytes_);
  }
  void Complete(int64_t ms, uint32_t qpn, uint64_t posted) {
    events::CompletedEvent done;
    done.header = Header(ms, qpn);
    done.posted = posted;
    events::AppendEvent(done, &bytes_);
  }

  void Overflow(int64_t ms, uint64_t packets) {
    events::OverflowEvent overflow;
    overflow.header = Header(ms, 0);
    overflow.packets = packets;
    events::AppendEvent(overflow, &bytes_);
  }

  void Fault(int64_t ms, uint32_t qpn, uint32_t rule, const char* text) {
    events::FaultEvent fault;
    fault.rule = rule;
    events::SetText(text, fault.text);
    Fault(ms, qpn, fault);
  }
  void Fault(int64_t ms, uint32_t qpn, events::FaultEvent fault) {
    fault.header = Header(ms, qpn);
    events::AppendEvent(fault, &bytes_);
  }

  // A message of connection `id` of this host with `peer_id`; 0: not named.
  void Cm(int64_t ms, wire::CmAttribute attribute, events::WhichWay way,
          uint32_t id, uint32_t peer_id, uint32_t qpn = 0,
          uint16_t reason = 0) {
    events::CmMessageEvent message;
    message.header = Header(ms, qpn);
    message.attribute = static_cast<uint16_t>(attribute);
    message.way = static_cast<uint8_t>(way);
    message.local_id = id;
    message.remote_id = peer_id;
    message.reason = reason;
    if (attribute == wire::CmAttribute::kReq ||
        attribute == wire::CmAttribute::kSidrReq) {
      message.service_id = 0x1061c06;
    }
    SetAddress(peer_, message.peer);
    events::AppendEvent(message, &bytes_);
  }

  std::string Write() const {
    const std::string path = testing::TempDir() + "/" + program_ + ".pcapng";
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    std::fwrite(bytes_.data(), 1, bytes_.size(), file);
    std::fclose(file);
    return path;
  }

 private:
  static void SetAddress(uint8_t last, uint8_t (&out)[16]) {
    const uint8_t address[16] = {0, 0, 0,    0,    0,   0,  0,   0,
                                 0, 0, 0xff, 0xff, 198, 51, 100, last};
    std::copy(std::begin(address), std::end(address), out);
  }
  events::EventHeader Header(int64_t ms, uint32_t qpn) {
    events::EventHeader header;
    header.id = ++last_id_;
    header.time = kStart + ms * kMs;
    header.qpn = qpn;
    return header;
  }

  const std::string program_;
  const uint8_t address_;
  const uint8_t peer_;
  uint64_t last_id_ = 0;
  std::vector<uint8_t> bytes_;
};

std::string Explain(const std::vector<std::string>& files,
                    int expected_status = 0) {
  std::FILE* const out = std::tmpfile();
  EXPECT_EQ(ExplainFiles(files, out, out), expected_status);
  std::string text(static_cast<size_t>(std::ftell(out)), '\0');
  std::rewind(out);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), out), text.size());
  std::fclose(out);
  return text;
}

constexpr uint32_t kId = 0x12300001;
constexpr uint32_t kPeerId = 0x45600002;
constexpr auto kSent = events::WhichWay::kSent;
constexpr auto kReceived = events::WhichWay::kReceived;
using wire::CmAttribute;

class ExplainFilesTest : public testing::Test {
 protected:
  void Connect() {
    client_.State(1, kQpn, kPeerQpn, QpState::kRtr, QpState::kRts);
    server_.State(1, kPeerQpn, kQpn, QpState::kRtr, QpState::kRts);
  }
  void TimeOut(int64_t ms) {
    client_.Post(ms, kQpn, 77);
    client_.Incident(ms + 100, kQpn, RareEventKind::kRetriesExceeded, 1);
    client_.State(ms + 100, kQpn, kPeerQpn, QpState::kRts, QpState::kErr,
                  Reason::kNeverAnswered);
  }

  Host client_{"client", 1, 2};
  Host server_{"server", 2, 1};
};

TEST_F(ExplainFilesTest, SaysNothingOfWhatWentWell) {
  Connect();
  client_.Complete(3, kQpn, client_.Post(2, kQpn, 1));
  EXPECT_EQ(Explain({client_.Write(), server_.Write()}), "");
}

TEST_F(ExplainFilesTest, NamesFaultsAndWhatBecameOfTheRequests) {
  Connect();
  const uint64_t posted = client_.Post(2, kQpn, 1);
  client_.Fault(3, kQpn, 2, "drop tx op=data nth=3");
  client_.Complete(5, kQpn, posted);
  const std::string text = Explain({client_.Write(), server_.Write()});
  EXPECT_THAT(text, HasSubstr("rule 2 (drop tx op=data nth=3) for faults hit 1 "
                              "packet of this queue pair"));
  EXPECT_THAT(text, HasSubstr("0.002000 s before the end, rule 2 (drop tx "
                              "op=data nth=3): a packet of queue pair 0x011011 "
                              "was dropped"));
  EXPECT_THAT(text, HasSubstr("0 request packets were sent again; no "
                              "completion failed (1 succeeded)"));
}

// The packet itself is not in the file.
TEST_F(ExplainFilesTest, NamesAPacketThatIsStillHeld) {
  Connect();
  events::FaultEvent fault;
  fault.rule = 1;
  fault.action = static_cast<uint8_t>(events::FaultAction::kDelay);
  fault.psn = 1007;
  fault.opcode =
      wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kWriteMiddle);
  fault.way = static_cast<uint8_t>(kReceived);
  events::SetText("delay 1s rx", fault.text);
  server_.Fault(3, kPeerQpn, fault);
  server_.Post(9, kPeerQpn, 1);
  const std::string text = Explain({server_.Write()});
  EXPECT_THAT(text, HasSubstr("rule 1 (delay 1s rx) for faults hit 1 packet of "
                              "this queue pair"));
  EXPECT_THAT(text, HasSubstr("0.006000 s before the end, rule 1 (delay 1s "
                              "rx): RC_RDMA_WRITE_MIDDLE, PSN 1007, was "
                              "delayed"));
}

TEST_F(ExplainFilesTest, NamesWhatIsOutstanding) {
  Connect();
  client_.Post(2, kQpn, 5);
  EXPECT_THAT(Explain({client_.Write()}),
              HasSubstr("1 send work requests, the oldest with wr_id 5"));
}

// A number that is used again is that of another queue pair.
TEST_F(ExplainFilesTest, ANumberThatIsUsedAgain) {
  Connect();
  TimeOut(2);
  client_.Incident(110, kQpn, RareEventKind::kDestroyed);
  client_.State(120, kQpn, 0, QpState::kReset, QpState::kInit);
  client_.State(120, kQpn, kPeerQpn, QpState::kInit, QpState::kRtr);
  client_.State(120, kQpn, kPeerQpn, QpState::kRtr, QpState::kRts);
  client_.Post(130, kQpn, 5);
  const std::string text = Explain({client_.Write(), server_.Write()});
  EXPECT_THAT(text, HasSubstr("1 send work requests, the oldest with wr_id 5"));
  EXPECT_THAT(text, HasSubstr("RC, ERR, to"));
  EXPECT_THAT(text, HasSubstr("RC, RTS, to"));
}

TEST_F(ExplainFilesTest, ThePeerWasDestroyed) {
  Connect();
  server_.Incident(50, kPeerQpn, RareEventKind::kDestroyed, 3);
  TimeOut(60);
  const std::string text = Explain({client_.Write(), server_.Write()});
  EXPECT_THAT(text, HasSubstr("status 12"));
  EXPECT_THAT(text, HasSubstr("was destroyed by process 2 (server), 0.110 s "
                              "ago"));
  EXPECT_THAT(text, HasSubstr("retries_exceeded"));
}

// The peer is described as it was when the queue pair failed.
TEST_F(ExplainFilesTest, ThePeerWasDestroyedLater) {
  Connect();
  TimeOut(60);
  server_.Incident(500, kPeerQpn, RareEventKind::kDestroyed, 3);
  const std::string text = Explain({client_.Write(), server_.Write()});
  EXPECT_THAT(text, HasSubstr("is alive and ready (RTS)"));
  EXPECT_THAT(text, Not(HasSubstr("was destroyed by")));
}

TEST_F(ExplainFilesTest, ThePeerHadFailed) {
  Connect();
  server_.State(50, kPeerQpn, kQpn, QpState::kRts, QpState::kErr,
                Reason::kRemoteRange);
  TimeOut(60);
  EXPECT_THAT(
      Explain({client_.Write(), server_.Write()}),
      HasSubstr(std::string(transport::TextOf(Reason::kRemoteRange).what)));
}

TEST_F(ExplainFilesTest, ThePeersRecordingEndsBefore) {
  Connect();
  TimeOut(60);
  EXPECT_THAT(Explain({client_.Write(), server_.Write()}),
              HasSubstr("its recording ends 0.159 s before"));
}

// Status 12 in many-to-one only: the receive buffer was full.
TEST_F(ExplainFilesTest, TheReceiveBufferOverflowed) {
  Host other("other", 3, 2);
  Connect();
  other.State(1, kQpn + 1, kPeerQpn + 1, QpState::kRtr, QpState::kRts);
  server_.State(1, kPeerQpn + 1, kQpn + 1, QpState::kRtr, QpState::kRts);
  other.Complete(61, kQpn + 1, other.Post(60, kQpn + 1, 1));
  server_.Overflow(70, 500);
  server_.Overflow(80, 12);
  TimeOut(60);
  server_.Overflow(200, 3);  // after the failure
  const std::string text =
      Explain({client_.Write(), other.Write(), server_.Write()});
  EXPECT_THAT(text, HasSubstr("status 12"));
  EXPECT_THAT(text, HasSubstr("is alive and ready (RTS), but the kernel has "
                              "dropped 512 packets to its process, whose "
                              "receive buffer was full"));
  EXPECT_THAT(text, HasSubstr("whose side    the peer's side"));
  EXPECT_THAT(text, HasSubstr("Let fewer peers send to it at once"));
}

// The same, but the dropped packets were retransmitted in time.
TEST_F(ExplainFilesTest, SaysNothingOfAnOverflowThatBrokeNothing) {
  Connect();
  client_.Complete(3, kQpn, client_.Post(2, kQpn, 1));
  server_.Overflow(2, 512);
  EXPECT_EQ(Explain({client_.Write(), server_.Write()}), "");
}

// The time must be linear in the size of the files. With a pass over them for
// each queue pair, this test takes minutes.
TEST_F(ExplainFilesTest, ManyFailedQueuePairs) {
  constexpr uint32_t kMany = 10'000;
  for (uint32_t i = 0; i < kMany; ++i) {
    const uint32_t qpn = kQpn + i, peer = kPeerQpn + i;
    client_.State(1, qpn, peer, QpState::kRtr, QpState::kRts);
    server_.State(1, peer, qpn, QpState::kRtr, QpState::kRts);
    server_.PostShared(2);
    client_.Cm(1, CmAttribute::kReq, kSent, kId + i, 0, qpn);
    client_.Cm(2, CmAttribute::kRep, kReceived, kId + i, kPeerId + i, qpn);
  }
  for (uint32_t i = 0; i < kMany; ++i) {
    const uint32_t qpn = kQpn + i, peer = kPeerQpn + i;
    client_.Fault(3, qpn, 1, "drop tx");
    client_.State(60, qpn, peer, QpState::kRts, QpState::kErr,
                  Reason::kNeverAnswered);
    server_.Incident(50, peer, RareEventKind::kDestroyed, 3);
  }
  const std::string text = Explain({client_.Write(), server_.Write()});
  size_t found = 0;
  for (size_t at = 0;
       (at = text.find("was destroyed by process 2", at)) != std::string::npos;
       ++at) {
    ++found;
  }
  EXPECT_EQ(found, kMany);
}

// A READ takes a PSN for each packet of its response.
TEST(ExplainReadTest, CountsThePacketsOfAResponse) {
  sim::Pair pair;
  trace::SimRecorder client(&pair.net, pair.a.node, "client", 1);
  trace::SimRecorder server(&pair.net, pair.b.node, "server", 1);
  pair.net.filter = [](const sim::Node& from, const wire::PacketView&) {
    return from.index() == 0;
  };
  pair.Connect();
  events::QpStateEvent state;
  state.header.qpn = pair.a.qp->qpn();
  state.type = static_cast<uint8_t>(transport::QpType::kRc);
  state.from = static_cast<uint8_t>(QpState::kRtr);
  state.to = static_cast<uint8_t>(QpState::kRts);
  state.dest_qpn = pair.b.qp->qpn();
  state.path_mtu = 1024;
  state.send_psn = pair.a.attributes.sq_psn;
  state.source[15] = 1;
  state.destination[15] = 2;
  client.Add(state);
  events::PostedEvent post;
  post.header.qpn = pair.a.qp->qpn();
  const uint64_t posted = client.Add(post);
  events::BegunEvent begun;
  begun.header.qpn = pair.a.qp->qpn();
  begun.header.cause = posted;
  begun.first_psn = state.send_psn;
  client.Add(begun);
  events::QpStateEvent peer = state;
  std::swap(peer.header.qpn, peer.dest_qpn);
  std::swap(peer.source, peer.destination);
  server.Add(peer);
  ASSERT_EQ(pair.a.Read(1, 0, 0, 4096), 0);
  pair.Run();
  state.from = state.to;
  state.to = static_cast<uint8_t>(QpState::kErr);
  state.reason = static_cast<uint32_t>(Reason::kNeverAnswered);
  client.Add(state);
  server.Add(events::TimerEvent());  // its recording continues
  EXPECT_THAT(
      Explain({client.Write("client.pcapng"), server.Write("server.pcapng")}),
      HasSubstr("this side has sent 4 packets that it does not "
                "acknowledge"));
}

// If the peer never answers, packets do not show which queue pair has sent
// them; their events do.
TEST(ExplainRetriesTest, CountsPacketsThatNobodyAnswers) {
  sim::Pair pair;
  trace::SimRecorder client(&pair.net, pair.a.node, "client", 1);
  uint32_t sent = 0;
  pair.net.filter = [&](const sim::Node&, const wire::PacketView&) {
    ++sent;
    return false;
  };
  pair.Connect();
  events::QpStateEvent state;
  state.header.qpn = pair.a.qp->qpn();
  state.type = static_cast<uint8_t>(transport::QpType::kRc);
  state.from = static_cast<uint8_t>(QpState::kRtr);
  state.to = static_cast<uint8_t>(QpState::kRts);
  state.dest_qpn = pair.b.qp->qpn();
  state.path_mtu = 1024;
  client.Add(state);
  ASSERT_EQ(pair.a.Write(1, 0, 0, 100), 0);
  pair.Run();
  ASSERT_EQ(pair.a.qp->state(), QpState::kErr);
  ASSERT_GT(sent, 1u);
  state.from = state.to;
  state.to = static_cast<uint8_t>(QpState::kErr);
  state.reason = static_cast<uint32_t>(Reason::kNeverAnswered);
  client.Add(state);
  EXPECT_THAT(
      Explain({client.Write("client.pcapng")}),
      HasSubstr("after " + std::to_string(sent - 1) + " retransmissions"));
}

// Another host may use the same numbers.
TEST_F(ExplainFilesTest, QueuePairsOfOtherAddressesAreNotThePeer) {
  Connect();
  TimeOut(60);
  Host other("other", 3, 1);
  other.State(1, kPeerQpn, kQpn, QpState::kRtr, QpState::kRts);
  EXPECT_THAT(Explain({client_.Write(), other.Write()}),
              HasSubstr("no recording of its end (198.51.100.2) is given"));
}

TEST_F(ExplainFilesTest, SaysNothingOfConnectionsThatEndWell) {
  client_.Cm(1, CmAttribute::kReq, kSent, kId, 0, kQpn);
  client_.Cm(2, CmAttribute::kReq, kSent, kId, 0, kQpn);
  client_.Cm(3, CmAttribute::kRep, kReceived, kId, kPeerId, kQpn);
  client_.Cm(4, CmAttribute::kRtu, kSent, kId, kPeerId, kQpn);
  client_.Cm(5, CmAttribute::kDreq, kSent, kId, kPeerId, kQpn);
  client_.Cm(6, CmAttribute::kDrep, kReceived, kId, kPeerId, kQpn);
  EXPECT_EQ(Explain({client_.Write()}), "");
}

TEST_F(ExplainFilesTest, NobodyListens) {
  client_.Cm(1, CmAttribute::kReq, kSent, kId, 0, kQpn);
  client_.Cm(2, CmAttribute::kRej, kReceived, kId, 0, kQpn, 8);
  const std::string text = Explain({client_.Write()});
  EXPECT_THAT(text, HasSubstr("connection with 198.51.100.2, service "
                              "0x0000000001061c06 (RDMA_PS_TCP port 7174), "
                              "process 1 (client)"));
  EXPECT_THAT(text, HasSubstr("RDMA_CM_EVENT_REJECTED, status 8 "
                              "(INVALID_SERVICE_ID)"));
  EXPECT_THAT(text, HasSubstr("no program at that address listens"));
  EXPECT_THAT(text, HasSubstr("-0.001 s  CM REQ sent to 198.51.100.2"));
  EXPECT_THAT(text, HasSubstr("CM REJ: INVALID_SERVICE_ID received from"));
}

TEST_F(ExplainFilesTest, ADatagramServiceRefuses) {
  client_.Cm(1, CmAttribute::kSidrReq, kSent, kId, 0);
  client_.Cm(2, CmAttribute::kSidrRep, kReceived, kId, 0, 0, 2);
  EXPECT_THAT(Explain({client_.Write()}),
              HasSubstr("RDMA_CM_EVENT_UNREACHABLE, status 2\n"));
}

TEST_F(ExplainFilesTest, NoAnswer) {
  for (int i = 0; i < 3; ++i) {
    client_.Cm(1 + i, CmAttribute::kReq, kSent, kId, 0, kQpn);
  }
  // Another connection is answered at once.
  client_.Cm(5, CmAttribute::kReq, kSent, kId + 1, 0, kQpn + 1);
  EXPECT_THAT(Explain({client_.Write()}),
              HasSubstr("a REQ was sent 3 times without an answer"));
}

TEST_F(ExplainFilesTest, AnEstablishedConnectionThatThePeerGaveUp) {
  server_.Cm(1, CmAttribute::kReq, kReceived, 0, kPeerId);
  server_.Cm(2, CmAttribute::kRep, kSent, kId, kPeerId, kPeerQpn);
  server_.Cm(3, CmAttribute::kRtu, kReceived, kId, kPeerId, kPeerQpn);
  server_.Cm(4, CmAttribute::kRej, kReceived, kId, kPeerId, kPeerQpn, 4);
  const std::string text = Explain({server_.Write()});
  EXPECT_THAT(text, HasSubstr("RDMA_CM_EVENT_DISCONNECTED"));
  EXPECT_THAT(text, HasSubstr("CM REQ received from"));
}

TEST_F(ExplainFilesTest, AFailureAfterTheDisconnection) {
  client_.Cm(1, CmAttribute::kReq, kSent, kId, 0, kQpn);
  Connect();
  client_.Cm(70, CmAttribute::kDreq, kReceived, kId, kPeerId, kQpn);
  TimeOut(60);
  EXPECT_THAT(Explain({client_.Write()}),
              HasSubstr("-0.090 s  CM DREQ received from 198.51.100.2"));
}

TEST_F(ExplainFilesTest, FilesThatAreNoRecordings) {
  EXPECT_THAT(Explain({testing::TempDir() + "/none"}, 1),
              HasSubstr("rxe-user explain: "));
  const std::string path = testing::TempDir() + "/capture.pcapng";
  std::vector<uint8_t> bytes;
  wire::pcapng::AppendSection("other", &bytes);
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  EXPECT_THAT(Explain({path}, 1), HasSubstr("is no recording"));
}

}  // namespace
}  // namespace rxe_user_cli
