// Our own transport keeps the rules.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "tools/trace/check.h"
#include "tools/trace/recording.h"
#include "tools/trace/sim_recorder.h"
#include "transport/sim/dc_run.h"
#include "transport/sim/pair.h"
#include "transport/sim/uc_run.h"
#include "transport/sim/ud_run.h"
#include "transport/sim/xrc_run.h"
#include "wire/address.h"
#include "wire/pcapng.h"

namespace trace {
namespace {

using wire::IpAddress;
using wire::pcapng::Direction;

// Our own transport, with losses of every kind of packet.
TEST(CheckTest, OurTransportKeepsTheRules) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    sim::PairOptions options;
    options.seed = seed;
    options.link.loss = 30'000;  // per million
    if (seed > 10) {
      options.link.duplicate = 20'000;
      options.link.reorder = 20'000;
    }
    sim::Pair pair(options);
    SimRecorder a(&pair.net, pair.a.node, "client", 1);
    SimRecorder b(&pair.net, pair.b.node, "server", 2);
    pair.Connect();
    for (uint64_t i = 0; i < 20; ++i) {
      pair.a.Send(i, 0, 5000);  // the first ones get an RNR NAK
      pair.a.Write(100 + i, 0, 8192, 5000);
      pair.a.Read(200 + i, 16384, 8192, 5000);
      pair.a.FetchAdd(300 + i, 32768, 8192, 1);
    }
    for (uint64_t i = 0; i < 20; ++i) pair.b.Receive(i, 65536, 8192);
    pair.Run();
    EXPECT_EQ(pair.a.TakeSend().size(), 80u);
    for (const std::string& path :
         {a.Write("check_a.pcapng"), b.Write("check_b.pcapng")}) {
      Recording recording;
      ASSERT_TRUE(ReadRecording(path, &recording));
      EXPECT_GT(recording.packets.size(), 300u);
      // SimRecorder does not know the IP identification of received packets.
      for (Packet& p : recording.packets) {
        if (p.direction == Direction::kReceived) p.icrc = IcrcVerdict::kUnknown;
      }
      for (const Finding& f : CheckRecording(recording, {})) {
        ADD_FAILURE() << path << " seed " << seed << ": " << f.rule
                      << " packet " << f.frame << ": " << f.what;
      }
    }
  }
}

// Captures of a whole network contain lost packets, so a responder seems to
// have received them; damaged packets have a wrong ICRC.
template <typename Run>
void CheckSeeds(int count) {
  size_t packets = 0;
  for (int seed = 1; seed <= count; ++seed) {
    Run run(seed);
    const std::string path = testing::TempDir() + "/check_seed.pcapng";
    run.network().WritePcap(path);
    ASSERT_TRUE(run.Execute()) << run.checker().ToString();
    Recording recording;
    ASSERT_TRUE(ReadRecording(path, &recording)) << recording.error;
    packets += recording.packets.size();
    std::set<IpAddress> addresses;
    for (const Packet& p : recording.packets) addresses.insert(p.src);
    CheckOptions options;
    options.senders.assign(addresses.begin(), addresses.end());
    for (const Finding& f : CheckRecording(recording, options)) {
      if (f.rule == "icrc" || f.rule == "nak-once") continue;
      ADD_FAILURE() << "seed " << seed << ": " << f.rule << " packet "
                    << f.frame << ": " << f.what;
    }
  }
  EXPECT_GT(packets, 1000u);
}

TEST(CheckTest, OurUnreliableConnectionsKeepTheRules) {
  CheckSeeds<sim::UcRun>(10);
}
TEST(CheckTest, OurDatagramsKeepTheRules) { CheckSeeds<sim::UdRun>(10); }
TEST(CheckTest, OurExtendedConnectionsKeepTheRules) {
  CheckSeeds<sim::XrcRun>(10);
}
TEST(CheckTest, OurDynamicConnectionsKeepTheRules) {
  CheckSeeds<sim::DcRun>(10);
}

}  // namespace
}  // namespace trace
