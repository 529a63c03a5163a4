// What a requester sends next, and how its packets are made.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

#include "transport/endpoint/endpoint.h"
#include "transport/rc/requester_impl.h"

namespace transport {
namespace {

// Messages of one packet ask for one every so many.
constexpr uint32_t kMaxUnaskedMessages = 16;
// A longer message need not if so many follow it in the same turn: its
// completion can come with the next one's, and whoever waits for it has others
// to wait for. The turn's last packet asks, since the next one may be long in
// coming, and would keep what is in flight from others.
constexpr uint64_t kManyQueued = 8;
constexpr size_t kAckReqByte = 8;  // of BTH
constexpr uint8_t kAckReqBit = 0x80;

}  // namespace

uint64_t Requester::Impl::IndexOf(uint64_t seq) const {
  uint64_t low = queue.head();
  uint64_t high = begun;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (queue.at(middle).first <= seq ? low : high) = middle;
  }
  return low;
}

void Requester::Impl::SyncFlight() {
  const uint64_t wanted =
      CostBeforeAt(cursor_index, cursor) - CostBeforeAt(queue.head(), una);
  if (wanted > flight) {
    path()->OnSent(wanted - flight);
    flight = wanted;
  } else if (wanted < flight) {
    path()->OnGone(flight - wanted);
    flight = wanted;
    qp.endpoint_.WindowOpened(path());
  }
}

Requester::Impl::Next Requester::Impl::Decide(Time now, Item* item) const {
  if (!running || (rnr_until != kNever && now < rnr_until)) {
    return Next::kNothing;
  }
  if (resend != kNone) return DecideResend(item);
  if (cursor_index >= failed_index) return Next::kNothing;
  if (trial && outstanding()) return Next::kNothing;
  return cursor < frontier ? DecideReplay(item) : DecideNew(item);
}

Requester::Impl::Next Requester::Impl::DecideResend(Item* item) const {
  const Slots::Slot* slot = slots.Find(resend);
  *item = {
      .index = IndexOf(resend),
      .seq = resend,
      .count = slot != nullptr ? static_cast<uint32_t>(slot->end - resend) : 1,
      .out_of_turn = true};
  return Next::kPacket;
}

Requester::Impl::Next Requester::Impl::DecideReplay(Item* item) const {
  const SendWqe& wqe = queue.at(cursor_index);
  *item = {.index = cursor_index, .seq = cursor};
  // The first packet of a replay does not wait for the window: others that
  // share the path could keep it full for ever.
  const bool always = !outstanding();
  const SendKind kind = wqe.operation().kind;
  uint64_t count = 1;
  if (kind == SendKind::kRead) {
    const Slots::Slot* slot = slots.Find(cursor);
    assert(slot != nullptr);
    count = slot->end - cursor;
    if (cursor > slot->first) {
      // Part of it has been answered, so the peer has executed all of it and
      // repeats any part: one part at a time, as the window permits.
      if (!always) return Next::kNothing;
      item->count = ReadCount(count, always);
      return Next::kPacket;
    }
    // It may be new to the peer, whose later answers then depend on where it
    // ends: it ends where it did.
    item->count = static_cast<uint32_t>(count);
  }
  const uint64_t cost =
      CostBefore(wqe, cursor + count) - CostBefore(wqe, cursor);
  return always || path()->MaySend(cost) ? Next::kPacket : Next::kWindow;
}

Requester::Impl::Next Requester::Impl::DecideNew(Item* item) const {
  const bool begins = cursor_index == begun;
  if (begins && (draining || begun == queue.tail())) return Next::kNothing;
  if (frontier - una >= kMaxOutstanding) return Next::kNothing;
  const SendWqe& wqe = queue.at(cursor_index);
  const SendOperation& operation = wqe.operation();
  if (operation.kind == SendKind::kLocal) return Next::kNothing;
  if (begins && (wqe.flags & kSendFence) != 0 && !slots.empty()) {
    return Next::kNothing;
  }
  if (operation.takes_receive && !HasCreditFor(wqe, begins)) {
    return Next::kNothing;
  }
  *item = {.index = cursor_index, .seq = frontier, .begins = begins};
  if (operation.takes_slot()) {
    // With no slots at all, sending finds the error.
    if (slots.capacity() == 0) return Next::kPacket;
    if (slots.full()) return Next::kNothing;
  }
  const uint64_t offset = begins ? 0 : (frontier - wqe.first) * mtu;
  const uint64_t remaining = wqe.length - offset;
  if (operation.kind == SendKind::kRead) {
    const uint64_t packets =
        begins ? std::max<uint64_t>(1, (remaining + mtu - 1) / mtu)
               : wqe.end() - frontier;
    item->count = ReadCount(packets, false);
    return item->count > 0 ? Next::kPacket : Next::kWindow;
  }
  const uint64_t cost =
      std::min<uint64_t>(remaining, mtu) + Path::kPacketOverhead;
  return path()->MaySend(cost) ? Next::kPacket : Next::kWindow;
}

