#include "transport/sim/service_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/testing/bring_up.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::SendOpcode;

// --- Memory.

uint64_t Pool::Reserve(uint64_t length) {
  const uint64_t at = bytes;
  bytes += (length + kGap + 63) / 64 * 64;
  return at;
}

void Pool::Register(Node& node, uint64_t va, uint32_t access) {
  bytes = std::max<uint64_t>(bytes, kGap);
  buffer.reset(new uint8_t[bytes]);
  region = node.memory().Register(pd, buffer.get(), va, bytes, access);
}

bool Place::Holds(const std::vector<uint8_t>& content) const {
  return std::equal(content.begin(), content.end(), bytes());
}

// --- Building.

ServiceRun::ServiceRun(uint64_t seed, bool varies_sources)
    : Run(seed),
      scenario_(Scenario::Make(seed)),
      random_(Mix(seed)),
      path_mtu_(scenario_.connections[0].path_mtu),
      varies_sources_(varies_sources) {
  network_.SetAllLinks(scenario_.link);
}

void ServiceRun::DrawMaxLength(uint32_t max) {
  max_length_ =
      random_.Pick<uint32_t>({300, 3 * path_mtu_, 12 * path_mtu_, max});
  slot_bytes_ = (max_length_ + 63) / 64 * 64;
}

Node& ServiceRun::AddHost() {
  Node& node = network_.AddNode();
  const HostScenario& as =
      scenario_
          .hosts[static_cast<size_t>(node.index()) % scenario_.hosts.size()];
  node.profile() = as.profile;
  node.memory().set_span_bytes(as.span_bytes);
  return node;
}

transport::QpConfig ServiceRun::Config(transport::QpType type, uint32_t qpn,
                                       Node& node,
                                       transport::CompletionSink* send_cq,
                                       transport::CompletionSink* recv_cq) {
  transport::QpConfig config;
  config.type = type;
  config.qpn = qpn;
  config.pd = Pool().pd;
  config.capacity = {.max_send_wr = 64, .max_send_sge = 2};
  config.memory = &node.memory();
  config.send_cq = send_cq;
  config.recv_cq = recv_cq;
  config.events = &events_;
  return config;
}

transport::QpAttributes ServiceRun::Attributes(
    uint32_t peer_qpn, const wire::IpAddress& own,
    const wire::IpAddress& peer) const {
  const EndScenario& end = scenario_.connections[0].end[0];
  transport::QpAttributes to = transport::ConnectionTo(peer_qpn, own, peer);
  to.path_mtu = path_mtu_;
  to.sq_psn = to.rq_psn = end.first_psn;
  to.max_rd_atomic = to.max_dest_rd_atomic = 4;
  to.min_rnr_timer = end.min_rnr_timer;
  to.timeout = end.timeout;
  return to;
}

void ServiceRun::BringUp(transport::QueuePair& qp,
                         const transport::QpAttributes& to) {
  if (const int error = transport::BringUp(qp, to, network_.now())) {
    Fail(absl::StrCat("modify: ", std::strerror(error)));
  }
}

// --- Planning.

SendOpcode ServiceRun::DrawReliableOpcode() {
  return random_.Pick({SendOpcode::kSend, SendOpcode::kSendWithImm,
                       SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImm,
                       SendOpcode::kRdmaRead, SendOpcode::kFetchAdd,
                       SendOpcode::kCompareSwap});
}

void ServiceRun::DrawReliable(Message& message, uint64_t* word,
                              bool solicited) {
  uint32_t length = random_.Below(max_length_ + 1);
  if (message.atomic()) {
    length = kAtomicBytes;
    message.operand = random_.Next();
    message.found = *word;
    *word = message.opcode == SendOpcode::kFetchAdd ? *word + message.operand
                                                    : message.operand;
  }
  if (random_.Percent(70)) message.flags |= transport::kSendSignaled;
  if (solicited && message.takes_receive() && random_.Percent(20)) {
    message.flags |= transport::kSendSolicited;
  }
  if (random_.Percent(10)) message.flags |= transport::kSendFence;
  if (message.has_imm()) {
    message.imm_be = static_cast<uint32_t>(random_.Next());
  }
  DrawContent(message, length);
}

void ServiceRun::DrawUnreliableFlags(Message& message, uint32_t length) {
  if (random_.Percent(70)) message.flags |= transport::kSendSignaled;
  if (random_.Percent(20)) message.flags |= transport::kSendSolicited;
  if (length <= 256 && random_.Percent(30)) {
    message.flags |= transport::kSendInline;
  }
}

void ServiceRun::DrawContent(Message& message, uint32_t length) {
  message.content.resize(length);
  random_.Fill(message.content.data(), length);
}

void ServiceRun::PlaceReads(const Sender& sender) {
  for (const Message& message : sender.messages) {
    if (message.opcode != SendOpcode::kRdmaRead) continue;
    std::copy(message.content.begin(), message.content.end(),
              message.remote.bytes());
  }
}

// --- The application.

void ServiceRun::RunAgain(Node& node, Time pause,
                          std::function<void()> application) {
  network_.At(network_.now() + 1 + random_.Below(pause + 1), node,
              std::move(application));
}

Time ServiceRun::DrawPause() {
  return random_.Pick<Time>({0, 1, 20, 300}) * kMicrosecond;
}

void ServiceRun::PostSends(Sender& sender, size_t limit) {
  for (uint64_t i = random_.Below(6); i > 0 && sender.posted < limit; --i) {
    PostSend(sender);
  }
}

