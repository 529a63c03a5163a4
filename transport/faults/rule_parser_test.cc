#include "transport/faults/rule_parser.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "transport/faults/profiles.h"
#include "wire/aeth.h"
#include "wire/opcode.h"

namespace transport::faults {
namespace {

using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;

std::vector<Rule> Parsed(const std::string& text) {
  std::vector<Rule> rules;
  const auto error = ParseRules(text, &rules);
  EXPECT_FALSE(error.has_value()) << text << ": " << error->ToString();
  return rules;
}

Rule One(const std::string& text) {
  const std::vector<Rule> rules = Parsed(text);
  EXPECT_EQ(rules.size(), 1u) << text;
  return rules.empty() ? Rule() : rules[0];
}

std::string ErrorOf(const std::string& text) {
  std::vector<Rule> rules;
  const auto error = ParseRules(text, &rules);
  EXPECT_TRUE(rules.empty()) << text;
  return error ? error->ToString() : "";
}

TEST(RuleParserTest, ActionsWithTheirArguments) {
  EXPECT_EQ(One("drop").action, Action::kDrop);
  EXPECT_EQ(One("duplicate").action, Action::kDuplicate);
  EXPECT_EQ(One("ce").action, Action::kMark);
  EXPECT_EQ(One("delay 2ms").delay, 2 * kMillisecond);
  EXPECT_EQ(One("delay 2ms").jitter, 0);
  const Rule delay = One("delay 1.5s~20us");
  EXPECT_EQ(delay.action, Action::kDelay);
  EXPECT_EQ(delay.delay, 1500 * kMillisecond);
  EXPECT_EQ(delay.jitter, 20 * kMicrosecond);
  EXPECT_EQ(One("reorder 3").behind, 3u);
  EXPECT_EQ(One("stall 20ms").action, Action::kStall);
  EXPECT_EQ(One("stall 20ms").delay, 20 * kMillisecond);
  EXPECT_EQ(One("corrupt byte=17").corruption.byte, 17u);
  EXPECT_EQ(One("corrupt byte=17").corruption.field, Corruption::kByte);
  EXPECT_FALSE(One("corrupt psn").corruption.resealed);
  EXPECT_TRUE(One("corrupt psn resealed").corruption.resealed);
}

TEST(RuleParserTest, EventsLinkAndMemory) {
  const Rule timed = One("event PORT_ERR after=2s");
  EXPECT_EQ(timed.action, Action::kEvent);
  EXPECT_EQ(timed.event, 10);
  EXPECT_EQ(timed.event_of, EventOf::kDevice);
  EXPECT_TRUE(timed.is_timed);
  EXPECT_STREQ(TargetOf(timed), "time");
  const Rule at_packet = One("event PORT_ERR rx op=data");
  EXPECT_FALSE(at_packet.is_timed);
  EXPECT_EQ(at_packet.times, 1u);
  EXPECT_STREQ(TargetOf(at_packet), "packet");
  const Rule qp = One("event QP_FATAL every=3");
  EXPECT_EQ(qp.event_of, EventOf::kQueuePair);
  EXPECT_FALSE(qp.is_timed);
  EXPECT_EQ(qp.times, UINT64_MAX);
  EXPECT_FALSE(One("event CQ_ERR").is_timed);

  EXPECT_TRUE(One("link down").is_timed);
  EXPECT_FALSE(One("link down").link_up);
  EXPECT_TRUE(One("link up after=1s maybe").link_up);
  const Rule down = One("link down tx nth=5 for=200ms");
  EXPECT_FALSE(down.is_timed);
  EXPECT_EQ(down.during, 200 * kMillisecond);

  EXPECT_EQ(One("unmap rx qp=@1 bytes>10 nth=3").action, Action::kUnmap);
  EXPECT_STREQ(TargetOf(Action::kUnmap), "transfer");

  EXPECT_TRUE(ErrorOf("event QP_FATALITY")
                  .starts_with("line 1, column 7: event needs a name, one of: "
                               "CQ_ERR, QP_FATAL, "));
  EXPECT_TRUE(ErrorOf("event").starts_with("line 1, column 6: event needs"));
  EXPECT_EQ(ErrorOf("link sideways"),
            "line 1, column 6: link needs down or up: link down after=1s "
            "for=200ms");
  EXPECT_TRUE(
      ErrorOf("link up tx")
          .starts_with(
              "line 1, column 9: 'tx': link up comes at a time, and stays;"));
  EXPECT_TRUE(ErrorOf("link up for=1s").starts_with("line 1, column 9: "));
  EXPECT_TRUE(
      ErrorOf("unmap op=data")
          .starts_with(
              "line 1, column 7: 'op=data' is for packets, and unmap is for "));
}

TEST(RuleParserTest, MessagesWorkRequestsAndCalls) {
  EXPECT_EQ(One("drop msg=3").message, 3u);
  EXPECT_EQ(One("drop wr_id=0x12").wr_id, 0x12u);
  EXPECT_EQ(One("complete GENERAL_ERR wr_id=4").wr_id, 4u);
  EXPECT_EQ(One("fail ibv_post_send EIO wr_id=4").wr_id, 4u);
  const Rule slow = One("delay 5ms call=ibv_reg_mr");
  EXPECT_EQ(slow.call, "ibv_reg_mr");
  EXPECT_STREQ(TargetOf(slow), "call");
  const Rule event = One("event DEVICE_FATAL call=ibv_post_send wr_id=3");
  EXPECT_FALSE(event.is_timed);
  EXPECT_EQ(event.times, 1u);
  EXPECT_STREQ(TargetOf(event), "call");
  EXPECT_FALSE(One("event CQ_ERR msg=2").is_timed);

  EXPECT_EQ(ErrorOf("drop msg=0"),
            "line 1, column 10: '0': msg= needs a number from 1 on: msg=3 is "
            "the third message");
  EXPECT_EQ(ErrorOf("drop wr_id=x"),
            "line 1, column 12: 'x': wr_id= needs a number: wr_id=7 or "
            "wr_id=0x12");
  EXPECT_TRUE(ErrorOf("delay 1ms call=ibv_regmr")
                  .starts_with("line 1, column 16: 'ibv_regmr': call= needs "
                               "one of: ibv_advise_mr, "));
  EXPECT_EQ(ErrorOf("no-ack call=ibv_reg_mr").find("line 1, column 8: "), 0u);
  EXPECT_EQ(
      ErrorOf("nak REM_OP_ERR call=ibv_reg_mr").find("line 1, column 16: "),
      0u);
  EXPECT_TRUE(ErrorOf("drop call=ibv_reg_mr")
                  .starts_with("line 1, column 6: at a call there are delay "));
  EXPECT_TRUE(ErrorOf("event QP_FATAL call=ibv_reg_mr")
                  .starts_with("line 1, column 16: at a call there are "));
  EXPECT_TRUE(ErrorOf("delay 1ms rx call=ibv_reg_mr")
                  .starts_with("line 1, column 11: 'rx' is for packets, and "
                               "delay is for calls with call=; "));
  EXPECT_TRUE(ErrorOf("fail ibv_reg_mr EIO wr_id=1")
                  .starts_with("line 1, column 21: wr_id= is that of a work "
                               "request, and ibv_reg_mr takes none"));
  EXPECT_TRUE(ErrorOf("fail ibv_reg_mr EIO call=ibv_reg_mr")
                  .starts_with("line 1, column 21: "));
  EXPECT_TRUE(ErrorOf("complete GENERAL_ERR msg=1")
                  .starts_with("line 1, column 22: 'msg=1' is for packets, "));
  EXPECT_TRUE(ErrorOf("unmap wr_id=1").starts_with("line 1, column 7: "));
}

TEST(RuleParserTest, MessagesOfTheCm) {
  const Rule rule = One("delay 5ms rx op=CM_REQ|CM_SIDR_REP nth=1");
  EXPECT_EQ(rule.mads, 1u << 0 | 1u << 8);
  EXPECT_TRUE(rule.opcodes.none());
  EXPECT_FALSE(rule.transmitted);
  EXPECT_STREQ(TargetOf(rule), "message");
  EXPECT_EQ(One("drop").mads, 0);

  EXPECT_TRUE(ErrorOf("drop op=CM_REQ|data")
                  .starts_with("line 1, column 9: 'CM_REQ|data': op= needs "));
  EXPECT_TRUE(ErrorOf("drop op=CM_REQUEST").starts_with("line 1, column 9: "));
  EXPECT_EQ(
      ErrorOf("ce op=CM_REQ"),
      "line 1, column 1: messages of the CM can be lost, late or doubled: "
      "drop, delay T, duplicate");
  EXPECT_TRUE(ErrorOf("drop op=CM_REQ psn=+3")
                  .starts_with("line 1, column 16: 'psn=+3' is for packets, "
                               "and drop is for messages of the CM; after it "
                               "come rx, tx, op=, peer=, nth="));
}

TEST(RuleParserTest, AnswersToRequests) {
  const Rule none = One("no-ack");
  EXPECT_EQ(none.action, Action::kNoAck);
  EXPECT_TRUE(none.received);
  EXPECT_FALSE(none.transmitted);
  EXPECT_TRUE(none.opcodes[MakeOpcode(Transport::kRc, Operation::kSendOnly)]);
  EXPECT_TRUE(
      none.opcodes[MakeOpcode(Transport::kXrc, Operation::kReadRequest)]);
  EXPECT_TRUE(none.opcodes[MakeOpcode(Transport::kDc, Operation::kSendOnly)]);
  EXPECT_FALSE(none.opcodes[MakeOpcode(Transport::kUc, Operation::kSendOnly)]);
  EXPECT_FALSE(
      none.opcodes[MakeOpcode(Transport::kRc, Operation::kAcknowledge)]);
  // No connection executes it.
  EXPECT_FALSE(none.opcodes[MakeOpcode(Transport::kDc, Operation::kConnect)]);
  // What an atomic acknowledges has data, too.
  EXPECT_EQ(One("nak REM_OP_ERR op=RC_FETCH_ADD").opcodes.count(), 1u);
  EXPECT_EQ(One("rnr rx nth=2").action, Action::kRnr);
  EXPECT_EQ(One("rnr rx nth=2").syndrome, std::nullopt);
  // The timers are 10.24, 15.36 and 20.48 ms.
  EXPECT_EQ(One("rnr 10.24ms").syndrome, wire::MakeRnrSyndrome(20));
  EXPECT_EQ(One("rnr 10.25ms rx").syndrome, wire::MakeRnrSyndrome(21));
  EXPECT_EQ(One("rnr 1ns").syndrome, wire::MakeRnrSyndrome(1));
  EXPECT_EQ(One("rnr 655.36ms").syndrome, wire::MakeRnrSyndrome(0));
  EXPECT_EQ(One("nak REM_ACCESS_ERR").action, Action::kNak);
  EXPECT_EQ(One("nak REM_ACCESS_ERR").syndrome,
            wire::MakeNakSyndrome(wire::NakCode::kRemoteAccess));
  EXPECT_EQ(One("nak REM_INV_REQ_ERR").syndrome,
            wire::MakeNakSyndrome(wire::NakCode::kInvalidRequest));
  EXPECT_EQ(One("nak REM_OP_ERR").syndrome,
            wire::MakeNakSyndrome(wire::NakCode::kRemoteOperational));
  EXPECT_EQ(One("nak PSN_SEQUENCE").syndrome,
            wire::MakeNakSyndrome(wire::NakCode::kPsnSequence));
  EXPECT_EQ(ErrorOf("rnr 700ms rx"),
            "line 1, column 5: rnr needs the time after which the peer is to "
            "send again, up to 655.36ms, such as rnr 20ms; or no time, which "
            "is min_rnr_timer of the queue pair");
  EXPECT_EQ(ErrorOf("nak rx"),
            "line 1, column 5: nak needs one of: REM_INV_REQ_ERR, "
            "REM_ACCESS_ERR, REM_OP_ERR, PSN_SEQUENCE");
  EXPECT_EQ(ErrorOf("drop; no-ack tx"),
            "line 1, column 14: no-ack answers requests that arrive: rx, or "
            "neither word");
  EXPECT_EQ(ErrorOf("rnr rx wr_id=7"),
            "line 1, column 8: rnr answers requests of the peer, whose wr_id "
            "is not known; msg= counts them");
  EXPECT_EQ(
      ErrorOf("rnr op=ack"),
      "line 1, column 5: rnr answers requests of RC, XRC and DC, and none "
      "is among these");
}

TEST(RuleParserTest, CallsThatFail) {
  const Rule rule = One("fail ibv_reg_mr ENOMEM nth=2 maybe");
  EXPECT_EQ(rule.action, Action::kFail);
  EXPECT_EQ(rule.call, "ibv_reg_mr");
  EXPECT_EQ(rule.error, ENOMEM);
  EXPECT_FALSE(rule.received || rule.transmitted);
  EXPECT_EQ(ErrorOf("fail ibv_reg_mr"),
            "line 1, column 16: fail ibv_reg_mr needs errno, one of: EPERM, "
            "ENOENT, EINTR, EIO, ENXIO, EAGAIN, ENOMEM, EACCES, EFAULT, EBUSY, "
            "EEXIST, ENODEV, EINVAL, ENFILE, EMFILE, ENOSPC, ERANGE, ENOSYS, "
            "EPROTO, EOPNOTSUPP, ETIMEDOUT, EADDRNOTAVAIL, EADDRINUSE, "
            "ECONNREFUSED, ENETUNREACH, EHOSTUNREACH");
  EXPECT_TRUE(ErrorOf("fail reg_mr ENOMEM")
                  .starts_with(
                      "line 1, column 6: fail needs a call, and then errno: "
                      "fail ibv_reg_mr ENOMEM; the calls are ibv_advise_mr, "));
  EXPECT_EQ(ErrorOf("fail ibv_reg_mr ENOMEM nth=2 qp=@1"),
            "line 1, column 30: 'qp=@1' is for packets, and fail is for calls; "
            "after errno come wr_id= (of posts), nth=, every=, p=, times=, "
            "after=, for=, maybe");
}

TEST(RuleParserTest, Completions) {
  const Rule rule = One("complete RETRY_EXC_ERR tx qp=@2 bytes>5 nth=3");
  EXPECT_EQ(rule.action, Action::kComplete);
  EXPECT_EQ(rule.status, static_cast<uint8_t>(WcStatus::kRetryExceeded));
  EXPECT_FALSE(rule.received);
  EXPECT_EQ(One("overrun rx nth=2").action, Action::kOverrun);
  EXPECT_EQ(One("late-completion").action, Action::kLateCompletion);
  EXPECT_STREQ(TargetOf(Action::kLateCompletion), "completion");
  EXPECT_STREQ(TargetOf(Action::kFail), "call");
  EXPECT_STREQ(TargetOf(Action::kNak), "packet");
  EXPECT_EQ(ErrorOf("complete SUCCESS"),
            "line 1, column 10: complete needs a status, one of: LOC_LEN_ERR, "
            "LOC_QP_OP_ERR, LOC_PROT_ERR, WR_FLUSH_ERR, MW_BIND_ERR, "
            "BAD_RESP_ERR, LOC_ACCESS_ERR, REM_INV_REQ_ERR, REM_ACCESS_ERR, "
            "REM_OP_ERR, RETRY_EXC_ERR, RNR_RETRY_EXC_ERR, REM_ABORT_ERR, "
            "FATAL_ERR, RESP_TIMEOUT_ERR, GENERAL_ERR");
  EXPECT_EQ(ErrorOf("overrun nth=2 op=data"),
            "line 1, column 15: 'op=data' is for packets, and overrun is for "
            "completions; after it come rx (of receives), tx (of sends), qp=, "
            "bytes>, wr_id=, nth=, every=, p=, times=, after=, for=, maybe");
}

TEST(RuleParserTest, Profiles) {
  for (const Profile& profile : kProfiles) {
    for (const Rule& rule : Parsed(std::string(profile.rules))) {
      EXPECT_TRUE(rule.maybe) << profile.name << ": " << rule.text;
    }
    EXPECT_EQ(FindProfile(profile.name), &profile);
  }
  EXPECT_EQ(FindProfile("lossyy"), nullptr);
}

TEST(RuleParserTest, MatchAndWhen) {
  const Rule all = One("drop");
  EXPECT_TRUE(all.received && all.transmitted);
  EXPECT_TRUE(all.opcodes.all());
  EXPECT_TRUE(all.nth.empty());
  const Rule rule =
      One("drop tx op=data qp=@2 peer=192.0.2.1 psn=+5 iter=1 bytes>100 "
          "nth=3|7-9|12- every=2 p=25% times=4 after=1s for=500ms maybe");
  EXPECT_FALSE(rule.received);
  EXPECT_TRUE(rule.transmitted);
  EXPECT_EQ(rule.ordinal, 2u);
  EXPECT_EQ(rule.qpn, std::nullopt);
  EXPECT_EQ(rule.peer, wire::IpAddress::Parse("192.0.2.1"));
  EXPECT_EQ(rule.psn, 5u);
  EXPECT_TRUE(rule.psn_is_relative);
  EXPECT_EQ(rule.iteration, 1u);
  EXPECT_EQ(rule.longer_than, 100u);
  ASSERT_EQ(rule.nth.size(), 3u);
  EXPECT_EQ(rule.nth[0].first, 3u);
  EXPECT_EQ(rule.nth[0].last, 3u);
  EXPECT_EQ(rule.nth[1].first, 7u);
  EXPECT_EQ(rule.nth[1].last, 9u);
  EXPECT_EQ(rule.nth[2].first, 12u);
  EXPECT_EQ(rule.nth[2].last, UINT64_MAX);
  EXPECT_EQ(rule.every, 2u);
  EXPECT_EQ(rule.chance, 0.25);
  EXPECT_EQ(rule.times, 4u);
  EXPECT_EQ(rule.after, kSecond);
  EXPECT_EQ(rule.during, 500 * kMillisecond);
  EXPECT_TRUE(rule.maybe);
  EXPECT_EQ(One("drop qp=0x12 psn=7").qpn, 0x12u);
  EXPECT_FALSE(One("drop qp=0x12 psn=7").psn_is_relative);
}

TEST(RuleParserTest, OpcodesAreThoseOfTheDecoder) {
  const auto has = [](const Rule& rule, Transport transport, Operation op) {
    return rule.opcodes[MakeOpcode(transport, op)];
  };
  const Rule data = One("drop op=data");
  EXPECT_TRUE(has(data, Transport::kRc, Operation::kWriteMiddle));
  EXPECT_TRUE(has(data, Transport::kUd, Operation::kSendOnly));
  EXPECT_TRUE(has(data, Transport::kXrc, Operation::kReadResponseLast));
  EXPECT_FALSE(has(data, Transport::kRc, Operation::kReadRequest));
  EXPECT_FALSE(has(data, Transport::kRc, Operation::kAcknowledge));
  const Rule ack = One("drop op=ack");
  EXPECT_TRUE(has(ack, Transport::kRc, Operation::kAcknowledge));
  EXPECT_TRUE(has(ack, Transport::kDc, Operation::kAtomicAcknowledge));
  EXPECT_FALSE(has(ack, Transport::kRc, Operation::kReadResponseOnly));
  EXPECT_FALSE(ack.opcodes[wire::kOpcodeCnp]);
  const Rule two = One("drop op=RC_RDMA_WRITE_FIRST|RC_FETCH_ADD");
  EXPECT_EQ(two.opcodes.count(), 2u);
  EXPECT_TRUE(has(two, Transport::kRc, Operation::kFetchAdd));
}

TEST(RuleParserTest, RulesByLineSemicolonAndComment) {
  const std::vector<Rule> rules = Parsed(
      "# a comment; drop\n\n  drop tx nth=1 ; ce rx  # why\n;;\nreorder 2\r\n");
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules[0].text, "drop tx nth=1");
  EXPECT_EQ(rules[1].text, "ce rx");
  EXPECT_EQ(rules[2].text, "reorder 2");
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(rules[i].number, i + 1);
}

TEST(RuleParserTest, ErrorsNamePlaceAndRightForm) {
  EXPECT_EQ(ErrorOf("dorp rx"),
            "line 1, column 1: 'dorp' is no action; the actions are drop, "
            "duplicate, delay T, reorder N, corrupt FIELD, ce, stall T, "
            "no-ack, rnr [T], nak CODE, fail CALL ERRNO, complete STATUS, "
            "overrun, late-completion, event NAME, link down|up, unmap");
  EXPECT_EQ(ErrorOf("drop rx;\n  drop op=dat nth=1"),
            "line 2, column 11: 'dat': op= needs data, ack, request, response "
            "or opcodes as rxe-user decode prints them, separated by |: "
            "op=RC_RDMA_WRITE_FIRST|RC_RDMA_WRITE_ONLY; or messages of the CM: "
            "op=CM_REQ|CM_REP");
  EXPECT_EQ(ErrorOf("drop nth=9-7"),
            "line 1, column 10: '9-7': nth= needs numbers and ranges from 1 "
            "on: nth=3, nth=3|7-9, nth=5-");
  EXPECT_EQ(ErrorOf("delay"),
            "line 1, column 6: delay needs a time such as 50us, 2ms or 1.5s "
            "(an hour at most), or a time and up to how much more: delay "
            "2ms~500us");
  EXPECT_EQ(ErrorOf("stall rx"),
            "line 1, column 7: stall needs a time such as 50us, 2ms or 1.5s "
            "(an hour at most): stall 20ms");
  EXPECT_EQ(ErrorOf("drop; ce nht=3"),
            "line 1, column 10: 'nht=3' is no part of a rule; after the action "
            "come rx, tx, op=, qp=, peer=, psn=, iter=, bytes>, msg=, wr_id=, "
            "call=, nth=, every=, p=, times=, after=, for=, maybe");
}

TEST(RuleParserTest, RefusesNonsense) {
  for (const char* text : {"",
                           "  ",
                           "# nothing",
                           "drop rx tx",
                           "drop rx rx",
                           "drop op=",
                           "drop op=data|",
                           "drop op=data op=ack",
                           "drop nth=0",
                           "drop nth=",
                           "drop nth=1|",
                           "drop nth=-3",
                           "drop nth=3--",
                           "drop every=0",
                           "drop p=0",
                           "drop p=1.5",
                           "drop p=101%",
                           "drop p=-1",
                           "drop p=nan",
                           "drop p=inf",
                           "drop times=0",
                           "drop after=5",
                           "drop after=-5s",
                           "drop for=0s",
                           "drop for=99999999999s",
                           "drop qp=@0",
                           "drop qp=@",
                           "drop qp=0x1000000",
                           "drop psn=16777216",
                           "drop psn=+",
                           "drop psn=-1",
                           "drop iter=0",
                           "drop bytes>",
                           "drop bytes>-1",
                           "drop bytes=5",
                           "drop peer=nowhere",
                           "drop peer=",
                           "delay 5",
                           "delay 2h",
                           "delay 2ms~",
                           "delay -2ms",
                           "stall",
                           "stall 0ms",
                           "stall 2ms~1ms",
                           "stall 2h",
                           "rnr 5",
                           "rnr 0ms",
                           "rnr 1ms 2ms",
                           "nak",
                           "fail",
                           "fail ibv_reg_mr 12",
                           "fail ibv_reg_mr ENOMEM rx",
                           "fail ibv_reg_mr ENOMEM op=data",
                           "nak rem_op_err",
                           "no-ack 5ms",
                           "no-ack op=UD_SEND_ONLY",
                           "reorder",
                           "reorder 0",
                           "reorder 5000",
                           "corrupt",
                           "corrupt colour",
                           "corrupt byte=-1",
                           "corrupt byte=70000",
                           "corrupt icrc resealed",
                           "drop resealed",
                           "drop 3",
                           "ce 5us",
                           "drop nth=18446744073709551616",
                           "Drop",
                           "drop\x01 rx"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  std::string many;
  for (size_t i = 0; i <= kMaxRules; ++i) many += "drop\n";
  EXPECT_NE(ErrorOf(many), "");
  EXPECT_NE(ErrorOf(std::string(kMaxRuleText + 1, '#')), "");
}

TEST(RuleParserTest, TellsRulesFromNamesOfFiles) {
  EXPECT_TRUE(LooksLikeRules("drop rx"));
  EXPECT_TRUE(LooksLikeRules("ce"));
  EXPECT_TRUE(LooksLikeRules(" # why\ndrop"));
  EXPECT_TRUE(LooksLikeRules(""));
  EXPECT_FALSE(LooksLikeRules("loss.rules"));
  EXPECT_FALSE(LooksLikeRules("./drop"));
  EXPECT_FALSE(LooksLikeRules("dropped.txt"));
}

}  // namespace
}  // namespace transport::faults