// A message beyond the limit may be tried by its first packet when nothing
// else is outstanding; acknowledged, it has its receive.
bool Requester::Impl::HasCreditFor(const SendWqe& wqe, bool begins) const {
  if (!credit_limited) return true;
  const uint32_t number = begins ? messages + 1 : wqe.message;
  if (wire::PsnDiff(number, credit_limit) <= 0) return true;
  if (begins || frontier == wqe.first) return una == frontier;
  return una > wqe.first;
}

bool Requester::Impl::Transmit(Time now, Burst* burst) {
  Item item;
  Next next = Decide(now, &item);
  Gather gather{.buffer = LocalBuffer(*qp.config().memory, qp.config().pd,
                                      qp.qpn(), kAccessLocalRead)};
  while (next == Next::kPacket) {
    switch (Send(now, &item, &next, burst, &gather)) {
      case SendResult::kSent:
        break;
      case SendResult::kNoRoom:
        return !burst->empty();
      case SendResult::kFailed:
        Settle(now);
        next = Decide(now, &item);
        break;
    }
  }
  if (next == Next::kWindow) {
    // READ requests are short, however much of the window they take: who waits
    // with one has had its turn.
    if (queue.at(item.index).operation().kind == SendKind::kRead) {
      qp.endpoint_.EndTurn(&qp);
    }
    qp.endpoint_.WaitForWindow(&qp);
  }
  return next == Next::kTurn;
}

void Requester::Impl::Begin(uint64_t index) {
  assert(index == begun && cursor == frontier);
  SendWqe& wqe = queue.at(index);
  wqe.first = frontier;
  wqe.packets = std::max<uint32_t>(
      1, static_cast<uint32_t>((uint64_t{wqe.length} + mtu - 1) / mtu));
  wqe.cost = next_cost;
  next_cost += CostOf(wqe);
  if (wqe.operation().kind == SendKind::kMessage) {
    messages = (messages + 1) & wire::kPsnMask;
    wqe.message = messages;
  }
  ++begun;
}

wire::Bth Requester::Impl::BthFor(const SendWqe& wqe, uint64_t seq,
                                  uint32_t count) const {
  const SendOperation& operation = wqe.operation();
  const bool first = seq == wqe.first;
  const bool last = seq + count == wqe.end();
  const wire::Operation position =
      first ? (last ? operation.only : operation.first)
            : (last ? operation.last : operation.middle);
  const wire::Transport transport = qp.config().type == QpType::kXrcInitiator
                                        ? wire::Transport::kXrc
                                        : wire::Transport::kRc;
  wire::Bth bth;
  bth.opcode = wire::MakeOpcode(transport, position);
  bth.dest_qpn = qp.attributes().dest_qpn;
  bth.psn = PsnOf(seq);
  bth.solicited =
      last && operation.takes_receive && (wqe.flags & kSendSolicited) != 0;
  return bth;
}

uint32_t Requester::Impl::ReadLength(const SendWqe& wqe, uint64_t seq,
                                     uint32_t count) const {
  const uint64_t offset = (seq - wqe.first) * mtu;
  return static_cast<uint32_t>(
      std::min<uint64_t>(wqe.length - offset, uint64_t{count} * mtu));
}

wire::Headers Requester::Impl::HeadersFor(const SendWqe& wqe, uint64_t seq,
                                          uint32_t count) const {
  wire::Headers headers;
  headers.xrc_srqn = wqe.remote_srqn;
  headers.imm_be = wqe.imm_be_or_rkey;
  headers.invalidate_rkey = wqe.imm_be_or_rkey;
  if (wqe.operation().kind == SendKind::kRead) {
    headers.reth = {.va = wqe.remote_addr + (seq - wqe.first) * mtu,
                    .rkey = wqe.rkey,
                    .length = ReadLength(wqe, seq, count)};
  } else {
    headers.reth = {
        .va = wqe.remote_addr, .rkey = wqe.rkey, .length = wqe.length};
  }
  const bool swaps = wqe.opcode == SendOpcode::kCompareSwap;
  headers.atomic = {.va = wqe.remote_addr,
                    .rkey = wqe.rkey,
                    .swap_or_add = swaps ? wqe.swap : wqe.compare_add,
                    .compare = swaps ? wqe.compare_add : 0};
  return headers;
}

