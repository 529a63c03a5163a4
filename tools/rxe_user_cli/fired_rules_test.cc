#include "tools/rxe_user_cli/fired_rules.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rxe_user/observe/trace_blocks.h"
#include "rxe_user/observe/trace_events.h"
#include "transport/faults/rule_parser.h"
#include "wire/opcode.h"

namespace rxe_user_cli {
namespace {

namespace events = rxe_user::trace;

using transport::faults::Action;
using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;
using wire::pcapng::Direction;

constexpr uint32_t kQpn = 0x51;
constexpr uint32_t kSendPsn = 0xfffffe;  // wraps
constexpr uint32_t kReceivePsn = 500;

class FiredRulesTest : public testing::Test {
 protected:
  template <typename Struct>
  void Add(Struct event) {
    event.header.magic = events::kMagic;
    event.header.type = static_cast<uint16_t>(Struct::kType);
    event.header.size = sizeof(event);
    std::vector<uint8_t> bytes(sizeof(event));
    std::memcpy(bytes.data(), &event, sizeof(event));
    recording_.events.push_back(*trace::Event::Parse(bytes));
  }
  void Call(const char* function, int64_t result, const char* arguments,
            uint32_t error = 0) {
    events::CallEvent call;
    events::SetText(function, call.function);
    events::SetText(arguments, call.arguments);
    call.result = result;
    call.error = error;
    Add(call);
  }
  void Connect(uint32_t qpn = kQpn) {
    events::QpStateEvent state;
    state.header.qpn = qpn;
    state.type = static_cast<uint8_t>(transport::QpType::kRc);
    state.to = static_cast<uint8_t>(transport::QpState::kRtr);
    state.receive_psn = kReceivePsn;
    Add(state);
    state.to = static_cast<uint8_t>(transport::QpState::kRts);
    state.send_psn = kSendPsn;
    Add(state);
  }
  // A packet, with a fault if there is a rule.
  void Packet(Direction direction, Operation operation, uint32_t psn,
              const char* rule = nullptr, Action action = Action::kDrop,
              uint64_t delay = 0, Transport transport = Transport::kRc) {
    trace::Packet packet;
    packet.event = ++last_;
    packet.direction = direction;
    packet.opcode = MakeOpcode(transport, operation);
    packet.psn = psn & 0xffffff;
    recording_.packets.push_back(packet);
    if (rule == nullptr) return;
    events::FaultEvent fault;
    fault.header.qpn = kQpn;
    fault.header.cause = packet.event;
    fault.action = static_cast<uint8_t>(action);
    fault.delay = delay;
    events::SetText(rule, fault.text);
    Add(fault);
  }
  void CompletionFault(const char* rule, Action action) {
    events::FaultEvent fault;
    fault.header.qpn = kQpn;
    fault.action = static_cast<uint8_t>(action);
    events::SetText(rule, fault.text);
    Add(fault);
  }
  void Complete(uint8_t opcode, uint8_t status = 0) {
    events::CompletedEvent done;
    done.header.qpn = kQpn;
    done.opcode = opcode;
    done.status = status;
    Add(done);
  }
  // The rules that fired. Also checks that they can be parsed.
  std::string Rules() {
    const FiredRules fired = RulesThatFired(recording_);
    std::vector<transport::faults::Rule> rules;
    if (fired.rules != 0) {
      const auto error = transport::faults::ParseRules(fired.text, &rules);
      EXPECT_FALSE(error.has_value()) << error->ToString() << fired.text;
    }
    EXPECT_EQ(rules.size(), fired.rules);
    return fired.text;
  }

