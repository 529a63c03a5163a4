#include "tests/fuzz/endpoint_watch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "transport/qp/peer_port.h"
#include "transport/qp/queue_pair.h"

namespace fuzz {

using transport::Completion;
using transport::Counter;
using transport::kEndpointCounters;
using transport::kQpCounters;
using transport::QpCounters;
using transport::QpReport;
using transport::WcStatus;

namespace {

bool CountsDrops(const Counter& counter) {
  return counter.name.starts_with("rx_drop");
}

// Whether the states are equal except for counters.
bool SameState(const QpReport& a, const QpReport& b) {
  return a.state == b.state && a.source == b.source &&
         a.destination == b.destination && a.send_psn == b.send_psn &&
         a.unacked_psn == b.unacked_psn && a.send_queued == b.send_queued &&
         a.expected_psn == b.expected_psn && a.recv_queued == b.recv_queued &&
         a.window == b.window && a.in_flight == b.in_flight &&
         a.smoothed_rtt == b.smoothed_rtt;
}

// Requires that only drops were counted, and returns their number.
uint64_t NewDrops(const QpCounters& before, const QpCounters& after) {
  uint64_t drops = 0;
  for (const Counter& counter : kQpCounters) {
    const uint64_t more = counter.Read(&after) - counter.Read(&before);
    if (CountsDrops(counter)) {
      drops += more;
    } else {
      Require(more == 0, "a stranger was counted as the peer");
    }
  }
  return drops;
}

uint64_t Drops(const transport::EndpointCounters& counters) {
  uint64_t drops = 0;
  for (uint64_t dropped : counters.dropped) drops += dropped;
  return drops;
}

}  // namespace

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

Snapshot::Snapshot(const sim::Pair::Side& side)
    : side(&side),
      report(side.qp->Report()),
      endpoint(side.node->endpoint().counters()),
      copied_from(side.node->memory().bytes_copied_from()),
      copied_to(side.node->memory().bytes_copied_to()),
      atomics(side.node->memory().atomics()),
      completions(side.send_cq.pushed() + side.recv_cq.pushed()),
      has_transmit(side.node->endpoint().HasTransmit()),
      next_timeout(side.node->endpoint().NextTimeout()) {}

void Watch::OnReset() {
  completed_ = posted_;
  if (side_->srq == nullptr) receives_completed_ = receives_posted_;
  send_failed_ = receive_failed_ = false;
}

void Watch::NoteReceived(const Snapshot& before, bool to_drop,
                         transport::Time now) {
  const Snapshot after(*side_);
  const uint64_t datagrams =
      after.endpoint.rx_datagrams - before.endpoint.rx_datagrams;
  const uint64_t endpoint_drops =
      Drops(after.endpoint) - Drops(before.endpoint);
  Require(endpoint_drops <= datagrams, "more drops than datagrams");
  if (!to_drop) {
    Require(
        after.report.counters.rx_packets - before.report.counters.rx_packets <=
            datagrams - endpoint_drops,
        "more packets than datagrams");
    return;
  }
  Require(SameState(before.report, after.report), "a stranger changed a state");
  Require(before.copied_from == after.copied_from &&
              before.copied_to == after.copied_to &&
              before.atomics == after.atomics,
          "a stranger reached memory");
  Require(before.completions == after.completions,
          "a stranger completed something");
  // A due timer is handled with any packet. Queue pairs that wait for the pace
  // of responses get their turn within 2 us (ResponsePace).
  constexpr transport::Time kTurns = 2 * transport::kMicrosecond;
  Require(before.next_timeout <= now + kTurns ||
              (before.has_transmit == after.has_transmit &&
               before.next_timeout == after.next_timeout),
          "a stranger is answered");
  Require(endpoint_drops +
                  NewDrops(before.report.counters, after.report.counters) ==
              datagrams,
          "a drop was not counted, or twice");
}

void Watch::TakeCompletions() {
  const bool reliable = side_->qp->config().type == transport::QpType::kRc;
  for (const Completion& completion : side_->TakeSend()) {
    Require(completion.wr_id == completed_ && completed_ < posted_,
            absl::StrCat("send ", completion.wr_id, " of ", posted_,
                         " completed after ", completed_));
    ++completed_;
    if (completion.status != WcStatus::kSuccess) {
      ++errors_;
      send_failed_ = true;
    } else {
      Require(!send_failed_ || !reliable, "a send succeeded after an error");
    }
  }
  for (const Completion& completion : side_->TakeRecv()) {
    // A receive that was taken from an SRQ before a reset does not complete.
    Require(
        completion.wr_id == receives_completed_ ||
            (side_->srq != nullptr && completion.wr_id > receives_completed_),
        "a receive completed out of turn");
    Require(completion.wr_id < receives_posted_, "a receive out of nothing");
    receives_completed_ = completion.wr_id + 1;
    if (completion.status != WcStatus::kSuccess) {
      receive_failed_ = true;
    } else {
      Require(!receive_failed_ || !reliable,
              "a receive succeeded after an error");
    }
  }
}

void Watch::Check(transport::Time now) {
  TakeCompletions();
  const QpCounters& counters = side_->qp->counters();
  if (counters.rx_packets != seen_packets_) {
    seen_packets_ = counters.rx_packets;
    heard_ = checked_;
  }
  checked_ = now;
  Require(uint64_t{counters.sequence_naks_sent} + counters.rnr_naks_sent +
                  counters.fatal_naks_sent <=
              counters.rx_packets,
          "more NAKs than packets");
  Require(counters.cnps_sent <= counters.ecn_marked, "more CNPs than marks");
}

bool Watch::PortIsPinned(transport::Time now) const {
  return side_->qp->link().peer_icrc.Knows(peer_port_) &&
         now - heard_ < transport::PeerPort::kSilence;
}

void Watch::RequireWritten(const sim::Pair::Side& peer) const {
  for (const auto& [offset, length] : written_) {
    const uint8_t* const sent = side_->buffer.get() + kHalf + offset;
    Require(std::equal(sent, sent + length, peer.buffer.get() + offset),
            "what arrived is not what was sent");
  }
}

}  // namespace fuzz
