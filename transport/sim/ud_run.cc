#include "transport/sim/ud_run.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "transport/testing/bring_up.h"
#include "wire/grh.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;

namespace {

constexpr transport::PdId kPd = 7;
constexpr uint32_t kQkey = 0x11223344;
// Messages of each end after the network is repaired; every end has receives
// for all of them.
constexpr size_t kLastMessages = 8;
constexpr uint32_t kTsoHeader = 16;  // bytes
// Content of bytes that no message writes.
constexpr uint8_t kUntouched = 0xa5;

}  // namespace

UdRun::UdRun(uint64_t seed)
    : scenario_(Scenario::Make(seed)),
      random_(Mix(seed)),
      mtu_(scenario_.connections[0].path_mtu),
      slot_bytes_((wire::kGrhSize + mtu_ + 63) / 64 * 64),
      first_messages_(random_.Between(10, 60)),
      link_(scenario_.link),
      net_(seed, &checker_) {
  link_.forge = 0;  // UD accepts any sender
  net_.SetAllLinks(link_);
  for (int host = 0; host < kHosts; ++host) {
    Node& node = net_.AddNode();
    const HostScenario& as =
        scenario_.hosts[host % static_cast<int>(scenario_.hosts.size())];
    node.profile() = as.profile;
    node.memory().set_span_bytes(as.span_bytes);
    for (int i = 0; i < kEndsPerHost; ++i) {
      End& end = *ends_.emplace_back(std::make_unique<End>());
      end.index = static_cast<int>(ends_.size()) - 1;
      end.node = &node;
      Create(end);
    }
  }
  for (const auto& end : ends_) MakeMessages(*end);
}

void UdRun::Create(End& end) {
  end.plenty = random_.Percent(60);
  end.buffer.assign((kSlots + first_messages_ + kLastMessages) * slot_bytes_,
                    kUntouched);
  end.region = end.node->memory().Register(
      kPd, end.buffer.data(), uint64_t(end.index + 1) << 32, end.buffer.size(),
      transport::kAccessLocalWrite);
  transport::QpConfig config;
  config.type = transport::QpType::kUd;
  config.qpn = 0x0a0000u | static_cast<uint32_t>(random_.Below(1000) * 8) |
               static_cast<uint32_t>(end.index);
  config.pd = kPd;
  config.capacity = {.max_send_wr = 128,
                     .max_recv_wr = kSlots,
                     .max_send_sge = 2,
                     .max_recv_sge = 2,
                     .max_inline_data = 256};
  config.port_mtu = static_cast<uint16_t>(mtu_);
  config.memory = &end.node->memory();
  config.send_cq = &end.send_cq;
  config.recv_cq = &end.recv_cq;
  config.events = &end.events;
  end.qp = transport::MakeQueuePair(end.node->endpoint(), config, kTsoHeader);
  transport::QpAttributes attributes;
  attributes.qkey = kQkey;
  attributes.sq_psn = static_cast<uint32_t>(random_.Below(1 << 24));
  if (transport::BringUp(*end.qp, attributes, 0) != 0) {
    Fail(end, "not brought up");
  }
}

void UdRun::MakeMessages(End& end) {
  for (size_t i = 0; i < first_messages_ + kLastMessages; ++i) {
    Message message;
    message.to = static_cast<int>(random_.Below(ends_.size()));
    uint32_t length = static_cast<uint32_t>(random_.Below(mtu_ + 1));
    if (random_.Percent(30)) {
      length = random_.Pick<uint32_t>({0, 1, 64, mtu_ - 1, mtu_});
    }
    const uint64_t name = uint64_t(end.index) << 32 | i;
    message.has_imm = length < sizeof(name) || random_.Percent(30);
    if (message.has_imm) {
      message.imm_be = static_cast<uint32_t>(end.index << 16 | i);
    }
    if (random_.Percent(70)) message.flags |= transport::kSendSignaled;
    if (random_.Percent(20)) message.flags |= transport::kSendSolicited;
    if (length <= 256 && random_.Percent(30)) {
      message.flags |= transport::kSendInline;
    }
    message.is_segment = !message.has_imm && length >= kTsoHeader &&
                         (message.flags & transport::kSendInline) == 0 &&
                         random_.Percent(20);
    message.traffic_class = random_.Pick<uint8_t>({0, 0, 0, 0x88});
    message.content.resize(length);
    random_.Fill(message.content.data(), length);
    if (length >= sizeof(name)) {
      std::memcpy(message.content.data(), &name, sizeof(name));
    }
    end.messages.push_back(std::move(message));
  }
  end.messages.back().flags |= transport::kSendSignaled;
}

