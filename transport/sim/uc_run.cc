#include "transport/sim/uc_run.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::kMillisecond;
using transport::SendOpcode;

namespace {

// Messages of each end after the network is repaired.
constexpr size_t kLastMessages = 12;
// Guard between two targets.
constexpr uint64_t kGap = 64;

}  // namespace

bool UcRun::Message::writes() const {
  return opcode == SendOpcode::kRdmaWrite ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}

bool UcRun::Message::has_imm() const {
  return opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}

UcRun::UcRun(uint64_t seed)
    : scenario_(Scenario::Make(seed)),
      random_(Mix(seed)),
      path_mtu_(scenario_.connections[0].path_mtu),
      max_length_(
          random_.Pick<uint32_t>({300, 3 * path_mtu_, 12 * path_mtu_, 70'000})),
      slot_bytes_((max_length_ + 63) / 64 * 64),
      first_messages_(random_.Between(10, max_length_ > 20'000 ? 40 : 100)),
      complete_(random_.Percent(25)),
      pair_(Options()),
      a_("a", &pair_.a, &b_),
      b_("b", &pair_.b, &a_) {
  int host = 0;
  for (End* end : {&a_, &b_}) {
    end->plenty = complete_ || random_.Percent(60);
    end->side->node->profile() = scenario_.hosts[host].profile;
    end->side->node->memory().set_span_bytes(scenario_.hosts[host].span_bytes);
    ++host;
    MakeMessages(*end);
  }
}

PairOptions UcRun::Options() const {
  const EndScenario* const ends = scenario_.connections[0].end;
  const size_t messages = first_messages_ + kLastMessages;
  PairOptions options;
  options.type = transport::QpType::kUc;
  options.seed = scenario_.seed;
  // Space for receives, message sources, and targets of the peer.
  options.buffer_bytes =
      messages * (2 * uint64_t{slot_bytes_} + max_length_ + kGap) + kGap;
  options.path_mtu = path_mtu_;
  options.access_flags =
      transport::kAccessLocalWrite | transport::kAccessRemoteWrite;
  options.psn_a = ends[0].first_psn;
  options.psn_b = ends[1].first_psn;
  options.link = scenario_.link;
  if (complete_) {
    options.link.loss = options.link.corrupt = options.link.reorder = 0;
    options.link.queue_bytes = 0;
    // With jitter, a duplicate may overtake.
    if (options.link.duplicate != 0) options.link.jitter = 0;
  }
  return options;
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
    if (random_.Percent(70)) message.flags |= transport::kSendSignaled;
    if (random_.Percent(20)) message.flags |= transport::kSendSolicited;
    if (length <= 256 && random_.Percent(30)) {
      message.flags |= transport::kSendInline;
    }
    if (message.has_imm()) {
      message.imm_be = static_cast<uint32_t>(random_.Next());
    }
    message.source = sources + i * slot_bytes_;
    message.target = targets + i * (max_length_ + kGap);
    message.content.resize(length);
    random_.Fill(message.content.data(), length);
    end.messages.push_back(std::move(message));
  }
  end.messages.back().flags |= transport::kSendSignaled;
  const uint8_t* const buffer = end.side->buffer.get();
  end.before.assign(buffer, buffer + end.side->region.length);
}

void UcRun::Watch(const End& end, uint32_t first_psn) {
  pair_.net.rules().Watch({.host = end.side->node->index(),
                           .qpn = end.side->qp->qpn(),
                           .peer_host = end.peer->side->node->index(),
                           .peer_qpn = end.peer->side->qp->qpn(),
                           .first_psn = first_psn,
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
  pair_.net.filter = [this](const Node& from, const wire::PacketView& packet) {
    if (!packet.info().is_response) return true;
    const End& end = from.index() == a_.side->node->index() ? a_ : b_;
    const bool silent =
        pair_.now() >= end.silent_from && pair_.now() < end.silent_until;
    answers_ += !silent;
    return !silent;
  };
}

bool UcRun::Execute() {
  for (End* end : {&a_, &b_}) MakeSilent(*end);
  if (a_.silent_until != 0 || b_.silent_until != 0) FilterAnswers();
  pair_.Connect();
  Watch(a_, a_.side->attributes.sq_psn);
  Watch(b_, b_.side->attributes.sq_psn);
  for (End* end : {&a_, &b_}) {
    while (end->plenty && end->receives_posted < first_messages_) {
      PostReceive(*end);
    }
    pair_.net.At(0, *end->side->node, [this, end] { RunApp(*end); });
  }
  Finish();
  // A damaged packet that was accepted may have had any effect.
  if (checker().failed() || pair_.net.undetected() != 0) {
    return !checker().failed();
  }
  if (complete_ && pair_.net.refused() == 0) {
    for (const End* end : {&a_, &b_}) CheckArrived(*end, 0);
  }
  may_come_ = first_messages_;
  pair_.net.SetAllLinks({});
  for (End* end : {&a_, &b_}) {
    while (end->receives_posted < end->received.size() + kLastMessages) {
      PostReceive(*end);
    }
  }
  for (End* end : {&a_, &b_}) {
    while (end->posted < end->messages.size()) PostSend(*end);
  }
  Finish();
  for (const End* end : {&a_, &b_}) CheckArrived(*end, first_messages_);
  return !checker().failed();
}

// --- The application.

void UcRun::RunApp(End& end) {
  for (const Completion& completion : end.side->TakeSend()) {
    OnSent(end, completion);
  }
  for (const Completion& completion : end.side->TakeRecv()) {
    OnReceived(end, completion);
  }
  if (end.posted == first_messages_) return;
  if (!end.plenty) {
    for (uint64_t i = random_.Below(4);
         i > 0 && end.receives_posted < first_messages_; --i) {
      PostReceive(end);
    }
  }
  for (uint64_t i = random_.Below(6); i > 0 && end.posted < first_messages_;
       --i) {
    PostSend(end);
  }
  const Time pause = random_.Pick<Time>({0, 1, 20, 300}) * kMicrosecond;
  pair_.net.At(pair_.now() + 1 + random_.Below(pause + 1), *end.side->node,
               [this, &end] { RunApp(end); });
}

void UcRun::PostSend(End& end) {
  const size_t index = end.posted++;
  const Message& message = end.messages[index];
  uint8_t* const source = end.side->buffer.get() + message.source;
  std::copy(message.content.begin(), message.content.end(), source);
  // In two pieces.
  const uint32_t first = random_.Below(message.length() + 1);
  const transport::Sge sges[] = {
      end.side->sge(message.source, first),
      end.side->sge(message.source + first, message.length() - first)};
  transport::SendRequest request;
  request.wr_id = index;
  request.opcode = message.opcode;
  request.flags = message.flags;
  request.sges = sges;
  // Inline data has process addresses.
  transport::Sge inlined[] = {sges[0], sges[1]};
  if ((message.flags & transport::kSendInline) != 0) {
    inlined[0].addr = reinterpret_cast<uintptr_t>(source);
    inlined[1].addr = inlined[0].addr + first;
    request.sges = inlined;
  }
  request.imm_be = message.imm_be;
  request.remote_addr = end.peer->side->region.va + message.target;
  request.rkey = end.peer->side->region.rkey;
  const int error = end.side->qp->PostSend(request, pair_.now());
  if (error != 0) {
    Fail(end, absl::StrCat("post_send ", index, ": ", std::strerror(error)));
  }
  if ((message.flags & transport::kSendInline) != 0) {
    random_.Fill(source, message.length());
  }
  pair_.net.Touch(*end.side->node);
}

void UcRun::PostReceive(End& end) {
  const size_t index = end.receives_posted++;
  const int error = end.side->Receive(index, Slot(index), slot_bytes_);
  if (error != 0) {
    Fail(end, absl::StrCat("post_recv ", index, ": ", std::strerror(error)));
  }
}

void UcRun::OnSent(End& end, const Completion& completion) {
  while (end.completed < end.posted &&
         (end.messages[end.completed].flags & transport::kSendSignaled) == 0) {
    ++end.completed;
  }
  if (end.completed == end.posted || completion.wr_id != end.completed) {
    Fail(end, absl::StrCat("completion of send ", completion.wr_id,
                           " instead of ", end.completed));
    return;
  }
  const Message& message = end.messages[end.completed++];
  const auto opcode = message.writes() ? transport::WcOpcode::kRdmaWrite
                                       : transport::WcOpcode::kSend;
  if (completion.status != transport::WcStatus::kSuccess ||
      completion.opcode != opcode || completion.qpn != end.side->qp->qpn()) {
    Fail(end, absl::StrCat("send ", completion.wr_id, ": status ",
                           static_cast<int>(completion.status), ", opcode ",
                           static_cast<int>(completion.opcode)));
  }
  // The application owns the buffer again.
  random_.Fill(end.side->buffer.get() + message.source, message.length());
}

void UcRun::OnReceived(End& end, const Completion& completion) {
  if (pair_.net.undetected() != 0) return;
  if (completion.status != transport::WcStatus::kSuccess ||
      completion.wr_id != end.received.size() ||
      completion.wr_id >= end.receives_posted) {
    Fail(end, absl::StrCat("receive ", completion.wr_id, " instead of ",
                           end.received.size(), ": status ",
                           static_cast<int>(completion.status)));
    return;
  }
  const End& peer = *end.peer;
  // The first match: if an in-order assignment exists, this is one.
  const size_t first =
      std::max(may_come_, end.received.empty() ? 0 : end.received.back() + 1);
  size_t index = first;
  while (index < peer.posted &&
         !Matches(end, peer.messages[index], completion)) {
    ++index;
  }
  if (index >= peer.posted) {
    Fail(end,
         absl::StrCat("receive ", completion.wr_id, " of ", completion.byte_len,
                      " bytes is none of the messages from ",
                      end.received.empty() ? 0 : end.received.back() + 1,
                      " to ", peer.posted));
    return;
  }
  end.received.push_back(index);
}

bool UcRun::Matches(const End& end, const Message& message,
                    const Completion& completion) const {
  const auto opcode = message.writes()
                          ? transport::WcOpcode::kReceiveRdmaWithImm
                          : transport::WcOpcode::kReceive;
  const bool solicited = (message.flags & transport::kSendSolicited) != 0;
  return message.takes_receive() && completion.opcode == opcode &&
         completion.byte_len == message.length() &&
         completion.solicited == solicited &&
         completion.flags ==
             (message.has_imm() ? uint32_t{transport::kWcWithImm} : 0u) &&
         completion.imm_be_or_rkey == message.imm_be &&
         At(end, message.writes() ? message.target : Slot(completion.wr_id),
            message.content);
}

bool UcRun::At(const End& end, uint64_t offset,
               const std::vector<uint8_t>& content) const {
  return std::equal(content.begin(), content.end(),
                    end.side->buffer.get() + offset);
}

// --- Final checks.

void UcRun::Finish() {
  pair_.Run();
  for (End* end : {&a_, &b_}) {
    RunApp(*end);
    CheckQuiet(*end);
    while (end->completed < end->posted &&
           (end->messages[end->completed].flags & transport::kSendSignaled) ==
               0) {
      ++end->completed;
    }
    if (end->completed != end->posted) {
      Fail(*end, absl::StrCat(end->posted - end->completed,
                              " sends have not completed"));
    }
  }
  if (pair_.net.undetected() != 0) return;
  for (End* end : {&a_, &b_}) {
    // Received data must not change later.
    for (size_t i = 0; i < end->received.size(); ++i) {
      const Message& message = end->peer->messages[end->received[i]];
      if (!message.writes() && !At(*end, Slot(i), message.content)) {
        Fail(*end, absl::StrCat("receive ", i, " was written again"));
      }
    }
    for (const Message& message : end->peer->messages) {
      CheckTarget(*end, message, false);
    }
  }
}

void UcRun::CheckQuiet(const End& end) {
  transport::Endpoint& endpoint = end.side->node->endpoint();
  if (end.side->qp->state() != transport::QpState::kRts) {
    Fail(end, "not in RTS");
  }
  if (endpoint.HasTransmit()) Fail(end, "HasTransmit on an idle host");
  if (endpoint.NextTimeout() != transport::kNever) {
    Fail(end, "a timer on an idle host");
  }
  if (const transport::Path* path = end.side->qp->path();
      path != nullptr && path->in_flight() != 0) {
    Fail(end, absl::StrCat(path->in_flight(), " bytes in flight"));
  }
}

void UcRun::CheckTarget(const End& end, const Message& message, bool whole) {
  const uint8_t* const now = end.side->buffer.get() + message.target;
  const uint8_t* const before = end.before.data() + message.target;
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
    Fail(end, absl::StrCat("the target at ", message.target,
                           " has more than the beginning of its message"));
  }
  if (whole && written < message.length()) {
    Fail(end, absl::StrCat("of a WRITE of ", message.length(), " bytes only ",
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
    Fail(end, absl::StrCat("of ", consuming, " messages from ", first,
                           " on only ", received, " have come"));
  }
}

void UcRun::AddTo(UcStatistics* sum) const {
  sum->packets += pair_.net.packets();
  sum->undetected += pair_.net.undetected();
  sum->answers += answers_;
  sum->complete += complete_ && pair_.net.refused() == 0;
  for (const End* end : {&a_, &b_}) {
    sum->sent += end->posted;
    sum->received += end->received.size();
    for (size_t i = 0; i < end->posted; ++i) {
      sum->consuming += end->messages[i].takes_receive();
    }
  }
}

void UcRun::Fail(const End& end, const std::string& text) {
  pair_.checker.Fail(
      absl::StrCat("at ", pair_.now(), " ns, ", end.name, ": ", text));
}

}  // namespace sim
