#include "tools/trace/sqlog.h"

#include <gtest/gtest.h>
#include <stdio.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "rxe_user/observe/trace_events.h"
#include "tools/trace/sim_recorder.h"
#include "transport/sim/pair.h"

namespace trace {
namespace {

namespace events = rxe_user::trace;
using nlohmann::json;

constexpr char kSchema[] = "docs/sqlog.schema.json";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(SqlogTest, TheSchemaIsThatOfTheTable) {
  EXPECT_EQ(ReadAll(kSchema), SqlogSchema())
      << "bazel run //tools/trace:sqlog_schema > " << kSchema;
}

// Runs the validator on a qlog file. Returns its output, and sets `*status`.
std::string Validate(const std::string& file, int* status) {
  const std::string command = "python3 tools/trace/validate_sqlog.py " +
                              std::string(kSchema) + " " + file + " 2>&1";
  FILE* const out = ::popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = std::fread(part, 1, sizeof(part), out)) > 0;) {
    text.append(part, n);
  }
  *status = ::pclose(out);
  return text;
}

// A recorded connection whose first packet is lost, with an event of each kind.
class SqlogFileTest : public testing::Test {
 protected:
  SqlogFileTest()
      : a_(&pair_.net, pair_.a.node, "client \"\n\x1b\xff", 1),
        b_(&pair_.net, pair_.b.node, "server", 1) {
    pair_.net.filter = [this](const sim::Node&, const wire::PacketView&) {
      return ++packets_ != 1;
    };
    pair_.Connect();
  }

  template <typename... Event>
  void AddAll() {
    (AddOne<Event>(), ...);
  }
  template <typename Event>
  uint64_t AddOne() {
    Event event;
    event.header.qpn = pair_.a.qp->qpn();
    event.header.thread = 4711;
    event.header.cause = last_;
    return last_ = a_.Add(event);
  }

  std::string Write() {
    for (const std::string& path :
         {a_.Write("sqlog_a.pcapng"), b_.Write("sqlog_b.pcapng")}) {
      files_.push_back(std::make_unique<Recording>());
      EXPECT_TRUE(ReadRecording(path, files_.back().get()));
    }
    timeline_ = MakeTimeline({files_[0].get(), files_[1].get()}, {});
    const Conversation conversation = Analyze(&timeline_);
    const std::string path = testing::TempDir() + "/x.sqlog";
    std::FILE* const out = std::fopen(path.c_str(), "wb");
    const auto writer = MakeSqlogWriter(out);
    EXPECT_TRUE(writer->Write(timeline_, conversation) && writer->End());
    std::fclose(out);
    return path;
  }
  static std::vector<json> Records(const std::string& path) {
    std::vector<json> records;
    std::stringstream text(ReadAll(path));
    for (std::string line; std::getline(text, line, '\x1e');) {
      if (!line.empty()) records.push_back(json::parse(line));
    }
    return records;
  }

  sim::Pair pair_;
  SimRecorder a_;
  SimRecorder b_;
  int packets_ = 0;
  uint64_t last_ = 0;
  std::vector<std::unique_ptr<Recording>> files_;
  Timeline timeline_;
};

TEST_F(SqlogFileTest, EachRecordFitsTheSchema) {
  AddAll<events::CallEvent, events::PostedEvent, events::BegunEvent,
         events::CompletedEvent, events::PolledEvent, events::QpStateEvent,
         events::TimerEvent, events::RetransmissionEvent, events::PathEvent,
         events::CnpEvent, events::AsyncEventEvent, events::NotificationEvent,
         events::CmMessageEvent, events::OverflowEvent, events::FaultEvent,
         events::FaultRuleEvent, events::MissedEvent, events::IncidentEvent>();
  pair_.a.Write(1, 0, 0, 3000);
  pair_.a.Read(2, 0, 0, 3000);
  pair_.Run();
  const std::string path = Write();
  int status = 0;
  const std::string text = Validate(path, &status);
  EXPECT_EQ(status, 0) << text;
  for (const char* const line :
       {"file 1\n", "rdma:call 1\n", "rdma:cnp 1\n", "rdma:fault_rule 1\n",
        "rdma:incident 1\n", "rdma:packet_lost 1\n", "rdma:recording 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }

  const std::vector<json> records = Records(path);
  ASSERT_GT(records.size(), 1u);
  const json& trace = records[0]["trace"];
  EXPECT_EQ(trace["common_fields"]["reference_time"]["epoch"]
                .get<std::string>()
                .substr(0, 11),
            "2026-11-27T");
  EXPECT_EQ(trace["vantage_point"]["type"], "unknown");
  std::map<std::string, size_t> names;
  double last = 0;
  for (size_t i = 1; i < records.size(); ++i) {
    const json& record = records[i];
    EXPECT_GE(record["time"].get<double>(), last) << record;
    last = record["time"];
    ++names[record["name"]];
    if (record["name"] != "rdma:retransmission") continue;
    EXPECT_EQ(record["data"]["trigger"], "NAK: PSN sequence error");
    EXPECT_EQ(record["system_info"]["thread_id"], 4711);
    char group[24];
    std::snprintf(group, sizeof(group), "A 0x%06x", pair_.a.qp->qpn());
    EXPECT_EQ(record["group_id"], group);
  }
  size_t sent = 0, received = 0;
  for (const Arrow& arrow : timeline_.arrows) {
    sent += arrow.sent != nullptr;
    received += arrow.received != nullptr;
  }
  EXPECT_EQ(names["rdma:packet_sent"], sent);
  EXPECT_EQ(names["rdma:packet_received"], received);
  // The trigger of an event is its cause.
  for (const json& record : records) {
    if (record.value("name", "") == "rdma:begun") {
      EXPECT_EQ(record["data"]["trigger"], "posted") << record;
    }
  }
}

// The schema refuses unknown records and members.
TEST_F(SqlogFileTest, TheSchemaRefusesOtherRecords) {
  AddAll<events::PostedEvent>();
  const std::string path = Write();
  const std::vector<json> records = Records(path);
  const auto refuses = [&](const json& changed) {
    const std::string other = testing::TempDir() + "/other.sqlog";
    std::ofstream(other) << '\x1e' << records[0].dump() << "\n\x1e"
                         << changed.dump() << "\n";
    int status = 0;
    Validate(other, &status);
    return status != 0;
  };
  const json* posted = nullptr;
  for (const json& record : records) {
    if (record.value("name", "") == "rdma:posted") posted = &record;
  }
  ASSERT_NE(posted, nullptr);
  EXPECT_FALSE(refuses(*posted));
  json changed = *posted;
  changed["data"]["bytes"] = "many";
  EXPECT_TRUE(refuses(changed));
  changed = *posted;
  changed["data"]["colour"] = 1;
  EXPECT_TRUE(refuses(changed));
  changed = *posted;
  changed["data"].erase("wr_id");
  EXPECT_TRUE(refuses(changed));
  changed = *posted;
  changed["name"] = "rdma:unknown";
  EXPECT_TRUE(refuses(changed));
}

}  // namespace
}  // namespace trace