transport::AddressVector UdRun::Address(const End& from,
                                        const Message& message) {
  transport::AddressVector av;
  av.source = from.node->address();
  av.destination = ends_[message.to]->node->address();
  av.source_port = static_cast<uint16_t>(0xc000 | message.to);
  av.traffic_class = message.traffic_class;
  return av;
}

bool UdRun::Execute() {
  for (const auto& end : ends_) {
    while (end->plenty && end->receives_posted < kSlots) PostReceive(*end);
    net_.At(0, *end->node, [this, end = end.get()] { RunApp(*end); });
  }
  Finish();
  // A damaged packet that was accepted may have had any effect.
  if (checker_.failed() || net_.undetected() != 0) return !checker_.failed();
  mended_ = true;
  link_ = LinkProfile{};
  net_.SetAllLinks(link_);
  for (const auto& end : ends_) {
    while (end->receives_posted - end->receives_done < kSlots) {
      PostReceive(*end);
    }
  }
  for (const auto& end : ends_) {
    while (end->posted < end->messages.size()) PostSend(*end);
  }
  Finish();
  for (const auto& end : ends_) {
    for (size_t i = first_messages_; i < end->posted; ++i) {
      if (end->messages[i].arrived != 1) {
        Fail(*end, absl::StrCat("message ", i, " has arrived ",
                                end->messages[i].arrived, " times"));
      }
    }
  }
  return !checker_.failed();
}

// --- The application.

void UdRun::RunApp(End& end) {
  for (const Completion& completion : end.send_cq.TakeAll()) {
    OnSent(end, completion);
  }
  for (const Completion& completion : end.recv_cq.TakeAll()) {
    OnReceived(end, completion);
  }
  if (mended_ || end.posted == first_messages_) return;
  const size_t wanted = end.plenty ? kSlots : random_.Below(4);
  for (size_t i = 0;
       i < wanted && end.receives_posted - end.receives_done < kSlots; ++i) {
    PostReceive(end);
  }
  for (uint64_t i = random_.Below(6); i > 0 && end.posted < first_messages_;
       --i) {
    PostSend(end);
  }
  const Time pause = random_.Pick<Time>({0, 1, 20, 300}) * kMicrosecond;
  net_.At(net_.now() + 1 + random_.Below(pause + 1), *end.node,
          [this, &end] { RunApp(end); });
}

void UdRun::PostSend(End& end) {
  const size_t index = end.posted++;
  const Message& message = end.messages[index];
  const uint64_t offset = (kSlots + index) * slot_bytes_;
  uint8_t* const source = end.buffer.data() + offset;
  std::copy(message.content.begin(), message.content.end(), source);
  const bool is_inline = (message.flags & transport::kSendInline) != 0;
  // In two pieces. Inline data has process addresses.
  const uint64_t addr =
      is_inline ? reinterpret_cast<uintptr_t>(source) : end.region.va + offset;
  const uint32_t header = message.is_segment ? kTsoHeader : 0;
  const uint32_t length = message.length() - header;
  const auto first = static_cast<uint32_t>(random_.Below(length + 1));
  const transport::Sge sges[] = {
      {addr + header, first, end.region.lkey},
      {addr + header + first, length - first, end.region.lkey}};
  const transport::AddressVector av = Address(end, message);
  transport::SendRequest request;
  request.wr_id = index;
  request.opcode = message.has_imm ? transport::SendOpcode::kSendWithImm
                                   : transport::SendOpcode::kSend;
  if (message.is_segment) {
    request.opcode = transport::SendOpcode::kTso;
    request.tso_header = std::span(message.content).first(header);
    request.tso_mss = static_cast<uint16_t>(mtu_);
  }
  request.flags = message.flags;
  request.sges = sges;
  request.imm_be = message.imm_be;
  request.ah = &av;
  request.remote_qpn = ends_[message.to]->qp->qpn();
  request.remote_qkey = random_.Percent(50) ? kQkey : 0x80000000;
  const int error = end.qp->PostSend(request, net_.now());
  if (error != 0) {
    Fail(end, absl::StrCat("post_send ", index, ": ", std::strerror(error)));
  }
  if (is_inline) random_.Fill(source, message.length());
  net_.Touch(*end.node);
}

