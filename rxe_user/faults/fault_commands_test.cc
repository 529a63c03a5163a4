#include "rxe_user/faults/fault_commands.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/faults/rule_parser.h"
#include "wire/address.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using Kind = FaultCommand::Kind;

std::unique_ptr<ProcessFaults> Faults(const std::string& rules) {
  FaultSettings settings;
  EXPECT_EQ(transport::faults::ParseRules(rules, &settings.rules),
            std::nullopt);
  return std::make_unique<ProcessFaults>(std::move(settings), 0);
}

absl::StatusOr<std::vector<FaultRuleStatus>> Ask(ProcessFaults* faults,
                                                 const FaultCommand& command) {
  return ReadFaultAnswer(AnswerFaultCommand(FaultCommandText(command), faults));
}

// "1 drop rx", one for each rule.
std::vector<std::string> Rules(
    const absl::StatusOr<std::vector<FaultRuleStatus>>& rules) {
  EXPECT_TRUE(rules.ok()) << rules.status();
  std::vector<std::string> texts;
  if (!rules.ok()) return texts;
  for (const FaultRuleStatus& rule : *rules) {
    texts.push_back(std::to_string(rule.number) + " " + rule.text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(FaultCommands, AddListRemoveClear) {
  const auto faults = Faults("fail ibv_reg_mr ENOMEM");
  ASSERT_NE(faults->DecideCall("ibv_reg_mr", std::nullopt).rule, nullptr);
  EXPECT_EQ(Rules(Ask(faults.get(), {Kind::kAdd, "drop rx nth=1\nce tx", {}})),
            (Texts{"2 drop rx nth=1", "3 ce tx"}));
  EXPECT_TRUE(faults->concerns_received());
  const auto list = Ask(faults.get(), {});
  EXPECT_EQ(Rules(list),
            (Texts{"1 fail ibv_reg_mr ENOMEM", "2 drop rx nth=1", "3 ce tx"}));
  EXPECT_EQ((*list)[0].fired, 1u);
  EXPECT_EQ((*list)[0].matched, 1u);
  EXPECT_STREQ((*list)[0].target, "call");
  EXPECT_STREQ((*list)[1].target, "packet");
  EXPECT_EQ(Rules(Ask(faults.get(), {Kind::kRemove, "", {2}})),
            Texts{"2 drop rx nth=1"});
  EXPECT_FALSE(faults->concerns_received());
  EXPECT_EQ(Rules(Ask(faults.get(), {Kind::kRemove, "", {}})),
            (Texts{"1 fail ibv_reg_mr ENOMEM", "3 ce tx"}));
  EXPECT_EQ(Rules(Ask(faults.get(), {})), Texts{});
  EXPECT_EQ(faults->DecideCall("ibv_reg_mr", std::nullopt).rule, nullptr);
}

// The removal used to end the stall, although that of the other rule lasted.
TEST(FaultCommands, TheShorterOfTwoStallsIsRemoved) {
  const auto faults = Faults("stall 9ms nth=1; stall 2ms nth=2");
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kSendOnly);
  std::vector<uint8_t> bytes(
      wire::GetOpcodeInfo(headers.bth.opcode).header_length + wire::kIcrcSize);
  wire::EmitHeaders(headers, bytes.data());
  wire::PacketView packet;
  ASSERT_EQ(wire::PacketView::Parse(bytes, &packet), wire::ParseError::kOk);
  for (int i = 0; i < 2; ++i) {
    faults->Decide({.transmitted = false,
                    .qpn = 1,
                    .packet = &packet,
                    .peer = *wire::IpAddress::Parse("192.0.2.7")},
                   1000);
  }
  EXPECT_EQ(faults->Status()[1].fired, 1u);
  const transport::Time end = 1000 + 9 * transport::kMillisecond;
  EXPECT_EQ(faults->stall().until, end);
  EXPECT_TRUE(Ask(faults.get(), {Kind::kRemove, "", {2}}).ok());
  EXPECT_EQ(faults->stall().until, end);
  EXPECT_TRUE(Ask(faults.get(), {Kind::kRemove, "", {1}}).ok());
  EXPECT_EQ(faults->stall().until, 0);
}

TEST(FaultCommands, NothingIsDoneByHalf) {
  const auto faults = Faults("drop rx");
  const auto wrong = [&](ProcessFaults* of, const std::string& command) {
    const auto answer = ReadFaultAnswer(AnswerFaultCommand(command, of));
    EXPECT_FALSE(answer.ok()) << command;
    return std::string(answer.status().message());
  };
  EXPECT_EQ(wrong(faults.get(), "faults add\nce tx\ndrop nth=0").substr(0, 28),
            "line 2, column 10: '0': nth=");
  EXPECT_EQ(wrong(faults.get(), "faults remove 1 2"), "there is no rule 2");
  for (const char* const command :
       {"", "faults", "faults remove one", "faults remove -1", "faults explode",
        "faults list "}) {
    EXPECT_EQ(wrong(faults.get(), command), "no such command");
  }
  EXPECT_EQ(Rules(Ask(faults.get(), {})), Texts{"1 drop rx"});
  EXPECT_EQ(wrong(nullptr, "faults list"),
            "its faults are off; start it with rxe-user run --faults none, to "
            "add rules later");
}

// A signal handler that ends the program may have interrupted the lock's
// holder.
TEST(FaultCommands, TheEndOfTheProgramDoesNotWaitForTheLock) {
  const auto faults = Faults("drop rx");
  EXPECT_EQ(faults->StatusAtExit(std::chrono::milliseconds(0)).size(), 1u);
  faults->LockForFork();
  EXPECT_TRUE(faults->StatusAtExit(std::chrono::milliseconds(0)).empty());
  faults->WarnAtExit();
  faults->UnlockAfterFork();
}

TEST(FaultCommands, AnswersThatAreNone) {
  for (const char* const answer :
       {"", "rules", "rules\n1 packet", "rules\none packet 1 1 drop",
        "process 5\n"}) {
    EXPECT_FALSE(ReadFaultAnswer(answer).ok()) << answer;
  }
}

}  // namespace
}  // namespace rxe_user