MemoryStatus Requester::Impl::CopyPayload(uint64_t index, uint64_t offset,
                                          size_t bytes, uint8_t* to,
                                          uint32_t* icrc, Gather* gather) {
  if ((queue.at(index).flags & kSendInline) != 0) {
    std::memcpy(to, queue.inline_data(index) + offset, bytes);
    if (icrc != nullptr) *icrc = wire::IcrcFlow::Extend(*icrc, {to, bytes});
    return MemoryStatus::kOk;
  }
  if (gather->index != index || gather->offset != offset) {
    gather->buffer.Seek(queue.sges(index), offset);
  }
  gather->index = index;
  gather->offset = offset + bytes;
  return gather->buffer.Read(to, bytes, icrc);
}

// An ACK is asked for at least every quarter of the window.
uint64_t Requester::Impl::MaxUnaskedBytes() const {
  return path()->window() / 4;
}

uint32_t Requester::Impl::CountAlike(const SendWqe& wqe, const Item& item,
                                     size_t packet_bytes,
                                     const Burst& burst) const {
  const bool middle = item.seq != wqe.first && item.seq + 1 != wqe.end();
  const bool again = item.out_of_turn || item.seq < frontier;
  if (!middle || again || urge_ack || packet_bytes != AlikeBytes()) return 1;
  const uint64_t asks_at = MaxUnaskedBytes();
  const uint64_t unasked =
      asks_at > unasked_bytes ? (asks_at - unasked_bytes + mtu - 1) / mtu : 1;
  return static_cast<uint32_t>(
      std::min({wqe.end() - 1 - item.seq, kMaxOutstanding - (frontier - una),
                path()->MaySendPackets(PacketCost()), unasked,
                uint64_t{burst.Room(packet_bytes)}}));
}

bool Requester::Impl::WantAckReq(const SendWqe& wqe, const Item& item,
                                 bool more) const {
  if (!more || urge_ack) return true;
  if (item.out_of_turn && resend == kNone) return true;
  if (wqe.operation().takes_slot()) return true;  // as hardware does
  if (unasked_bytes >= MaxUnaskedBytes()) return true;
  if (item.seq + 1 != wqe.end()) return false;
  if (wqe.packets == 1) return unasked_packets >= kMaxUnaskedMessages;
  return queue.tail() - item.index <= kManyQueued;
}

void Requester::Impl::NoteSent(Time now, const Item& item, uint32_t packets,
                               size_t payload) {
  const SendWqe& wqe = queue.at(item.index);
  const bool again = item.seq < frontier;
  if (again) ++qp.counters_.retransmitted;
  if (item.out_of_turn) {
    ContinueResend(item.seq + item.count);
    if (Slots::Slot* slot = slots.Find(item.seq)) slot->replayed = true;
    rtt_seq = kNone;
  } else {
    cursor += item.count;
    if (!again) {
      frontier = cursor;
      if (wqe.operation().takes_slot()) {
        slots.Push(item.seq, frontier);
        messages = (messages + 1) & wire::kPsnMask;
      }
    }
    if (cursor >= wqe.end()) ++cursor_index;
    replayed_to = std::max(replayed_to, cursor);
    SkipAcknowledged();
    SyncFlight();
  }
  if (timeout_base == kNever) timeout_base = now;
  if (probe_base == kNever) probe_base = now;
  rnr_until = kNever;
  unasked_packets += packets;
  unasked_bytes += packets * payload;
}