  trace::Recording recording_;
  uint64_t last_ = 0;
};

TEST_F(FiredRulesTest, PacketsByQueuePairOpcodePsnAndIteration) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x50");
  Call("ibv_create_qp", 0, "", 12);
  Call("ibv_create_qp_ex", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  Packet(Direction::kSent, Operation::kWriteMiddle, kSendPsn + 5,
         "drop tx op=data p=1%");
  Packet(Direction::kSent, Operation::kWriteMiddle, kSendPsn + 5);
  Packet(Direction::kSent, Operation::kWriteMiddle, kSendPsn + 5,
         "delay 2ms~1ms p=50%", Action::kDelay, 2'345'678);
  Packet(Direction::kReceived, Operation::kAcknowledge, kSendPsn + 7,
         "corrupt byte=17 resealed rx nth=4", Action::kCorrupt);
  Packet(Direction::kReceived, Operation::kSendOnly, kReceivePsn + 1,
         "rnr 20ms qp=@2", Action::kRnr);
  Packet(Direction::kSent, Operation::kReadResponseOnly, kReceivePsn + 2,
         "duplicate maybe", Action::kDuplicate);
  EXPECT_EQ(Rules(),
            "drop tx op=RC_RDMA_WRITE_MIDDLE qp=@2 psn=+5 iter=1\n"
            "delay 2345678ns tx op=RC_RDMA_WRITE_MIDDLE qp=@2 psn=+5 iter=3 "
            "maybe\n"
            "corrupt byte=17 resealed rx op=RC_ACKNOWLEDGE qp=@2 psn=+7 iter=1 "
            "maybe\n"
            "rnr 20ms rx op=RC_SEND_ONLY qp=@2 psn=+1 iter=1\n"
            "duplicate tx op=RC_RDMA_READ_RESPONSE_ONLY qp=@2 psn=+2 iter=1\n");
}

TEST_F(FiredRulesTest, EventsTheLinkTransfersAndTimes) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  Packet(Direction::kSent, Operation::kSendOnly, kSendPsn,
         "event QP_FATAL tx p=10%", Action::kEvent);
  Packet(Direction::kSent, Operation::kSendOnly, kSendPsn + 1,
         "link down op=data msg=2 for=200ms", Action::kLink);
  events::FaultEvent fault;
  fault.action = static_cast<uint8_t>(Action::kLink);
  events::SetText("link down after=1s for=20ms", fault.text);
  Add(fault);
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.psn = 3;
  events::SetText("delay 2ms~1ms call=ibv_reg_mr p=50%", fault.text);
  Add(fault);
  fault.psn = 9;
  Add(fault);
  fault.header.qpn = kQpn;
  fault.action = static_cast<uint8_t>(Action::kUnmap);
  fault.psn = 7;
  fault.way = static_cast<uint8_t>(events::WhichWay::kReceived);
  events::SetText("unmap p=1% bytes>100", fault.text);
  Add(fault);
  fault.psn = 8;
  Add(fault);
  EXPECT_EQ(Rules(),
            "delay 2ms call=ibv_reg_mr nth=3\n"
            "delay 2ms call=ibv_reg_mr nth=9\n"
            "unmap rx qp=@1 nth=7 maybe\n"
            "unmap rx qp=@1 nth=8 maybe\n"
            "event QP_FATAL tx op=RC_SEND_ONLY qp=@1 psn=+0 iter=1\n"
            "link down for=200ms tx op=RC_SEND_ONLY qp=@1 psn=+1 iter=1\n"
            "link down after=1s for=20ms\n");
}

TEST_F(FiredRulesTest, RulesThatDidNotFitIntoTheRecording) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  Packet(Direction::kSent, Operation::kSendOnly, kSendPsn,
         ("link down tx op=" + std::string(80, 'x') + " for=2ms").c_str(),
         Action::kLink);
  Packet(Direction::kSent, Operation::kSendOnly, kSendPsn,
         ("drop tx op=" + std::string(90, 'x')).c_str());
  events::FaultEvent fault;
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.psn = 3;
  events::SetText("delay 2ms nth=" + std::string(90, '1') + " call=ibv_reg_mr",
                  fault.text);
  Add(fault);
  events::SetText("delay 2ms call=ibv_reg_mr nth=" + std::string(90, '1'),
                  fault.text);
  Add(fault);
  const FiredRules fired = RulesThatFired(recording_);
  EXPECT_EQ(fired.rules, 2u);
  EXPECT_EQ(fired.left_out, 2u);
  EXPECT_TRUE(
      fired.text.starts_with("delay 2ms call=ibv_reg_mr nth=3\n"
                             "# left out, the recording has only its "
                             "beginning: link down tx "))
      << fired.text;
}

// The rule has the delay that was drawn, which is more than the minimum, and
// draws none itself.
TEST_F(FiredRulesTest, TheDelayThatWasDrawn) {
  events::FaultEvent fault;
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.delay = 2'345'678;
  fault.psn = 3;
  events::SetText("delay 2ms~1ms call=ibv_reg_mr p=50%", fault.text);
  Add(fault);
  fault.header.qpn = 1;
  fault.opcode = 0x14;
  events::SetText("delay 2ms~1ms op=CM_RTU", fault.text);
  Add(fault);
  EXPECT_EQ(Rules(),
            "delay 2345678ns call=ibv_reg_mr nth=3\n"
            "delay 2345678ns tx op=CM_RTU nth=3\n");
}

