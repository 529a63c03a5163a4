#include "rxe_user/observe/trace_queues.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "wire/opcode.h"
#include "wire/packet.h"

namespace rxe_user::trace {
namespace {

using transport::Completion;
using transport::Direction;
using transport::ObservedPacket;
using transport::RareEvent;
using transport::RareEventKind;
using transport::SendOpcode;
using transport::WcOpcode;
using transport::WcStatus;
using wire::Operation;

constexpr uint32_t kQpn = 17;
constexpr uint32_t kPeer = 33;
constexpr uint32_t kMtu = 1024;
constexpr uint64_t kCq = 5;
constexpr QueueName kSends = {QueueKind::kSend, kQpn};
constexpr QueueName kReceives = {QueueKind::kReceive, kQpn};

class TraceQueuesTest : public testing::Test {
 protected:
  TraceQueuesTest() { queues_.SetMtu(kQpn, transport::QpType::kRc, kMtu); }

  static Post Request(uint64_t wr_id, uint64_t bytes,
                      SendOpcode opcode = SendOpcode::kRdmaWrite,
                      bool signaled = true) {
    Post post;
    post.wr_id = wr_id;
    post.bytes = bytes;
    post.opcode = opcode;
    post.signaled = signaled;
    return post;
  }
  std::vector<Post> Add(std::vector<Post> posts,
                        const QueueName& queue = kSends) {
    queues_.Add(queue, posts);
    return posts;
  }

  struct Seen {
    std::optional<BegunEvent> begun;
    PacketEvent event;
  };
  // A packet with this BTH, followed by zeros.
  Seen See(Direction direction, Operation operation, uint32_t psn,
           uint8_t syndrome = 0) {
    const uint8_t opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
    const wire::OpcodeInfo& info = wire::GetOpcodeInfo(opcode);
    std::vector<uint8_t> bytes(info.header_length + wire::kIcrcSize +
                               (info.full_mtu_payload ? kMtu : 0));
    const uint32_t qpn = direction == Direction::kReceived ? kQpn : kPeer;
    bytes[0] = opcode;
    bytes[2] = bytes[3] = 0xff;
    bytes[7] = static_cast<uint8_t>(qpn);
    bytes[9] = static_cast<uint8_t>(psn >> 16);
    bytes[10] = static_cast<uint8_t>(psn >> 8);
    bytes[11] = static_cast<uint8_t>(psn);
    if (info.Has(wire::kAeth)) bytes[wire::kBthSize] = syndrome;
    wire::PacketView view;
    EXPECT_EQ(wire::PacketView::Parse(bytes, &view), wire::ParseError::kOk);
    ObservedPacket packet;
    packet.direction = direction;
    packet.bytes = bytes;
    if (direction == Direction::kTransmitted) packet.qpn = kQpn;
    Seen seen;
    seen.begun = queues_.OnPacket(packet, &seen.event);
    return seen;
  }
  Seen Send(Operation operation, uint32_t psn) {
    return See(Direction::kTransmitted, operation, psn);
  }
  TraceQueues::Id Decide(RareEventKind kind, uint32_t value = 0,
                         transport::Reason reason = transport::Reason::kNone) {
    RareEvent event;
    event.qpn = kQpn;
    event.kind = kind;
    event.value = static_cast<uint16_t>(value);
    event.reason = reason;
    return queues_.OnDecision(event);
  }
  std::vector<CompletedEvent> Complete(uint64_t wr_id,
                                       WcStatus status = WcStatus::kSuccess,
                                       const QueueName& queue = kSends) {
    Completion completion;
    completion.wr_id = wr_id;
    completion.status = status;
    completion.qpn = kQpn;
    completion.opcode = queue.kind == QueueKind::kSend ? WcOpcode::kRdmaWrite
                                                       : WcOpcode::kReceive;
    return queues_.OnCompletion(completion, queue, kCq);
  }

