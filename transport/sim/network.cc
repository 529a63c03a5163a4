#include "transport/sim/network.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "transport/sim/endpoint_call.h"
#include "wire/describe.h"
#include "wire/packet.h"

namespace sim {
namespace {

// A timer that fires this often at one instant is an endless loop.
constexpr uint64_t kMaxTimersAtOnce = 10'000;

}  // namespace

Node::Node(Network* network, int index, const wire::IpAddress& address)
    : index_(index),
      address_(address),
      memory_(&network->checker()),
      endpoint_(std::make_unique<transport::Endpoint>()) {
  ip_id_ = static_cast<uint16_t>(network->random().Next());
}

Network::Network(uint64_t seed, Checker* checker)
    : random_(seed), checker_(checker) {}

Network::~Network() = default;

Node& Network::AddNode(const wire::IpAddress& address) {
  nodes_.push_back(
      std::make_unique<Node>(this, static_cast<int>(nodes_.size()), address));
  return *nodes_.back();
}

Node& Network::AddNode() {
  const size_t host = nodes_.size();
  return AddNode(*wire::IpAddress::Parse(
      absl::StrCat("10.0.", host / 250, ".", host % 250 + 1)));
}

void Network::SetAllLinks(const LinkProfile& profile) {
  all_links_.profile = profile;
  for (auto& [nodes, link] : links_) {
    link.profile = profile;
    link.losing = 0;
  }
}

void Network::WritePcap(const std::string& file) {
  pcap_ = std::make_unique<PcapWriter>(file);
  if (!pcap_->ok()) checker_->Fail(absl::StrCat("cannot write ", file));
}

std::string Network::Describe(std::span<const uint8_t> bytes) {
  wire::PacketView view;
  if (wire::PacketView::Parse(bytes, &view) != wire::ParseError::kOk) {
    return absl::StrCat("unparsable, ", bytes.size(), " bytes");
  }
  return wire::DescribePacket(view);
}

void Network::Trace(const std::string& line) const {
  std::printf("%14.3f us  %s\n", static_cast<double>(now_) / 1000,
              line.c_str());
}

// --- Events.

void Network::Push(Time time, Kind kind, int node, uint32_t index) {
  heap_.push_back({std::max(time, now_), order_++, kind, node, index});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Network::At(Time when, Node& node, std::function<void()> what) {
  uint32_t index;
  if (free_calls_.empty()) {
    index = calls_.size();
    calls_.push_back(std::move(what));
  } else {
    index = free_calls_.back();
    free_calls_.pop_back();
    calls_[index] = std::move(what);
  }
  Push(when, Kind::kCall, node.index(), index);
}

bool Network::Step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  const Event event = heap_.back();
  heap_.pop_back();
  now_ = event.time;
  ++events_;
  Node& node = *nodes_[event.node];
  switch (event.kind) {
    case Kind::kDeliver:
      Deliver(node, *packet_pool_[event.index]);
      free_packets_.push_back(event.index);
      break;
    case Kind::kTimer:
      RunTimer(node);
      break;
    case Kind::kReady:
      node.ready_scheduled_ = false;
      break;
    case Kind::kBatch:
      if (node.batch_.number == event.index) DeliverBatch(node);
      break;
    case Kind::kCall: {
      const std::function<void()> call = std::move(calls_[event.index]);
      calls_[event.index] = nullptr;
      free_calls_.push_back(event.index);
      call();
      break;
    }
  }
  Pump(node);
  return true;
}

bool Network::RunUntil(const std::function<bool()>& done, Time limit) {
  while (!done()) {
    if (checker_->failed() || heap_.empty() || heap_.front().time > limit) {
      return false;
    }
    Step();
  }
  return true;
}

void Network::RunTo(Time when) {
  while (!heap_.empty() && heap_.front().time <= when) Step();
  now_ = std::max(now_, when);
}

bool Network::RunUntilIdle(Time limit) {
  while (!heap_.empty()) {
    if (checker_->failed() || heap_.front().time > limit) return false;
    Step();
  }
  return true;
}

void Network::Touch(Node& node) { Pump(node); }

// --- Timers.

void Network::ArmTimer(Node& node) {
  const Time next = node.endpoint_->NextTimeout();
  if (next == transport::kNever) return;
  const Time when = std::max(next + node.timer_slack_now_, now_);
  // An earlier event is scheduled and will check again.
  if (node.timer_scheduled_ <= when) return;
  node.timer_scheduled_ = when;
  Push(when, Kind::kTimer, node.index(), 0);
}

void Network::RunTimer(Node& node) {
  // Several may be scheduled; each one only checks.
  if (node.timer_scheduled_ <= now_) {
    node.timer_scheduled_ = transport::kNever;
  }
  const Time next = node.endpoint_->NextTimeout();
  if (next > now_) {
    // Early calls must have no effect, so the network makes some.
    if (random_.Percent(5)) {
      const ScopedEndpointCall inside(true);
      node.endpoint_->OnTimer(now_);
    }
    return;
  }
  if (node.profile_.timer_slack > 0) {
    node.timer_slack_now_ = random_.Below(node.profile_.timer_slack);
  }
  if (node.last_time_ != now_) {
    node.last_time_ = now_;
    node.timers_at_once_ = 0;
  }
  if (++node.timers_at_once_ == kMaxTimersAtOnce) {
    checker_->Fail(absl::StrCat("node ", node.index(), ": its timer spins"));
    return;
  }
  const ScopedEndpointCall inside(true);
  node.endpoint_->OnTimer(now_);
}

}  // namespace sim
