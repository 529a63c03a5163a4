#include "transport/sim/ud_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/grh.h"

namespace sim {

using transport::Completion;
using transport::SendOpcode;

namespace {

constexpr uint32_t kQkey = 0x11223344;
// Messages of each end after the network is repaired; every end has receives
// for all of them.
constexpr size_t kLastMessages = 8;
constexpr uint32_t kTsoHeader = 16;  // bytes
// Content of bytes that no message writes.
constexpr uint8_t kUntouched = 0xa5;

}  // namespace

// --- Building.

UdRun::UdRun(uint64_t seed)
    : ServiceRun(seed, true), first_messages_(random_.Between(10, 60)) {
  slot_bytes_ = (wire::kGrhSize + path_mtu_ + 63) / 64 * 64;
  LinkProfile link = scenario_.link;
  link.forge = 0;  // UD accepts any sender
  network_.SetAllLinks(link);
  for (int host = 0; host < kHosts; ++host) {
    Node& node = AddHost();
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
  end.pool.bytes = (kSlots + first_messages_ + kLastMessages) * slot_bytes_;
  end.pool.Register(*end.node, uint64_t(end.index + 1) << 32,
                    transport::kAccessLocalWrite);
  std::fill_n(end.pool.buffer.get(), end.pool.bytes, kUntouched);
  const uint32_t qpn = 0x0a0000u |
                       static_cast<uint32_t>(random_.Below(1000) * 8) |
                       static_cast<uint32_t>(end.index);
  transport::QpConfig config = Config(transport::QpType::kUd, qpn, *end.node,
                                      &end.send_cq, &end.recv_cq);
  config.capacity = {.max_send_wr = 128,
                     .max_recv_wr = kSlots,
                     .max_send_sge = 2,
                     .max_recv_sge = 2,
                     .max_inline_data = 256};
  config.port_mtu = static_cast<uint16_t>(path_mtu_);
  end.qp = transport::MakeQueuePair(end.node->endpoint(), config, kTsoHeader);
  transport::QpAttributes attributes;
  attributes.qkey = kQkey;
  attributes.sq_psn = static_cast<uint32_t>(random_.Below(1 << 24));
  BringUp(*end.qp, attributes);
}

// A message starts with its sender and its number, if they fit, or has them in
// its immediate data, so that it is unique.
void UdRun::MakeMessages(End& end) {
  for (size_t i = 0; i < first_messages_ + kLastMessages; ++i) {
    Message message;
    message.to = static_cast<int>(random_.Below(ends_.size()));
    uint32_t length = static_cast<uint32_t>(random_.Below(path_mtu_ + 1));
    if (random_.Percent(30)) {
      length = random_.Pick<uint32_t>({0, 1, 64, path_mtu_ - 1, path_mtu_});
    }
    const uint64_t name = uint64_t(end.index) << 32 | i;
    if (length < sizeof(name) || random_.Percent(30)) {
      message.opcode = SendOpcode::kSendWithImm;
      message.imm_be = static_cast<uint32_t>(end.index << 16 | i);
    }
    DrawUnreliableFlags(message, length);
    if (!message.has_imm() && length >= kTsoHeader && !message.is_inline() &&
        random_.Percent(20)) {
      message.opcode = SendOpcode::kTso;
      message.header = kTsoHeader;
    }
    message.traffic_class = random_.Pick<uint8_t>({0, 0, 0, 0x88});
    DrawContent(message, length);
    if (length >= sizeof(name)) {
      std::memcpy(message.content.data(), &name, sizeof(name));
    }
    message.local = {&end.pool, (kSlots + i) * slot_bytes_};
    end.messages.push_back(std::move(message));
  }
  end.messages.back().flags |= transport::kSendSignaled;
}

void UdRun::Play() {
  for (const auto& end : ends_) {
    if (end->plenty) PostReceives(*end, kSlots);
    network_.At(0, *end->node, [this, end = end.get()] { RunApp(*end); });
  }
  Finish();
  // A damaged packet that was accepted may have had any effect.
  if (checker_.failed() || network_.undetected() != 0) return;
  mended_ = true;
  network_.SetAllLinks({});
  for (const auto& end : ends_) PostReceives(*end, kSlots);
  for (const auto& end : ends_) {
    while (end->posted < end->messages.size()) PostSend(*end);
  }
  Finish();
  for (const auto& end : ends_) {
    for (size_t i = first_messages_; i < end->posted; ++i) {
      if (end->messages[i].arrived != 1) {
        FailAt(*end, absl::StrCat("message ", i, " has arrived ",
                                  end->messages[i].arrived, " times"));
      }
    }
  }
}

// --- The application.

void UdRun::RunApp(End& end) {
  TakeSends(end);
  for (const Completion& completion : end.recv_cq.TakeAll()) {
    OnReceived(end, completion);
  }
  if (mended_ || end.posted == first_messages_) return;
  PostReceives(end, end.plenty ? kSlots : random_.Below(4));
  PostSends(end, first_messages_);
  RunAgain(*end.node, DrawPause(), [this, &end] { RunApp(end); });
}

void UdRun::Address(Sender& sender, const Message& message,
                    transport::SendRequest* request) {
  const End& to = *ends_[message.to];
  transport::AddressVector& av = static_cast<End&>(sender).av;
  av.source = sender.node->address();
  av.destination = to.node->address();
  av.source_port = static_cast<uint16_t>(0xc000 | message.to);
  av.traffic_class = message.traffic_class;
  request->ah = &av;
  request->remote_qpn = to.qp->qpn();
  request->remote_qkey = random_.Percent(50) ? kQkey : 0x80000000;
  if (message.opcode == SendOpcode::kTso) {
    request->tso_header = std::span(message.content).first(message.header);
    request->tso_mss = static_cast<uint16_t>(path_mtu_);
  }
}

void UdRun::PostReceives(End& end, size_t count) {
  for (; count > 0 && end.receives_posted - end.receives_done < kSlots;
       --count) {
    PostReceive(end);
  }
}

void UdRun::PostReceive(End& end) {
  const size_t index = end.receives_posted++;
  std::fill_n(end.pool.buffer.get() + Slot(index), slot_bytes_, kUntouched);
  const transport::Sge sge = {end.pool.region.va + Slot(index), slot_bytes_,
                              end.pool.region.lkey};
  const int error = end.qp->PostReceive({index, {&sge, 1}}, network_.now());
  if (error != 0) {
    FailAt(end, absl::StrCat("post_recv ", index, ": ", std::strerror(error)));
  }
}

void UdRun::OnReceived(End& end, const Completion& completion) {
  if (network_.undetected() != 0) return;
  if (completion.status != transport::WcStatus::kSuccess ||
      completion.wr_id != end.receives_done) {
    FailAt(end, absl::StrCat("receive ", completion.wr_id, " instead of ",
                             end.receives_done, ": status ",
                             static_cast<int>(completion.status)));
    return;
  }
  ++end.receives_done;
  for (const auto& from : ends_) {
    if (from->qp->qpn() != completion.src_qpn) continue;
    for (size_t i = 0; i < from->posted; ++i) {
      Message& message = from->messages[i];
      if (!IsFrom(*from, message, end, completion)) continue;
      if (++message.arrived > 1 && scenario_.link.duplicate == 0) {
        FailAt(end, absl::StrCat("message ", i, " of ", from->index, " again"));
      }
      return;
    }
  }
  FailAt(end,
         absl::StrCat("receive ", completion.wr_id, " of ", completion.byte_len,
                      " bytes from ", completion.src_qpn, " was not sent"));
}

// The slot has the IP header and the message, and nothing else is written.
bool UdRun::IsFrom(const End& from, const Message& message, const End& end,
                   const Completion& completion) const {
  const uint8_t* const slot = end.pool.buffer.get() + Slot(completion.wr_id);
  wire::Grh grh;
  return message.to == end.index &&
         Matches(message, completion, slot, wire::kGrhSize) &&
         std::all_of(slot + wire::kGrhSize + message.length(),
                     slot + slot_bytes_,
                     [](uint8_t byte) { return byte == kUntouched; }) &&
         wire::ParseGrh(slot, &grh) && grh.source == from.node->address() &&
         grh.destination == end.node->address();
}

// --- Final checks.

void UdRun::Finish() {
  if (!network_.RunUntilIdle(network_.now() + 60 * transport::kSecond)) {
    Fail("still busy after a minute");
  }
  for (const auto& end : ends_) {
    RunApp(*end);
    if (end->qp->state() != transport::QpState::kRts) {
      FailAt(*end, "not in RTS");
    }
    CheckIdle(*end->node);
    CheckAllSent(*end);
  }
}

void UdRun::Count(Statistics* statistics) {
  Statistics& sum = *statistics;
  for (int from = 0; from < kHosts; ++from) {
    for (int to = 0; to < kHosts; ++to) {
      sum["damaged"] +=
          network_.link(network_.node(from), network_.node(to)).corrupted;
    }
  }
  for (const auto& end : ends_) {
    sum["sent"] += end->posted;
    for (const Message& message : end->messages) {
      sum["received"] += message.arrived;
    }
  }
}

}  // namespace sim
