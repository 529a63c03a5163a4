// Many queue pairs between two nodes on one path. Tests stop, kill and revive
// their peers.
#ifndef TRANSPORT_SIM_HOST_PAIR_H_
#define TRANSPORT_SIM_HOST_PAIR_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/pair.h"
#include "transport/sim/queues.h"
#include "transport/testing/bring_up.h"

namespace sim {

// The traffic of one queue pair.
struct Traffic {
  transport::SendOpcode opcode = transport::SendOpcode::kRdmaRead;
  uint32_t bytes = 64;
  uint32_t depth = 1;  // messages outstanding

  bool operator<(const Traffic& other) const {
    return std::tie(opcode, bytes, depth) <
           std::tie(other.opcode, other.bytes, other.depth);
  }
};

// Two nodes with queue pairs between them, over 10 Gb/s.
class HostPair {
 public:
  static constexpr size_t kBuffer = 1 << 20;

  struct End {
    SimCq send_cq;
    SimCq recv_cq;
    std::unique_ptr<transport::QueuePair> qp;
  };
  struct Connection {
    End a;
    End b;
    Traffic traffic;
    // Post times of outstanding messages, oldest first.
    std::vector<Time> posted;
    uint64_t completed = 0;
    uint64_t failed = 0;
    Time worst = 0;  // longest time from post to completion
  };

  explicit HostPair(uint32_t path_mtu) : mtu_(path_mtu), net_(1, &checker_) {
    LinkProfile link;
    link.bytes_per_us = 1250;
    net_.SetAllLinks(link);
    for (int i = 0; i < 2; ++i) {
      Node& node = net_.AddNode();
      node.profile().bytes_per_us = 1250;
      buffers_[i] = std::vector<uint8_t>(kBuffer);
      regions_[i] = node.memory().Register(kPd, buffers_[i].data(),
                                           uint64_t{0x700000000000} + (i << 24),
                                           kBuffer, kAllAccess);
    }
    net_.filter = [this](const Node&, const wire::PacketView& packet) {
      return !deaf_.contains(packet.bth().dest_qpn);
    };
  }

  Connection& Connect(uint8_t timeout) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& connection = *connections_.back();
    const auto number = static_cast<uint32_t>(connections_.size());
    Create(connection.a, 0, 0x0a0000 + number);
    Create(connection.b, 1, 0x0b0000 + number);
    ToRts(connection.a, connection.b, 0, timeout);
    ToRts(connection.b, connection.a, 1, timeout);
    for (int i = 0; i < 64; ++i) PostReceive(connection);
    return connection;
  }

  // Drops all packets of the connection, both ways.
  void Silence(const Connection& connection) {
    deaf_.insert(connection.a.qp->qpn());
    deaf_.insert(connection.b.qp->qpn());
  }
  void Restore(const Connection& connection) {
    deaf_.erase(connection.a.qp->qpn());
    deaf_.erase(connection.b.qp->qpn());
  }
  void DestroyPeer(Connection& connection) { connection.b.qp.reset(); }

  void Post(Connection& connection) {
    const transport::Sge sge = {regions_[0].va, connection.traffic.bytes,
                                regions_[0].lkey};
    transport::SendRequest request;
    request.opcode = connection.traffic.opcode;
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = regions_[1].va;
    request.rkey = regions_[1].rkey;
    connection.posted.push_back(net_.now());
    if (connection.a.qp->PostSend(request, net_.now()) != 0) {
      checker_.Fail("cannot post");
    }
    net_.Touch(net_.node(0));
  }

  // Keeps the traffic going while RunTo runs.
  void Start(Connection& connection, const Traffic& traffic) {
    connection.traffic = traffic;
    running_.push_back(&connection);
    for (uint32_t i = 0; i < traffic.depth; ++i) Post(connection);
  }
  void Stop(const Connection& connection) { std::erase(running_, &connection); }

  // Runs until `end` or until `done`.
  bool RunTo(Time end, const std::function<bool()>& done = nullptr) {
    const auto step = [&] {
      for (const auto& connection : connections_) {
        if (connection->a.send_cq.size() > 0) TakeCompletions(*connection);
        if (connection->b.recv_cq.size() > 0) {
          const size_t taken = connection->b.recv_cq.TakeAll().size();
          if (connection->b.qp == nullptr) continue;
          for (size_t i = 0; i < taken; ++i) PostReceive(*connection);
        }
      }
      return done != nullptr && done();
    };
    const bool reached = net_.RunUntil(step, end);
    if (!reached && !checker_.failed()) net_.RunTo(end);
    return reached;
  }

  // Resets the post time of outstanding messages to now.
  void RestartClock(Connection& connection) {
    std::fill(connection.posted.begin(), connection.posted.end(), net_.now());
  }
  // Longest time from post to completion, including outstanding messages.
  Time WorstOf(const Connection& connection) const {
    return connection.posted.empty()
               ? connection.worst
               : std::max(connection.worst,
                          net_.now() - connection.posted.front());
  }

  Time now() const { return net_.now(); }
  Network& net() { return net_; }
  const Checker& checker() const { return checker_; }

 private:
  static constexpr transport::PdId kPd = 7;

  void Create(End& end, int node, uint32_t qpn) {
    transport::QpConfig config;
    config.qpn = qpn;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 64,
                       .max_recv_wr = 64,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
    config.memory = &net_.node(node).memory();
    config.send_cq = &end.send_cq;
    config.recv_cq = &end.recv_cq;
    config.events = &events_;
    end.qp = transport::MakeQueuePair(net_.node(node).endpoint(), config);
  }

  void ToRts(End& end, const End& other, int node, uint8_t timeout) {
    transport::QpAttributes to =
        transport::ConnectionTo(other.qp->qpn(), net_.node(node).address(),
                                net_.node(1 - node).address());
    to.path_mtu = mtu_;
    to.av.source_port = static_cast<uint16_t>(0xc000 + end.qp->qpn() % 1024);
    to.timeout = timeout;
    if (transport::BringUp(*end.qp, to, net_.now()) != 0) {
      checker_.Fail("cannot connect");
    }
  }

  void PostReceive(Connection& connection) {
    const transport::Sge sge = {regions_[1].va, kBuffer, regions_[1].lkey};
    connection.b.qp->PostReceive({.wr_id = 0, .sges = {&sge, 1}}, net_.now());
    net_.Touch(net_.node(1));
  }

  void TakeCompletions(Connection& connection) {
    const bool runs = std::find(running_.begin(), running_.end(),
                                &connection) != running_.end();
    for (const transport::Completion& wc : connection.a.send_cq.TakeAll()) {
      connection.worst =
          std::max(connection.worst, net_.now() - connection.posted.front());
      connection.posted.erase(connection.posted.begin());
      if (wc.status != transport::WcStatus::kSuccess) {
        ++connection.failed;
        continue;
      }
      ++connection.completed;
      if (runs) Post(connection);
    }
  }

  const uint32_t mtu_;
  Checker checker_;
  Network net_;
  SimEvents events_;
  std::vector<uint8_t> buffers_[2];
  Region regions_[2];
  std::set<uint32_t> deaf_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<const Connection*> running_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_HOST_PAIR_H_