TEST_F(FiredRulesTest, RulesWithTabs) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  Packet(Direction::kSent, Operation::kSendOnly, kSendPsn,
         "link\tdown\ttx\tnth=1\tfor=2ms", Action::kLink);
  events::FaultEvent fault;
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.psn = 3;
  events::SetText("delay\t2ms\tcall=ibv_reg_mr\tnth=3", fault.text);
  Add(fault);
  EXPECT_EQ(Rules(),
            "delay 2ms call=ibv_reg_mr nth=3\n"
            "link down for=2ms tx op=RC_SEND_ONLY qp=@1 psn=+0 iter=1\n");
}

TEST_F(FiredRulesTest, MessagesOfTheCmByTheirNumber) {
  events::FaultEvent fault;
  fault.header.qpn = 1;
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.opcode = 0x13;
  fault.psn = 2;
  events::SetText("delay 5ms~1ms op=CM_REP|CM_RTU p=30%", fault.text);
  Add(fault);
  fault.opcode = 0x14;
  fault.way = static_cast<uint8_t>(events::WhichWay::kReceived);
  Add(fault);
  EXPECT_EQ(Rules(),
            "delay 5ms tx op=CM_REP nth=2\n"
            "delay 5ms rx op=CM_RTU nth=2\n");
}

// A target has a connection for each CONNECT, an initiator one after the other.
TEST_F(FiredRulesTest, PacketsOfDcTargetsAreLeftOut) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  const auto packet = [this](Direction direction, Operation operation,
                             const char* rule) {
    Packet(direction, operation, kSendPsn + 1, rule, Action::kDrop, 0,
           Transport::kDc);
  };
  packet(Direction::kSent, Operation::kConnect, "drop tx");
  packet(Direction::kReceived, Operation::kAcknowledge, "drop rx");
  EXPECT_EQ(Rules(),
            "drop tx op=DC_CONNECT qp=@1 psn=+1 iter=1\n"
            "drop rx op=DC_ACKNOWLEDGE qp=@1 psn=+1 iter=1 maybe\n");
  packet(Direction::kReceived, Operation::kConnect, "drop rx p=1%");
  packet(Direction::kSent, Operation::kAcknowledge, "drop tx p=1%");
  const FiredRules fired = RulesThatFired(recording_);
  EXPECT_EQ(fired.rules, 2u);
  EXPECT_TRUE(fired.text.ends_with(
      "# left out, a DC target counts PSNs from each CONNECT: drop rx p=1%\n"
      "# left out, a DC target counts PSNs from each CONNECT: drop tx p=1%\n"))
      << fired.text;
}

TEST_F(FiredRulesTest, CallsAndCompletionsByTheirNumber) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Call("ibv_reg_mr", 1, "addr=0x1");
  Call("ibv_reg_mr", 0,
       "addr=0x1 refused: fault rule 1 (fail ibv_reg_mr ENOMEM p=50%)", 12);
  Call("ibv_reg_mr", 0, "addr=0x1 refused: length: too long", 22);
  Connect();
  Complete(128);
  Complete(0);
  CompletionFault("complete RETRY_EXC_ERR p=5%", Action::kComplete);
  Complete(1, 12);
  CompletionFault("late-completion rx nth=2", Action::kLateCompletion);
  Complete(128);
  EXPECT_EQ(Rules(),
            "fail ibv_reg_mr ENOMEM nth=2\n"
            "complete RETRY_EXC_ERR tx qp=@1 nth=2\n"
            "# left out, a matter of time: late-completion rx nth=2\n");
}

TEST_F(FiredRulesTest, ACompletionThatARuleHasHitCounts) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  CompletionFault("complete RETRY_EXC_ERR p=5%", Action::kComplete);
  Complete(1, 12);
  Complete(1, 5);
  // After a reset.
  Complete(0);
  CompletionFault("complete RETRY_EXC_ERR p=5%", Action::kComplete);
  Complete(1, 12);
  EXPECT_EQ(Rules(),
            "complete RETRY_EXC_ERR tx qp=@1 nth=1\n"
            "complete RETRY_EXC_ERR tx qp=@1 nth=3\n");
}

