// Recordings of a simulated connection, of both ends, with events.
#include "tests/fuzz/seeds.h"
#include "tools/trace/sim_recorder.h"
#include "transport/sim/pair.h"

namespace fuzz {

std::vector<Bytes> MadeSeeds() {
  sim::PairOptions options;
  options.link.loss = 100'000;
  sim::Pair pair(options);
  trace::SimRecorder a(&pair.net, pair.a.node, "client", 1);
  trace::SimRecorder b(&pair.net, pair.b.node, "server", 2, 1'000'000);
  pair.Connect();
  rxe_user::trace::PostedEvent posted;
  posted.header.qpn = 5;
  rxe_user::trace::CompletedEvent completed;
  completed.posted = a.Add(posted);
  a.Add(completed);
  a.Add(rxe_user::trace::QpStateEvent());
  b.Add(rxe_user::trace::CallEvent());
  pair.a.Write(1, 0, 0, 3000);
  pair.a.Read(2, 0, 0, 3000);
  pair.b.Write(3, 0, 0, 100);
  pair.Run();
  return {a.bytes(), b.bytes()};
}

}  // namespace fuzz
