#include "transport/sim/incast.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/pair.h"
#include "transport/sim/queues.h"
#include "transport/testing/bring_up.h"

namespace sim {
namespace {

using transport::QpState;
using transport::SendOpcode;

constexpr transport::PdId kPd = 7;
// Posted by each: more than a window.
constexpr int kDepth = 80;
// Of each way, without a queue.
constexpr Time kDelay = 25 * transport::kMicrosecond;
// How often applications look at their completions.
constexpr Time kPoll = 20 * transport::kMicrosecond;

struct Side {
  Node* node = nullptr;
  std::unique_ptr<uint8_t[]> buffer;
  Region region;
  SimCq cq;
  std::unique_ptr<transport::QueuePair> qp;
};

struct Connection {
  Side sender;
  Side receiver;
  Time begins = 0;
  int posted = 0;
  int completed = 0;
  int counted = 0;  // completed after the warm-up
  Side& requester(bool read) { return read ? receiver : sender; }
  Side& responder(bool read) { return read ? sender : receiver; }
};

class Incast {
 public:
  explicit Incast(const IncastOptions& options)
      : options_(options),
        read_(options.opcode == SendOpcode::kRdmaRead),
        network_(options.seed, &checker_) {
    LinkProfile link;
    link.delay = kDelay;
    network_.SetAllLinks(link);
    target_ = &AddNode();
    target_->profile().hardware_cnps = options.hardware_target;
    SwitchPort& port = target_->port();
    port.bytes_per_us = 1250;
    port.queue_bytes = 1 << 20;
    if (options.marks) {
      port.mark_from = 40'000;
      port.mark_all = 200'000;
    }
    for (int i = 0; i < options.senders; ++i) Connect(i);
  }

  IncastResult Run() {
    RunTo(options_.warm_up);
    SwitchPort& port = target_->port();
    const SwitchPort before = port;
    port.longest = 0;
    for (auto& connection : connections_) {
      connection->counted = connection->completed;
    }
    RunTo(options_.end);
    IncastResult result;
    double sum = 0;
    double squares = 0;
    for (const auto& connection : connections_) {
      const double part = connection->completed - connection->counted;
      sum += part;
      squares += part * part;
    }
    const double time =
        static_cast<double>(options_.end - options_.warm_up) / 1000;
    result.failed = checker_.failed() ? checker_.ToString() : "";
    result.fairness =
        squares == 0 ? 0 : sum * sum / (options_.senders * squares);
    result.goodput = sum * options_.message / time;
    result.utilisation = static_cast<double>(port.bytes - before.bytes) /
                         static_cast<double>(port.bytes_per_us) / time;
    result.longest_queue = port.longest;
    result.longest_queue_ever = std::max(port.longest, before.longest);
    result.dropped = port.dropped - before.dropped;
    result.marked = port.marked - before.marked;
    return result;
  }

 private:
  Node& AddNode() {
    Node& node = network_.AddNode();
    node.profile().batches = options_.batches;
    return node;
  }

  void Create(Side& side, Node* node, uint32_t qpn) {
    side.node = node;
    side.buffer.reset(new uint8_t[options_.message]());
    side.region = node->memory().Register(
        kPd, side.buffer.get(),
        0x700000000000 + (static_cast<uint64_t>(qpn) << 20), options_.message,
        kAllAccess);
    transport::QpConfig config;
    config.qpn = qpn;
    config.pd = kPd;
    config.capacity = {.max_send_wr = kDepth,
                       .max_recv_wr = 1,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
    config.memory = &node->memory();
    config.send_cq = config.recv_cq = &side.cq;
    side.qp = transport::MakeQueuePair(node->endpoint(), config);
  }

  void Connect(int index) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& connection = *connections_.back();
    connection.begins = index * options_.apart;
    const auto number = static_cast<uint32_t>(index);
    Create(connection.receiver, target_, 0x100000 + number);
    Create(connection.sender, &AddNode(), 0x200000 + number);
    for (Side* side : {&connection.sender, &connection.receiver}) {
      const Side& other =
          side == &connection.sender ? connection.receiver : connection.sender;
      transport::QpAttributes to;
      to.path_mtu = options_.path_mtu;
      to.access_flags = kAllAccess;
      to.dest_qpn = other.qp->qpn();
      to.av.source = side->node->address();
      to.av.destination = other.node->address();
      to.av.source_port = static_cast<uint16_t>(0xc000 + number);
      to.max_rd_atomic = to.max_dest_rd_atomic = 16;
      to.min_rnr_timer = 12;
      to.timeout = 17;  // half a second: nothing here is to wait for it
      to.retry_cnt = 7;
      to.rnr_retry = 7;
      for (const QpState state :
           {QpState::kInit, QpState::kRtr, QpState::kRts}) {
        to.state = state;
        const int error = side->qp->Modify(
            to, transport::RequiredAttributes(transport::QpType::kRc, state),
            network_.now());
        if (error != 0) checker_.Fail(absl::StrCat("modify: ", error));
      }
    }
  }

  void Post(Connection& connection) {
    Side& from = connection.requester(read_);
    const Side& to = connection.responder(read_);
    const transport::Sge sge = {from.region.va, options_.message,
                                from.region.lkey};
    transport::SendRequest request;
    request.opcode = options_.opcode;
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = to.region.va;
    request.rkey = to.region.rkey;
    if (from.qp->PostSend(request, network_.now()) != 0) {
      checker_.Fail("cannot post");
    }
    ++connection.posted;
  }

  void RunTo(Time end) {
    while (network_.now() < end && !checker_.failed()) {
      for (auto& connection : connections_) {
        for (const transport::Completion& wc :
             connection->requester(read_).cq.TakeAll()) {
          if (wc.status != transport::WcStatus::kSuccess) {
            checker_.Fail(absl::StrCat("ended with status ",
                                       static_cast<int>(wc.status)));
          }
          ++connection->completed;
        }
        if (network_.now() < connection->begins ||
            connection->posted - connection->completed == kDepth) {
          continue;
        }
        while (connection->posted - connection->completed < kDepth) {
          Post(*connection);
        }
        network_.Touch(*connection->requester(read_).node);
      }
      network_.RunTo(std::min(end, network_.now() + kPoll));
    }
  }

  const IncastOptions& options_;
  const bool read_;
  Checker checker_;
  Network network_;
  Node* target_ = nullptr;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace

IncastResult RunIncast(const IncastOptions& options) {
  return Incast(options).Run();
}

}  // namespace sim