// A held packet is in the recording only when it is delivered.
TEST_F(FiredRulesTest, AReceivedPacketThatWasHeld) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  events::FaultEvent fault;
  fault.header.id = 77;
  fault.header.qpn = kQpn;
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.delay = 2'000'000;
  events::SetText("delay 2ms rx", fault.text);
  Add(fault);
  Packet(Direction::kReceived, Operation::kSendOnly, kReceivePsn + 1);
  recording_.packets.back().cause = 77;
  EXPECT_EQ(Rules(),
            "delay 2000000ns rx op=RC_SEND_ONLY qp=@1 psn=+1 iter=1\n");
}

// The recording has the packet first, and then its copy, which has the fault.
TEST_F(FiredRulesTest, AReceivedPacketThatCameTwice) {
  Call("ibv_create_qp", 1, "qp_type=0x2 qp_num=0x51");
  Connect();
  Packet(Direction::kReceived, Operation::kSendOnly, kReceivePsn + 1);
  Packet(Direction::kReceived, Operation::kSendOnly, kReceivePsn + 1,
         "duplicate rx nth=1", Action::kDuplicate);
  EXPECT_EQ(Rules(), "duplicate rx op=RC_SEND_ONLY qp=@1 psn=+1 iter=1\n");
}

TEST_F(FiredRulesTest, SeveralFailuresOfACall) {
  constexpr char kRefused[] =
      "addr=0x1 refused: fault rule 1 (fail ibv_reg_mr ENOMEM p=50%)";
  Call("ibv_reg_mr", 1, "addr=0x1");
  Call("ibv_reg_mr", 0, kRefused, 12);
  Call("ibv_reg_mr", 1, "addr=0x1");
  Call("ibv_reg_mr", 0, kRefused, 12);
  Call("ibv_post_send", 12,
       "refused: fault rule 2 (fail ibv_post_send ENOMEM nth=9)", 12);
  EXPECT_EQ(Rules(),
            "fail ibv_reg_mr ENOMEM nth=2\n"
            "fail ibv_reg_mr ENOMEM nth=4\n"
            "# left out, a recording does not count posts: fail ibv_post_send "
            "ENOMEM nth=9\n");
}

// A recording does not contain the calls of librdmacm and the posts, but it has
// the numbers of those that fail.
TEST_F(FiredRulesTest, FailuresOfCallsThatAreNotRecorded) {
  Call("rdma_connect", 111,
       "refused: fault rule 1, call 3 (fail rdma_connect ECONNREFUSED p=50%)",
       111);
  Call("ibv_post_send", 12,
       "refused: fault rule 2, call 70 (fail ibv_post_send ENOMEM p=1%)", 12);
  EXPECT_EQ(Rules(),
            "fail rdma_connect ECONNREFUSED nth=3\n"
            "fail ibv_post_send ENOMEM nth=70\n");
}

TEST_F(FiredRulesTest, SaysWhatItLeavesOut) {
  Connect();
  Packet(Direction::kSent, Operation::kSendOnly, kSendPsn, "drop tx nth=1");
  EXPECT_EQ(Rules(),
            "# left out, its queue pair's creation is not recorded: drop tx "
            "nth=1\n");
}

// The rules of a recording that was cut off may not be all.
TEST_F(FiredRulesTest, ARecordingThatWasCutOff) {
  std::vector<uint8_t> bytes;
  events::AppendBeginning({}, &bytes);
  events::FaultEvent fault;
  fault.header.id = 2;
  fault.action = static_cast<uint8_t>(Action::kDelay);
  fault.psn = 3;
  events::SetText("delay 2ms call=ibv_reg_mr p=50%", fault.text);
  events::AppendEvent(fault, &bytes);
  events::AppendEvent(fault, &bytes);
  const std::string path = testing::TempDir() + "/cut.pcapng";
  const auto run = [&](size_t size, std::string* text) {
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(bytes.data(), 1, size, file), size);
    std::fclose(file);
    char* data = nullptr;
    size_t length = 0;
    std::FILE* const out = open_memstream(&data, &length);
    const int status = RunFaultsOf(path, out, stderr);
    std::fclose(out);
    text->assign(data, length);
    std::free(data);
    return status;
  };
  std::string text;
  EXPECT_EQ(run(bytes.size(), &text), 0);
  EXPECT_TRUE(text.starts_with("# 2 of the faults of ")) << text;
  EXPECT_EQ(run(bytes.size() - 5, &text), 1);
  EXPECT_TRUE(text.starts_with("# 1 of the faults of ")) << text;
}

}  // namespace
}  // namespace rxe_user_cli
