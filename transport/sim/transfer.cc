#include "transport/sim/transfer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/sim/pair.h"

namespace sim {
namespace {

// Maximum virtual time of a transfer, at any loss.
constexpr Time kLimit = 60 * transport::kSecond;

PairOptions PairFor(const TransferOptions& options) {
  PairOptions pair;
  pair.seed = options.seed;
  pair.path_mtu = options.path_mtu;
  pair.buffer_bytes = options.message_bytes;
  pair.node.batches = options.batches;
  pair.link = LinkProfile();
  pair.link.delay = options.link.delay;
  pair.link.bytes_per_us = options.link.bytes_per_us;
  return pair;
}

// Nothing passes between the nodes from `begin` until `end`.
void ScheduleOutage(Network* net, Node* from, Node* to, Time begin, Time end) {
  const auto set_down = [=](bool down) {
    net->link(*from, *to).profile.down = down;
    net->link(*to, *from).profile.down = down;
  };
  net->At(begin, *from, [=] { set_down(true); });
  net->At(end, *from, [=] { set_down(false); });
}

// Takes all arenas of a node, which then buffers nothing.
std::vector<std::unique_ptr<transport::PacketArena>> TakeAll(
    transport::PacketArenaPool* pool) {
  std::vector<std::unique_ptr<transport::PacketArena>> taken;
  do {
    taken.push_back(pool->Take());
  } while (taken.back() != nullptr);
  return taken;
}

}  // namespace

double TransferResult::goodput() const {
  if (elapsed == 0) return 0;
  return static_cast<double>(bytes) * 1000 / static_cast<double>(elapsed);
}

double TransferResult::spurious() const {
  const uint64_t sent = data_packets - std::min(data_packets, lost);
  if (needed_packets == 0 || sent <= needed_packets) return 0;
  return static_cast<double>(sent - needed_packets) /
         static_cast<double>(needed_packets);
}

LinkProfile TransferLink() {
  LinkProfile link;
  link.delay = 25 * transport::kMicrosecond;
  link.bytes_per_us = 1250;
  return link;
}

TransferResult RunTransfer(const TransferOptions& options) {
  const bool read = options.opcode == transport::SendOpcode::kRdmaRead;
  TransferResult result;
  Pair pair(PairFor(options));
  Node& from = read ? *pair.b.node : *pair.a.node;
  Node& to = read ? *pair.a.node : *pair.b.node;
  pair.net.link(from, to).profile = options.link;
  pair.net.link(to, from).profile.loss = options.other_loss;
  pair.net.link(to, from).profile.overtake = options.link.overtake;
  transport::PacketArenaPool* const pool = pair.b.node->endpoint().arena_pool();
  std::vector<std::unique_ptr<transport::PacketArena>> taken;
  if (options.peer_keeps_nothing) taken = TakeAll(pool);
  const uint32_t packets =
      (options.message_bytes + options.path_mtu - 1) / options.path_mtu;
  result.needed_packets = uint64_t{packets} * options.messages;
  uint64_t in_flight = 0;
  uint64_t samples = 0;
  pair.net.filter = [&](const Node& sender, const wire::PacketView& packet) {
    if (&sender == &from && !packet.payload().empty()) ++result.data_packets;
    if (&sender == pair.a.node) {
      in_flight += pair.a.qp->Report().in_flight;
      ++samples;
    }
    return true;
  };
  pair.Connect();
  const Time start = pair.now();
  if (options.outage > 0) {
    const Time begin = start + options.outage_start;
    ScheduleOutage(&pair.net, &from, &to, begin, begin + options.outage);
  }
  uint32_t posted = 0;
  uint32_t completed = 0;
  Time last = start;
  const auto post = [&] {
    if (posted == options.messages) return;
    const int error = read ? pair.a.Read(posted, 0, 0, options.message_bytes)
                           : pair.a.Write(posted, 0, 0, options.message_bytes);
    if (error != 0) pair.checker.Fail("cannot post");
    ++posted;
  };
  for (uint32_t i = 0; i < options.depth; ++i) post();
  const auto step = [&] {
    for (const transport::Completion& wc : pair.a.TakeSend()) {
      if (wc.status != transport::WcStatus::kSuccess) {
        pair.checker.Fail(absl::StrCat("message ", wc.wr_id, " ended with ",
                                       static_cast<int>(wc.status)));
        continue;
      }
      ++completed;
      result.longest_pause = std::max(result.longest_pause, pair.now() - last);
      last = pair.now();
      post();
    }
    return completed == options.messages;
  };
  const bool all = pair.net.RunUntil(step, start + kLimit);
  result.elapsed = last - start;
  result.bytes = uint64_t{completed} * options.message_bytes;
  if (!all) result.failed = absl::StrCat(completed, " messages completed");
  if (pair.checker.failed()) result.failed = pair.checker.ToString();
  if (all && std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(),
                         options.message_bytes) != 0) {
    result.failed = "the bytes differ";
  }
  for (auto& arena : taken) pool->Return(std::move(arena));
  result.done = result.failed.empty();
  result.lost = pair.net.link(from, to).lost;
  result.mean_in_flight = samples == 0 ? 0 : in_flight / samples;
  result.requester = pair.a.qp->Report().counters;
  result.responder = pair.b.qp->Report().counters;
  return result;
}

}  // namespace sim
