#include "transport/endpoint/endpoint_link.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace transport {
namespace {

TEST(TimerHeapTest, AgainstAModel) {
  std::mt19937 random(7);
  std::vector<EndpointLink> links(200);
  std::map<EndpointLink*, Time> model;
  TimerHeap heap;
  for (int i = 0; i < 50000; ++i) {
    EndpointLink* link = &links[random() % links.size()];
    const Time deadline = static_cast<Time>(random() % 1000);
    switch (random() % 4) {
      case 0:
        heap.Remove(link);
        model.erase(link);
        break;
      case 1:
        heap.Set(link, kNever);
        model.erase(link);
        break;
      default:
        heap.Set(link, deadline);
        model[link] = deadline;
    }
    ASSERT_EQ(heap.empty(), model.empty());
    if (model.empty()) continue;
    Time earliest = kNever;
    for (const auto& entry : model) earliest = std::min(earliest, entry.second);
    ASSERT_EQ(heap.top()->deadline, earliest);
  }
}

}  // namespace
}  // namespace transport