  TraceQueues queues_;
};

TEST_F(TraceQueuesTest, ARequestBeginsWithItsFirstPacket) {
  const std::vector<Post> posts = Add({Request(7, 2500), Request(8, 0)});
  const Seen first = Send(Operation::kWriteFirst, 100);
  ASSERT_TRUE(first.begun);
  EXPECT_EQ(first.begun->wr_id, 7u);
  EXPECT_EQ(first.begun->header.cause, posts[0].id);
  EXPECT_EQ(first.begun->header.qpn, kQpn);
  EXPECT_EQ(first.begun->first_psn, 100u);
  EXPECT_EQ(first.begun->last_psn, 102u);
  EXPECT_EQ(first.begun->message, 1u);
  EXPECT_EQ(first.event.header.cause, first.begun->header.id);
  EXPECT_EQ(first.event.message, 1u);
  EXPECT_FALSE(Send(Operation::kWriteMiddle, 101).begun);
  EXPECT_FALSE(Send(Operation::kWriteLast, 102).begun);
  const Seen second = Send(Operation::kWriteOnly, 103);
  ASSERT_TRUE(second.begun);
  EXPECT_EQ(second.begun->wr_id, 8u);
  EXPECT_EQ(second.begun->last_psn, 103u);
  EXPECT_EQ(second.begun->message, 2u);
}

TEST_F(TraceQueuesTest, PsnsWrap) {
  Add({Request(7, 3000)});
  EXPECT_EQ(Send(Operation::kWriteFirst, 0xffffff).begun->last_psn, 1u);
  EXPECT_FALSE(Send(Operation::kWriteMiddle, 0).begun);
  EXPECT_FALSE(Send(Operation::kWriteFirst, 0xffffff).begun);
}

TEST_F(TraceQueuesTest, ReadsTakeThePsnsOfTheirResponses) {
  Add({Request(7, 4096, SendOpcode::kRdmaRead), Request(8, 8)});
  EXPECT_EQ(Send(Operation::kReadRequest, 10).begun->last_psn, 13u);
  // A READ that is resumed in the middle.
  EXPECT_FALSE(Send(Operation::kReadRequest, 12).begun);
  EXPECT_EQ(Send(Operation::kWriteOnly, 14).begun->wr_id, 8u);
}

TEST_F(TraceQueuesTest, LocalOperationsHaveNoPackets) {
  Add({Request(7, 0, SendOpcode::kLocalInvalidate), Request(8, 8)});
  EXPECT_EQ(Send(Operation::kWriteOnly, 10).begun->wr_id, 8u);
}

TEST_F(TraceQueuesTest, RefusedRequestsDoNotBegin) {
  std::vector<Post> posts = Add({Request(7, 8), Request(8, 8)});
  queues_.Remove(kSends, std::span(posts).subspan(1));
  Add({Request(9, 8)});
  EXPECT_EQ(Send(Operation::kWriteOnly, 10).begun->wr_id, 7u);
  EXPECT_EQ(Send(Operation::kWriteOnly, 11).begun->wr_id, 9u);
}

TEST_F(TraceQueuesTest, ARepeatIsCausedByTheNakThatAskedForIt) {
  Add({Request(7, 8)});
  Send(Operation::kWriteOnly, 10);
  const TraceQueues::Id nak = Decide(RareEventKind::kSequenceNakReceived);
  // The observer sees the packet after it was processed.
  const Seen packet =
      See(Direction::kReceived, Operation::kAcknowledge, 10, 0x60);
  EXPECT_EQ(nak.cause, packet.event.header.id);
  EXPECT_NE(nak.cause, 0u);
  const TraceQueues::Id again = Decide(RareEventKind::kRetransmission);
  EXPECT_EQ(again.cause, nak.id);
  EXPECT_EQ(queues_.why(kQpn), RetransmissionReason::kSequenceNak);
  const Seen repeat = Send(Operation::kWriteOnly, 10);
  EXPECT_FALSE(repeat.begun);
  EXPECT_EQ(repeat.event.header.cause, again.id);
}

TEST_F(TraceQueuesTest, ANakIsCausedByItsDecision) {
  const TraceQueues::Id nak = Decide(RareEventKind::kRnrNakSent);
  const Seen packet =
      See(Direction::kTransmitted, Operation::kAcknowledge, 10, 0x20);
  EXPECT_EQ(packet.event.header.cause, nak.id);
  EXPECT_EQ(See(Direction::kTransmitted, Operation::kAcknowledge, 11)
                .event.header.cause,
            0u);
}

TEST_F(TraceQueuesTest, UnsignaledRequestsEndWithTheNextCompletion) {
  const std::vector<Post> posts = Add(
      {Request(1, 8, SendOpcode::kSend, false), Request(2, 8), Request(3, 8)});
  Send(Operation::kSendOnly, 10);
  const auto events = Complete(2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].wr_id, 1u);
  EXPECT_EQ(events[0].posted, posts[0].id);
  EXPECT_EQ(events[0].cq, 0u);
  EXPECT_EQ(events[1].wr_id, 2u);
  EXPECT_EQ(events[1].posted, posts[1].id);
  EXPECT_EQ(events[1].cq, kCq);
  // The ACK that completed them.
  EXPECT_EQ(
      events[1].header.cause,
      See(Direction::kReceived, Operation::kAcknowledge, 11).event.header.id);
  EXPECT_EQ(Complete(3)[0].posted, posts[2].id);
  // The next packet begins the new request, and none that has ended.
  Add({Request(4, 8)});
  EXPECT_EQ(Send(Operation::kSendOnly, 12).begun->wr_id, 4u);
}

TEST_F(TraceQueuesTest, AFailureIsCausedByItsDecisionAndAFlushByTheState) {
  Add({Request(1, 8), Request(2, 8)});
  Send(Operation::kWriteOnly, 10);
  const TraceQueues::Id timeout = Decide(RareEventKind::kAckTimeout);
  const TraceQueues::Id exceeded = Decide(RareEventKind::kRetriesExceeded);
  EXPECT_EQ(exceeded.cause, timeout.id);
  EXPECT_EQ(Complete(1, WcStatus::kRetryExceeded)[0].header.cause, exceeded.id);
  const TraceQueues::Id state = Decide(RareEventKind::kState, 3 << 8 | 6,
                                       transport::Reason::kNeverAnswered);
  EXPECT_EQ(state.cause, exceeded.id);
  EXPECT_EQ(Complete(2, WcStatus::kFlushed)[0].header.cause, state.id);
}

TEST_F(TraceQueuesTest, PollsFindTheirCompletions) {
  Add({Request(1, 8)}, kReceives);
  queues_.OnEmptyPoll(kCq);
  queues_.OnEmptyPoll(kCq);
  const auto events = Complete(1, WcStatus::kSuccess, kReceives);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NE(events[0].posted, 0u);
  EXPECT_EQ(queues_.TakeEmptyPolls(kCq), 2u);
  EXPECT_EQ(queues_.TakeEmptyPolls(kCq), 0u);
  EXPECT_EQ(queues_.OnPolled(kCq, kQpn, 1), events[0].header.id);
  EXPECT_EQ(queues_.OnPolled(kCq, kQpn, 1), 0u);
}

TEST_F(TraceQueuesTest, DestroyedQueuesAreForgotten) {
  constexpr QueueName kShared = {QueueKind::kShared, 3};
  Add({Request(1, 8), Request(2, 8)}, kShared);
  EXPECT_NE(Complete(1, WcStatus::kSuccess, kShared)[0].posted, 0u);
  queues_.OnEmptyPoll(kCq);
  queues_.ForgetQueue(kShared);
  queues_.ForgetCq(kCq);
  EXPECT_EQ(queues_.TakeEmptyPolls(kCq), 0u);
  EXPECT_EQ(queues_.OnPolled(kCq, kQpn, 1), 0u);
  EXPECT_EQ(Complete(2, WcStatus::kSuccess, kShared)[0].posted, 0u);
}

TEST_F(TraceQueuesTest, AResetForgetsAllOfTheQueuePair) {
  Add({Request(1, 8)});
  Send(Operation::kWriteOnly, 10);
  Complete(1);
  Add({Request(2, 8)});
  Decide(RareEventKind::kState, 6 << 8);
  EXPECT_EQ(queues_.OnPolled(kCq, kQpn, 1), 0u);
  Add({Request(3, 8)});
  const Seen first = Send(Operation::kWriteOnly, 5);
  ASSERT_TRUE(first.begun);
  EXPECT_EQ(first.begun->wr_id, 3u);
  EXPECT_EQ(first.begun->message, 1u);
}

}  // namespace
}  // namespace rxe_user::trace