void ServiceRun::PostSend(Sender& sender) {
  const size_t index = sender.posted++;
  const Message& message = sender.messages[index];
  uint8_t* const source = message.local.bytes();
  if (!message.atomic() && message.opcode != SendOpcode::kRdmaRead) {
    std::copy(message.content.begin(), message.content.end(), source);
  }
  // Inline data has process addresses.
  const uint64_t addr =
      (message.is_inline() ? reinterpret_cast<uintptr_t>(source)
                           : message.local.addr()) +
      message.header;
  const uint32_t length = message.length() - message.header;
  const auto first = varies_sources_
                         ? static_cast<uint32_t>(random_.Below(length + 1))
                         : length;
  const uint32_t lkey = message.local.pool->region.lkey;
  const transport::Sge sges[] = {{addr, first, lkey},
                                 {addr + first, length - first, lkey}};
  transport::SendRequest request;
  request.wr_id = index;
  request.opcode = message.opcode;
  request.flags = message.flags;
  request.sges = std::span(sges).first(varies_sources_ ? 2 : 1);
  request.imm_be = message.imm_be;
  if (message.remote.pool != nullptr) {
    request.remote_addr = message.remote.addr();
    request.rkey = message.remote.pool->region.rkey;
  }
  if (message.opcode == SendOpcode::kFetchAdd) {
    request.compare_add = message.operand;
  } else {
    request.compare_add = message.found;
    request.swap = message.operand;
  }
  Address(sender, message, &request);
  if (const int error = sender.qp->PostSend(request, network_.now())) {
    FailAt(sender,
           absl::StrCat("post_send ", index, ": ", std::strerror(error)));
  }
  if (message.is_inline()) random_.Fill(source, message.length());
  network_.Touch(*sender.node);
}

bool ServiceRun::PostReceives(SharedQueue& shared, bool plenty) {
  size_t some = plenty ? shared.slots.size() : random_.Below(4);
  while (some-- > 0 && shared.posted < shared.slots.size()) {
    const size_t index = shared.posted++;
    shared.queue.Post(index, {{shared.slots[index].addr(), slot_bytes_,
                               shared.pool->region.lkey}});
  }
  return shared.posted == shared.slots.size();
}

void ServiceRun::TakeSends(Sender& sender) {
  for (const Completion& completion : sender.send_cq.TakeAll()) {
    if (TakesOutOfOrder(sender, completion)) continue;
    SkipUnsignaled(sender);
    const size_t next = sender.completed;
    if (next == sender.posted || completion.wr_id != next ||
        completion.status != transport::WcStatus::kSuccess ||
        completion.opcode != SendCompletion(sender.messages[next].opcode) ||
        completion.qpn != sender.qp->qpn()) {
      FailAt(sender,
             absl::StrCat("send ", completion.wr_id, " instead of ", next,
                          ": status ", static_cast<int>(completion.status),
                          ", opcode ", static_cast<int>(completion.opcode)));
      return;
    }
    const Message& message = sender.messages[sender.completed++];
    if (varies_sources_) {
      random_.Fill(message.local.bytes(), message.length());
    }
  }
}

// --- Checks.

bool ServiceRun::Matches(const Message& message, const Completion& completion,
                         const uint8_t* at, uint32_t grh) {
  const uint32_t flags =
      (grh != 0 ? uint32_t{transport::kWcGrh} : 0u) |
      (message.has_imm() ? uint32_t{transport::kWcWithImm} : 0u);
  return message.takes_receive() &&
         completion.status == transport::WcStatus::kSuccess &&
         completion.opcode == ReceiveCompletion(message.opcode) &&
         completion.byte_len == grh + message.length() &&
         completion.flags == flags &&
         completion.imm_be_or_rkey == message.imm_be &&
         completion.solicited ==
             ((message.flags & transport::kSendSolicited) != 0) &&
         std::equal(message.content.begin(), message.content.end(), at + grh);
}

void ServiceRun::SkipUnsignaled(Sender& sender) {
  while (sender.completed < sender.posted &&
         !sender.messages[sender.completed].signaled()) {
    ++sender.completed;
  }
}

void ServiceRun::CheckAllSent(Sender& sender) {
  SkipUnsignaled(sender);
  if (sender.completed != sender.posted) {
    FailAt(sender, absl::StrCat(sender.posted - sender.completed,
                                " sends have not completed"));
  }
}

void ServiceRun::CheckEffects(const Sender& sender, bool atomics) {
  if (sender.completed != sender.messages.size()) {
    FailAt(sender,
           absl::StrCat("only ", sender.completed, " of ",
                        sender.messages.size(), " messages have completed"));
    return;
  }
  for (size_t i = 0; i < sender.messages.size(); ++i) {
    const Message& message = sender.messages[i];
    if (message.abandoned) continue;
    if (message.takes_receive() && message.arrived != 1) {
      FailAt(sender, absl::StrCat("message ", i, " was received ",
                                  message.arrived, " times"));
    }
    if (message.writes() && !message.remote.Holds(message.content)) {
      FailAt(sender, absl::StrCat("WRITE ", i, " is not there"));
    }
    if (message.opcode == SendOpcode::kRdmaRead &&
        !message.local.Holds(message.content)) {
      FailAt(sender, absl::StrCat("READ ", i, " is not what was read"));
    }
    if (!message.atomic() || !atomics) continue;
    uint64_t found;
    std::memcpy(&found, message.local.bytes(), sizeof(found));
    if (found != message.found) {
      FailAt(sender, absl::StrCat("atomic ", i, " has found ", found,
                                  " instead of ", message.found));
    }
  }
}

void ServiceRun::FailAt(const Sender& sender, const std::string& text) {
  Fail(absl::StrFormat("QP %06x: %s", sender.qp->qpn(), text));
}

}  // namespace sim
