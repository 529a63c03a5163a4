#include "transport/sim/uc_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/congestion/path.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::kMillisecond;
using transport::SendOpcode;

namespace {

// Messages of each end after the network is repaired.
constexpr size_t kLastMessages = 12;

}  // namespace

// --- Building.

UcRun::UcRun(uint64_t seed) : ServiceRun(seed, true) {
  DrawMaxLength(70'000);
  first_messages_ = random_.Between(10, max_length_ > 20'000 ? 40 : 100);
  complete_ = random_.Percent(25);
  network_.SetAllLinks(BadLink());
  MakeEnd(ends_[0], 0x0a0001);
  MakeEnd(ends_[1], 0x0b0002);
  for (End& end : ends_) {
    end.peer = &ends_[&end == &ends_[0]];
    end.plenty = complete_ || random_.Percent(60);
    MakeMessages(end);
  }
}

LinkProfile UcRun::BadLink() const {
  LinkProfile link = scenario_.link;
  if (complete_) {
    link.loss = link.corrupt = link.reorder = 0;
    link.queue_bytes = 0;
    // With jitter, a duplicate may overtake.
    if (link.duplicate != 0) link.jitter = 0;
  }
  return link;
}

void UcRun::MakeEnd(End& end, uint32_t qpn) {
  end.node = &AddHost();
  end.pool.bytes = (first_messages_ + kLastMessages) *
                       (2 * uint64_t{slot_bytes_} + max_length_ + kGap) +
                   kGap;
  end.pool.Register(*end.node,
                    0x700000000000 + (static_cast<uint64_t>(qpn) << 20));
  uint8_t* const buffer = end.pool.buffer.get();
  network_.random().Fill(buffer, end.pool.bytes);
  end.before.assign(buffer, buffer + end.pool.bytes);
  transport::QpConfig config = Config(transport::QpType::kUc, qpn, *end.node,
                                      &end.send_cq, &end.recv_cq);
  config.capacity = {.max_send_wr = 256,
                     .max_recv_wr = 256,
                     .max_send_sge = 2,
                     .max_recv_sge = 2,
                     .max_inline_data = 256};
  end.qp = transport::MakeQueuePair(end.node->endpoint(), config);
}

void UcRun::MakeMessages(End& end) {
  const size_t count = first_messages_ + kLastMessages;
  const uint64_t sources = count * slot_bytes_;
  const uint64_t targets = 2 * sources + kGap;
  for (size_t i = 0; i < count; ++i) {
    Message message;
    message.opcode =
        random_.Pick({SendOpcode::kSend, SendOpcode::kSendWithImm,
                      SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImm});
    uint32_t length = random_.Below(max_length_ + 1);
    if (random_.Percent(40)) {
      // Around a packet boundary.
      const int64_t packets = random_.Below(max_length_ / path_mtu_ + 1);
      length = std::clamp<int64_t>(packets * path_mtu_ + random_.Between(-1, 1),
                                   0, max_length_);
    }
    DrawUnreliableFlags(message, length);
    if (message.has_imm()) {
      message.imm_be = static_cast<uint32_t>(random_.Next());
    }
    DrawContent(message, length);
    message.local = {&end.pool, sources + i * slot_bytes_};
    message.remote = {&end.peer->pool, targets + i * (max_length_ + kGap)};
    end.messages.push_back(std::move(message));
  }
  end.messages.back().flags |= transport::kSendSignaled;
}

void UcRun::Connect(End& end) {
  const size_t index = &end - ends_;
  const EndScenario* const as = scenario_.connections[0].end;
  transport::QpAttributes to = Attributes(
      end.peer->qp->qpn(), end.node->address(), end.peer->node->address());
  to.access_flags =
      transport::kAccessLocalWrite | transport::kAccessRemoteWrite;
  to.sq_psn = as[index].first_psn;
  to.rq_psn = as[1 - index].first_psn;
  to.av.source_port = static_cast<uint16_t>(0xc001 + index);
  BringUp(*end.qp, to);
  network_.Touch(*end.node);
  network_.rules().Watch({.host = end.node->index(),
                          .qpn = end.qp->qpn(),
                          .peer_host = end.peer->node->index(),
                          .peer_qpn = end.peer->qp->qpn(),
                          .first_psn = to.sq_psn,
                          .path_mtu = path_mtu_,
                          .reliable = false});
}

void UcRun::MakeSilent(End& end) {
  const uint32_t kind = random_.Below(4);
  if (kind == 0) {  // always
    end.silent_until = transport::kNever;
  } else if (kind == 1) {
    end.silent_from = random_.Below(2'000) * kMicrosecond;
    end.silent_until =
        end.silent_from + random_.Pick<Time>({1, 20, 1'000}) * kMillisecond;
  }
}

void UcRun::FilterAnswers() {
  network_.filter = [this](const Node& from, const wire::PacketView& packet) {
    if (!packet.info().is_response) return true;
    const End& end = ends_[from.index()];
    const bool silent =
        network_.now() >= end.silent_from && network_.now() < end.silent_until;
    answers_ += !silent;
    return !silent;
  };
}

void UcRun::Play() {
  for (End& end : ends_) MakeSilent(end);
  if (ends_[0].silent_until != 0 || ends_[1].silent_until != 0) FilterAnswers();
  for (End& end : ends_) Connect(end);
  for (End& end : ends_) {
    if (end.plenty) PostReceives(end, first_messages_);
    network_.At(0, *end.node, [this, &end] { RunApp(end); });
  }
  Finish();
  // A damaged packet that was accepted may have had any effect.
  if (checker_.failed() || network_.undetected() != 0) return;
  if (complete_ && network_.refused() == 0) {
    for (const End& end : ends_) CheckArrived(end, 0);
  }
  may_come_ = first_messages_;
  network_.SetAllLinks({});
  for (End& end : ends_) {
    PostReceives(end, end.received.size() + kLastMessages);
  }
  for (End& end : ends_) {
    while (end.posted < end.messages.size()) PostSend(end);
  }
  Finish();
  for (const End& end : ends_) CheckArrived(end, first_messages_);
}

// --- The application.

void UcRun::RunApp(End& end) {
  TakeSends(end);
  for (const Completion& completion : end.recv_cq.TakeAll()) {
    OnReceived(end, completion);
  }
  if (end.posted == first_messages_) return;
  if (!end.plenty) {
    PostReceives(
        end, std::min(end.receives_posted + random_.Below(4), first_messages_));
  }
  PostSends(end, first_messages_);
  RunAgain(*end.node, DrawPause(), [this, &end] { RunApp(end); });
}

void UcRun::PostReceives(End& end, size_t limit) {
  while (end.receives_posted < limit) PostReceive(end);
}

void UcRun::PostReceive(End& end) {
  const size_t index = end.receives_posted++;
  const transport::Sge sge = {end.pool.region.va + Slot(index), slot_bytes_,
                              end.pool.region.lkey};
  const int error =
      end.qp->PostReceive({.wr_id = index, .sges = {&sge, 1}}, network_.now());
  if (error != 0) {
    FailAt(end, absl::StrCat("post_recv ", index, ": ", std::strerror(error)));
  }
  network_.Touch(*end.node);
}

void UcRun::OnReceived(End& end, const Completion& completion) {
  if (network_.undetected() != 0) return;
  if (completion.status != transport::WcStatus::kSuccess ||
      completion.wr_id != end.received.size() ||
      completion.wr_id >= end.receives_posted) {
    FailAt(end, absl::StrCat("receive ", completion.wr_id, " instead of ",
                             end.received.size(), ": status ",
                             static_cast<int>(completion.status)));
    return;
  }
  const End& peer = *end.peer;
  // Takes the first match: if an in-order assignment exists, this finds one.
  const size_t first =
      std::max(may_come_, end.received.empty() ? 0 : end.received.back() + 1);
  size_t index = first;
  while (index < peer.posted &&
         !Matches(peer.messages[index], completion,
                  DataOf(end, peer.messages[index], completion.wr_id))) {
    ++index;
  }
  if (index >= peer.posted) {
    FailAt(end, absl::StrCat("receive ", completion.wr_id, " of ",
                             completion.byte_len,
                             " bytes is none of the messages from ",
                             end.received.empty() ? 0 : end.received.back() + 1,
                             " to ", peer.posted));
    return;
  }
  end.received.push_back(index);
}

const uint8_t* UcRun::DataOf(const End& end, const Message& message,
                             size_t receive) const {
  return message.writes() ? message.remote.bytes()
                          : end.pool.buffer.get() + Slot(receive);
}

// --- Final checks.

void UcRun::Finish() {
  if (!network_.RunUntilIdle(network_.now() + 60 * transport::kSecond) &&
      !checker_.failed()) {
    Fail("still busy after a minute");
  }
  for (End& end : ends_) {
    RunApp(end);
    CheckQuiet(end);
    CheckAllSent(end);
  }
  if (network_.undetected() != 0) return;
  for (End& end : ends_) {
    // Received data must not change later.
    for (size_t i = 0; i < end.received.size(); ++i) {
      const Message& message = end.peer->messages[end.received[i]];
      if (!message.writes() &&
          !Place{&end.pool, Slot(i)}.Holds(message.content)) {
        FailAt(end, absl::StrCat("receive ", i, " was written again"));
      }
    }
    for (const Message& message : end.peer->messages) {
      CheckTarget(end, message, false);
    }
  }
}

void UcRun::CheckQuiet(const End& end) {
  if (end.qp->state() != transport::QpState::kRts) FailAt(end, "not in RTS");
  CheckIdle(*end.node);
  if (const transport::Path* path = end.qp->path();
      path != nullptr && path->in_flight() != 0) {
    FailAt(end, absl::StrCat(path->in_flight(), " bytes in flight"));
  }
}

void UcRun::CheckTarget(const End& end, const Message& message, bool whole) {
  const uint8_t* const now = message.remote.bytes();
  const uint8_t* const before = end.before.data() + message.remote.offset;
  const uint8_t* const content = message.content.data();
  uint64_t written = 0;
  while (message.writes() && written < message.length()) {
    const size_t bytes =
        std::min<uint64_t>(path_mtu_, message.length() - written);
    if (std::memcmp(now + written, content + written, bytes) != 0) break;
    written += bytes;
  }
  // The guard before it was checked with the previous message.
  const uint64_t room = max_length_ + kGap;
  if (std::memcmp(now + written, before + written, room - written) != 0) {
    FailAt(end, absl::StrCat("the target at ", message.remote.offset,
                             " has more than the beginning of its message"));
  }
  if (whole && written < message.length()) {
    FailAt(end, absl::StrCat("of a WRITE of ", message.length(), " bytes only ",
                             written, " have come"));
  }
}

void UcRun::CheckArrived(const End& end, size_t first) {
  const End& peer = *end.peer;
  size_t consuming = 0;
  for (size_t i = first; i < peer.posted; ++i) {
    const Message& message = peer.messages[i];
    consuming += message.takes_receive();
    if (message.writes()) CheckTarget(end, message, true);
  }
  const size_t received =
      std::count_if(end.received.begin(), end.received.end(),
                    [first](size_t index) { return index >= first; });
  if (received != consuming) {
    FailAt(end, absl::StrCat("of ", consuming, " messages from ", first,
                             " on only ", received, " have come"));
  }
}

void UcRun::Count(Statistics* statistics) {
  Statistics& sum = *statistics;
  sum["answers"] = answers_;
  sum["complete"] = complete_ && network_.refused() == 0;
  for (const End& end : ends_) {
    sum["sent"] += end.posted;
    sum["received"] += end.received.size();
    for (size_t i = 0; i < end.posted; ++i) {
      sum["consuming"] += end.messages[i].takes_receive();
    }
  }
}

}  // namespace sim
