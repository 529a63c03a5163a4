// Checks sums computed by Gloo's verbs transport. Usage: gloo_check RANK RANKS
// FOLDER DEVICE GID-INDEX. FOLDER is empty and shared by all ranks. Prints
// "rank RANK ok".
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  gloo::transport::ibverbs::attr attr;
  attr.name = argv[4];
  attr.port = 1;
  attr.index = std::atoi(argv[5]);
  gloo::rendezvous::FileStore store(argv[3]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::ibverbs::CreateDevice(attr);
  context->connectFullMesh(store, device);
  // Gloo requires that its buffers have been sent when they are destroyed, and
  // its algorithms do not wait for that. They are kept until all ranks have
  // finished.
  std::list<std::vector<float>> data;
  std::vector<std::unique_ptr<gloo::Algorithm>> used;
  for (const int count : {1, 1000, 1 << 20}) {
    for (int round = 0; round < 6; ++round) {
      data.emplace_back(count, static_cast<float>(rank + 1));
      const std::vector<float*> pointers{data.back().data()};
      if (round % 2 == 0) {
        used.push_back(std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
            context, pointers, count));
      } else {
        used.push_back(std::make_unique<gloo::AllreduceRingChunked<float>>(
            context, pointers, count));
      }
      used.back()->run();
      for (const float sum : data.back()) {
        if (sum != static_cast<float>(ranks * (ranks + 1) / 2)) {
          std::printf("rank %d: wrong sum %f\n", rank, sum);
          _exit(1);
        }
      }
    }
  }
  used.push_back(std::make_unique<gloo::BarrierAllToAll>(context));
  used.back()->run();
  std::printf("rank %d ok\n", rank);
  std::fflush(stdout);
  store.set("through-" + std::to_string(rank), {'1'});
  std::vector<std::string> all;
  for (int r = 0; r < ranks; ++r) {
    all.push_back("through-" + std::to_string(r));
  }
  store.wait(all);
  _exit(0);
}
