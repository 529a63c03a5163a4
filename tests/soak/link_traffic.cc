// The traffic of a link: posting operations and verifying results.
#include <arpa/inet.h>
#include <errno.h>

#include <cmath>
#include <cstring>

#include "tests/soak/link.h"
#include "tests/soak/pattern.h"

namespace soak {
namespace {

constexpr int64_t kTellAgainMs = 20;  // over UC, where credits may be lost
constexpr int64_t kProbeMs = 50;      // without credit over UC
constexpr size_t kInline = 64;

}  // namespace

size_t Link::OffsetOf(size_t op) const {
  return op < kLargeOps
             ? op * kMaxBytes
             : kLargeOps * kMaxBytes + (op - kLargeOps) * kSmallBytes;
}

// A size from 1 to `most`; all magnitudes are equally likely.
size_t Link::RandomSize(size_t most) {
  const double magnitude = std::log(static_cast<double>(most) + 1);
  const double place = static_cast<double>(Random(1 << 20)) / (1 << 20);
  const auto size = static_cast<size_t>(std::exp(place * magnitude));
  return std::min(std::max<size_t>(size, 1), most);
}

uint64_t Link::Credit() const {
  uint64_t credit;
  __atomic_load(reinterpret_cast<uint64_t*>(target_.data() + kCreditAt),
                &credit, __ATOMIC_ACQUIRE);
  return credit;
}

// --- Posting.

bool Link::Pump() {
  if (state_ != State::kRunning && state_ != State::kConnected &&
      state_ != State::kQuieting && state_ != State::kQuiet) {
    return false;
  }
  const int before = sends_out_;
  PostCredit();
  if (state_ == State::kRunning) {
    while (PostSome()) {
    }
  }
  return sends_out_ != before;
}

bool Link::PostCredit() {
  const int64_t now = NowMs();
  const bool again = !options_.reliable && now - told_ms_ >= kTellAgainMs;
  if (credit_out_ || seen_ == 0 || (seen_ == told_ && !again)) return false;
  uint64_t value = seen_;
  ibv_sge sge = {reinterpret_cast<uint64_t>(&value), sizeof(value), 0};
  ibv_send_wr wr = {};
  wr.wr_id = kCreditId;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = peer_target_ + kCreditAt;
  wr.wr.rdma.rkey = peer_target_rkey_;
  ibv_send_wr* bad;
  const int error = ibv_post_send(qp_, &wr, &bad);
  if (error != 0) Die("ibv_post_send of a credit", error);
  told_ = seen_;
  told_ms_ = now;
  credit_out_ = true;
  ++sends_out_;
  return true;
}

Link::Kind Link::ChooseKind() {
  // The relative frequency of each kind, over RC and UC.
  static constexpr int kWeights[2][kKinds] = {{3, 3, 3, 0, 1, 0, 0, 0},
                                              {4, 4, 4, 4, 0, 4, 2, 2}};
  const auto& weights = kWeights[options_.reliable];
  int total = 0;
  for (const int weight : weights) total += weight;
  auto left = static_cast<int>(Random(static_cast<uint64_t>(total)));
  size_t kind = 0;
  while (left >= weights[kind]) left -= weights[kind++];
  return static_cast<Kind>(kind);
}

bool Link::PostSome() {
  size_t op = Random(kOps);
  for (size_t i = 0; i < kOps && ops_[op].requests != 0; ++i) {
    op = (op + 1) % kOps;
  }
  if (ops_[op].requests != 0) return false;
  const int64_t now = NowMs();
  if (const uint64_t credit = Credit(); credit != last_credit_) {
    last_credit_ = credit;
    credit_ms_ = now;
  }
  if (!options_.reliable && !MayNumber()) {
    // The message that grants credit may be lost: a message that needs none of
    // the peer's memory asks for it.
    if (now - credit_ms_ < kProbeMs) return false;
    credit_ms_ = now;
    return Post(op, Kind::kSendImm);
  }
  const Kind kind = ChooseKind();
  switch (kind) {
    case Kind::kSend:
    case Kind::kSendImm:
    case Kind::kWriteImm:
      if (!MayNumber()) return false;
      break;
    case Kind::kWriteRead:
      if (writing_) return false;
      break;
    default:
      break;
  }
  return Post(op, kind);
}

bool Link::Post(size_t op, Kind kind) {
  ops_[op] = {};
  ops_[op].kind = kind;
  ops_[op].posted_ms = NowMs();
  switch (kind) {
    case Kind::kSend:
    case Kind::kSendImm:
    case Kind::kWriteImm:
      return PostMessage(op, kind);
    case Kind::kWriteRead:
    case Kind::kWrite:
      return PostWrite(op, kind);
    case Kind::kRead:
      return PostRead(op);
    case Kind::kFetchAdd:
    case Kind::kCompareSwap:
      return PostAtomic(op, kind);
  }
  return false;
}

bool Link::PostRequest(size_t op, ibv_send_wr* wr, size_t offset, size_t size) {
  ibv_sge sge = {local_.address(offset), static_cast<uint32_t>(size),
                 local_mr_->lkey};
  wr->wr_id = op;
  wr->sg_list = &sge;
  wr->num_sge = 1;
  ibv_send_wr* bad;
  const int error = ibv_post_send(qp_, wr, &bad);
  if (error != 0) Die("ibv_post_send", error);
  ++ops_[op].requests;
  ++sends_out_;
  bytes_ += size;
  return true;
}

bool Link::PostMessage(size_t op, Kind kind) {
  size_t most = Room(op);
  if (kind == Kind::kWriteImm) {
    most = std::min(most, kSlotBytes);
  } else if (!options_.shared_receives) {
    most = std::min(most, kReceiveBytes);
  }
  size_t size = RandomSize(most);
  // Over UC the number is in the message or in its immediate data.
  if (kind == Kind::kSend && !options_.reliable) {
    size = std::max(size, kNumberBytes);
  }
  const uint64_t number = ++sent_;
  FillMessage(BufferOf(op), size, key_, number);
  ibv_send_wr wr = {};
  wr.opcode = kind == Kind::kSend      ? IBV_WR_SEND
              : kind == Kind::kSendImm ? IBV_WR_SEND_WITH_IMM
                                       : IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htonl(static_cast<uint32_t>(number));
  if (size <= kInline && Random(2) == 0) wr.send_flags |= IBV_SEND_INLINE;
  if (Random(4) == 0) wr.send_flags |= IBV_SEND_SOLICITED;
  if (kind == Kind::kWriteImm) {
    wr.wr.rdma.remote_addr =
        peer_target_ + kSlotAt + number % kWindow * kSlotBytes;
    wr.wr.rdma.rkey = peer_target_rkey_;
  }
  return PostRequest(op, &wr, OffsetOf(op), size);
}

// A WRITE and, over RC, a READ of the same bytes into the other half.
bool Link::PostWrite(size_t op, Kind kind) {
  const size_t half = Room(op) / 2;
  const size_t size = RandomSize(half);
  const size_t at = Random((kMaxBytes - size) / 8 + 1) * 8;
  Op& o = ops_[op];
  o.size = size;
  // Over UC the order of WRITEs is unknown, so all write the same content.
  o.key = kind == Kind::kWrite ? key_ : Mix(key_, random_());
  o.first = at / 8;
  FillPattern(BufferOf(op), size, o.key, o.first);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = peer_target_ + kWriteAt + at;
  wr.wr.rdma.rkey = peer_target_rkey_;
  PostRequest(op, &wr, OffsetOf(op), size);
  if (kind == Kind::kWrite) return true;
  writing_ = true;
  std::memset(BufferOf(op) + half, 0, size);
  wr.opcode = IBV_WR_RDMA_READ;
  return PostRequest(op, &wr, OffsetOf(op) + half, size);
}

bool Link::PostRead(size_t op) {
  Op& o = ops_[op];
  o.size = RandomSize(Room(op));
  o.first = Random((kMaxBytes - o.size) / 8 + 1);
  o.key = peer_readable_key_;
  std::memset(BufferOf(op), 0, o.size);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma.remote_addr = peer_readable_ + o.first * 8;
  wr.wr.rdma.rkey = peer_readable_rkey_;
  return PostRequest(op, &wr, OffsetOf(op), o.size);
}

bool Link::PostAtomic(size_t op, Kind kind) {
  ibv_send_wr wr = {};
  wr.wr.atomic.rkey = peer_target_rkey_;
  if (kind == Kind::kFetchAdd) {
    ops_[op].value = added_;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = peer_target_ + kAddAt;
    wr.wr.atomic.compare_add = Random(1000);
    added_ += wr.wr.atomic.compare_add;
  } else {
    ops_[op].value = swapped_;
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.remote_addr = peer_target_ + kSwapAt;
    // One in four compares fail and leave the value.
    const bool match = Random(4) != 0;
    wr.wr.atomic.compare_add = match ? swapped_ : swapped_ + 1;
    wr.wr.atomic.swap = random_();
    if (match) swapped_ = wr.wr.atomic.swap;
  }
  return PostRequest(op, &wr, OffsetOf(op), sizeof(uint64_t));
}

// --- Results.

void Link::OnSent(const ibv_wc& wc) {
  ++completed_;
  if (wc.wr_id == kCreditId) {
    credit_out_ = false;
    return;
  }
  Op& op = ops_[wc.wr_id];
  if (--op.requests != 0) return;
  const uint8_t* const bytes = BufferOf(wc.wr_id);
  size_t difference = op.size;
  switch (op.kind) {
    case Kind::kWriteRead:
      writing_ = false;
      difference = FirstDifference(bytes + Room(wc.wr_id) / 2, op.size, op.key,
                                   op.first);
      break;
    case Kind::kRead:
      difference = FirstDifference(bytes, op.size, op.key, op.first);
      break;
    case Kind::kFetchAdd:
    case Kind::kCompareSwap:
      if (NumberOf(bytes) != op.value) {
        Mismatch("an atomic has returned " + std::to_string(NumberOf(bytes)) +
                 " instead of " + std::to_string(op.value));
      }
      break;
    default:
      break;
  }
  if (difference != op.size) {
    Mismatch(std::string(op.kind == Kind::kRead ? "READ" : "READ after WRITE") +
             " of " + std::to_string(op.size) + " bytes: byte " +
             std::to_string(difference) + " is wrong");
  }
}

void Link::OnReceived(const ibv_wc& wc) {
  const size_t index = wc.wr_id - kReceiveId;
  const uint8_t* const bytes = options_.shared_receives
                                   ? device_->shared(index)
                                   : receives_.data() + index * kReceiveBytes;
  ++received_;
  CheckMessage(wc, bytes);
  if (options_.shared_receives) {
    device_->PostShared(index);
  } else if (state_ != State::kBroken && state_ != State::kDropping) {
    PostReceive(index);
  }
}

void Link::CheckMessage(const ibv_wc& wc, const uint8_t* bytes) {
  uint64_t number = seen_ + 1;
  if (wc.wc_flags & IBV_WC_WITH_IMM) {
    number = seen_ + static_cast<uint64_t>(static_cast<int32_t>(
                         ntohl(wc.imm_data) - static_cast<uint32_t>(seen_)));
  } else if (!options_.reliable) {
    number = NumberOf(bytes);
  }
  if (options_.reliable ? number != seen_ + 1 : number <= seen_) {
    Mismatch("message " + std::to_string(number) + " came after " +
             std::to_string(seen_));
  }
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    bytes = target_.data() + kSlotAt + number % kWindow * kSlotBytes;
  }
  if (!IsMessage(bytes, wc.byte_len, peer_key_, number)) {
    Mismatch("message " + std::to_string(number) + " of " +
             std::to_string(wc.byte_len) + " bytes is not what was sent");
  }
  seen_ = number;
}

void Link::CheckWrites() {
  const uint8_t* const bytes = target_.data() + kWriteAt;
  for (uint64_t i = 0; i < kMaxBytes / 8; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * 8, 8);
    uint64_t wanted = PatternWord(peer_key_, i);
    // The last word of a WRITE may have been written in part.
    for (uint64_t mask = ~uint64_t{0}; word != (wanted & mask); mask >>= 8) {
      if (mask == 0) {
        Mismatch("a WRITE has left something else at word " +
                 std::to_string(i));
        return;
      }
    }
  }
}

}  // namespace soak