void UdRun::PostReceive(End& end) {
  const size_t index = end.receives_posted++;
  std::fill_n(end.buffer.begin() + Slot(index), slot_bytes_, kUntouched);
  const transport::Sge sge = {end.region.va + Slot(index), slot_bytes_,
                              end.region.lkey};
  const int error = end.qp->PostReceive({index, {&sge, 1}}, net_.now());
  if (error != 0) {
    Fail(end, absl::StrCat("post_recv ", index, ": ", std::strerror(error)));
  }
}

void UdRun::OnSent(End& end, const Completion& completion) {
  while (end.completed < end.posted &&
         (end.messages[end.completed].flags & transport::kSendSignaled) == 0) {
    ++end.completed;
  }
  if (end.completed == end.posted || completion.wr_id != end.completed ||
      completion.status != transport::WcStatus::kSuccess ||
      completion.opcode != (end.messages[end.completed].is_segment
                                ? transport::WcOpcode::kTso
                                : transport::WcOpcode::kSend)) {
    Fail(end,
         absl::StrCat("send ", completion.wr_id, " instead of ", end.completed,
                      ": status ", static_cast<int>(completion.status)));
    return;
  }
  const size_t index = end.completed++;
  // The application owns the buffer again.
  random_.Fill(end.buffer.data() + (kSlots + index) * slot_bytes_,
               end.messages[index].length());
}

void UdRun::OnReceived(End& end, const Completion& completion) {
  if (net_.undetected() != 0) return;
  if (completion.status != transport::WcStatus::kSuccess ||
      completion.wr_id != end.receives_done) {
    Fail(end, absl::StrCat("receive ", completion.wr_id, " instead of ",
                           end.receives_done, ": status ",
                           static_cast<int>(completion.status)));
    return;
  }
  ++end.receives_done;
  for (const auto& from : ends_) {
    if (from->qp->qpn() != completion.src_qpn) continue;
    for (size_t i = 0; i < from->posted; ++i) {
      Message& message = from->messages[i];
      if (!Matches(end, *from, message, completion)) continue;
      if (++message.arrived > 1 && scenario_.link.duplicate == 0) {
        Fail(end, absl::StrCat("message ", i, " of ", from->index, " again"));
      }
      return;
    }
  }
  Fail(end,
       absl::StrCat("receive ", completion.wr_id, " of ", completion.byte_len,
                    " bytes from ", completion.src_qpn, " was not sent"));
}

bool UdRun::Matches(const End& end, const End& from, const Message& message,
                    const Completion& completion) const {
  const uint8_t* const slot = end.buffer.data() + Slot(completion.wr_id);
  const size_t size = wire::kGrhSize + message.length();
  wire::Grh grh;
  return message.to == end.index && completion.byte_len == size &&
         completion.flags ==
             (transport::kWcGrh |
              (message.has_imm ? uint32_t{transport::kWcWithImm} : 0u)) &&
         completion.imm_be_or_rkey == message.imm_be &&
         completion.solicited ==
             ((message.flags & transport::kSendSolicited) != 0) &&
         std::equal(message.content.begin(), message.content.end(),
                    slot + wire::kGrhSize) &&
         std::all_of(slot + size, slot + slot_bytes_,
                     [](uint8_t byte) { return byte == kUntouched; }) &&
         wire::ParseGrh(slot, &grh) && grh.source == from.node->address() &&
         grh.destination == end.node->address();
}

// --- Final checks.

void UdRun::Finish() {
  if (!net_.RunUntilIdle(net_.now() + 60 * transport::kSecond)) {
    checker_.Fail("still busy after a minute");
  }
  for (const auto& end : ends_) {
    RunApp(*end);
    transport::Endpoint& endpoint = end->node->endpoint();
    if (end->qp->state() != transport::QpState::kRts) Fail(*end, "not in RTS");
    if (endpoint.HasTransmit()) Fail(*end, "HasTransmit on an idle host");
    if (endpoint.NextTimeout() != transport::kNever) {
      Fail(*end, "a timer on an idle host");
    }
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
}

void UdRun::AddTo(UdStatistics* sum) {
  sum->packets += net_.packets();
  sum->undetected += net_.undetected();
  for (int from = 0; from < kHosts; ++from) {
    for (int to = 0; to < kHosts; ++to) {
      sum->damaged += net_.link(net_.node(from), net_.node(to)).corrupted;
    }
  }
  for (const auto& end : ends_) {
    sum->sent += end->posted;
    for (const Message& message : end->messages) {
      sum->received += message.arrived;
    }
  }
}

void UdRun::Fail(const End& end, const std::string& text) {
  checker_.Fail(
      absl::StrCat("at ", net_.now(), " ns, ", end.index, ": ", text));
}

}  // namespace sim