Requester::Impl::SendResult Requester::Impl::Send(Time now, Item* item,
                                                  Next* next, Burst* burst,
                                                  Gather* gather) {
  Item sent = *item;
  SendWqe& wqe = queue.at(sent.index);
  const SendOperation& operation = wqe.operation();
  if (operation.takes_slot() && slots.capacity() == 0) {
    FailLocally(sent.index, WcStatus::kLocalQpOperationError);
    return SendResult::kFailed;
  }
  if (operation.kind == SendKind::kAtomic && wqe.length < kAtomicSize) {
    FailLocally(sent.index, WcStatus::kLocalLengthError);
    return SendResult::kFailed;
  }
  // One that has begun and sent nothing is no different from one that waits.
  if (sent.begins) Begin(sent.index);

  const uint64_t offset = (sent.seq - wqe.first) * mtu;
  const auto payload = static_cast<size_t>(
      operation.sends_payload ? std::min<uint64_t>(wqe.length - offset, mtu)
                              : 0);
  wire::Bth bth = BthFor(wqe, sent.seq, sent.count);
  const size_t pad = wire::PadCount(payload);
  bth.pad_count = static_cast<uint8_t>(pad);
  const size_t header = wire::GetOpcodeInfo(bth.opcode).header_length;
  const size_t size = header + payload + pad + wire::kIcrcSize;
  uint8_t* out = burst->Reserve(size);
  if (out == nullptr) return SendResult::kNoRoom;
  const uint32_t packets = CountAlike(wqe, sent, size, *burst);
  if (packets > 1) sent.count = packets;

  if (header == wire::kBthSize) {
    wire::EmitBth(bth, out);
  } else {
    wire::Headers headers = HeadersFor(wqe, sent.seq, sent.count);
    headers.bth = bth;
    wire::EmitHeaders(headers, out);
  }
  // AckReq, decided after the copy, changes the ICRC: the last packets that are
  // queued have it for sure (WantAckReq), and carry none.
  const bool asks =
      sent.seq + 1 == wqe.end() &&
      queue.tail() - sent.index <= (wqe.packets > 1 ? kManyQueued : 1);
  const bool carries = payload >= Burst::kMinCarriedIcrc && !asks;
  std::optional<uint32_t> icrc;
  if (carries) icrc = burst->BeginIcrc(header);

  MemoryStatus status = MemoryStatus::kOk;
  if (operation.kind == SendKind::kRead) {
    status =
        CheckTarget(sent.index, offset, ReadLength(wqe, sent.seq, sent.count));
  } else if (operation.response_bytes > 0) {
    status = CheckTarget(sent.index, 0, operation.response_bytes);
  }
  const bool fresh = sent.seq >= frontier;
  uint32_t made = 0;
  while (status == MemoryStatus::kOk && payload > 0) {
    status = CopyPayload(sent.index, offset + made * payload, payload,
                         out + header, icrc ? &*icrc : nullptr, gather);
    if (status != MemoryStatus::kOk || ++made == packets) break;
    burst->Commit(icrc);
    out = burst->Reserve(size);
    assert(out != nullptr);
    bth.psn = wire::PsnAdd(bth.psn, 1);
    wire::EmitBth(bth, out);
    if (carries) icrc = burst->BeginIcrc(header);
  }
  if (status != MemoryStatus::kOk) {
    sent.count = made;
    if (made > 0) NoteSent(now, sent, made, payload);
    FailLocally(sent.index, WcStatus::kLocalProtectionError);
    return SendResult::kFailed;
  }
  uint8_t* const padding = out + header + payload;
  std::memset(padding, 0, pad);
  if (icrc) icrc = wire::IcrcFlow::Extend(*icrc, {padding, pad});

  NoteSent(now, sent, packets, payload);
  *next = Decide(now, item);
  // A turn ends with a message or a full burst: to cut either costs a send.
  if (*next == Next::kPacket &&
      qp.endpoint_.TurnIsOver(&qp, burst->bytes().size() + size) &&
      (sent.seq + sent.count == wqe.end() || burst->Room(size) < 2)) {
    *next = Next::kTurn;
  }
  if (WantAckReq(wqe, sent, *next == Next::kPacket)) {
    out[kAckReqByte] |= kAckReqBit;
    icrc.reset();
    unasked_packets = 0;
    unasked_bytes = 0;
    urge_ack = false;
    if (fresh && rtt_seq == kNone) {
      rtt_seq = sent.seq + packets - 1;
      rtt_sent = now;
    }
  }
  burst->Commit(icrc);
  return SendResult::kSent;
}

void Requester::Impl::FailLocally(uint64_t index, WcStatus status) {
  resend = kNone;
  if (index >= failed_index) return;
  failed_index = index;
  failed_status = status;
  // What is before it completes first; its last packet may not have asked for
  // an ACK, since more was to follow.
  const uint64_t first = index < begun ? queue.at(index).first : frontier;
  if (unasked_packets > 0 && una < first && cursor >= first) {
    ResendOne(first - 1);
  }
}

}  // namespace transport
