// Plans the work requests of a run.
#include <algorithm>
#include <cstring>

#include "transport/sim/workload.h"

namespace sim {

using transport::SendOpcode;
using transport::Sge;

Arena::Arena(size_t capacity)
    : capacity_(capacity),
      actual_(new uint8_t[capacity]),
      expected_(new uint8_t[capacity]) {}

size_t Arena::Allocate(Random& random, size_t bytes, size_t skew) {
  const size_t guard = 8 + random.Below(24);
  const size_t offset = (used_ + guard + 7) / 8 * 8 + skew;
  const size_t end = offset + bytes;
  if (end + 64 > capacity_) std::abort();  // the plan needs too much memory
  random.Fill(actual(used_), end + 32 - used_);
  std::memcpy(expected(used_), actual(used_), end + 32 - used_);
  used_ = end;
  return offset;
}

void Arena::Accept(size_t offset, size_t bytes) {
  std::memcpy(expected(offset), actual(offset), bytes);
}

size_t Arena::FirstDifference() const {
  if (std::memcmp(actual_.get(), expected_.get(), used_) == 0) return used_;
  return std::mismatch(actual_.get(), actual_.get() + used_, expected_.get())
             .first -
         actual_.get();
}

namespace {

class Planner {
 public:
  Planner(Random& random, const Scenario& scenario, End& end)
      : random_(random),
        scenario_(scenario),
        end_(end),
        mine_(*end.host),
        theirs_(*end.peer->host) {}

  void Plan() {
    const int wanted = end_.scenario->sends;
    while (static_cast<int>(end_.ops.size()) < wanted) {
      const uint64_t kind = random_.Below(100);
      if (kind < 30) {
        PlanSend();
      } else if (kind < 55) {
        PlanWrite();
      } else if (kind < 72) {
        PlanRead();
      } else if (kind < 82) {
        PlanAtomic();
      } else if (kind < 84) {
        PlanAtomicWrite();
      } else if (kind < 86) {
        PlanWriteThenFlush();
      } else if (kind < 87) {
        if (random_.Percent(50)) {
          PlanLocalInvalidate();
        } else {
          PlanBind();
        }
      } else if (kind < 90) {
        PlanOverwrite();
      } else if (kind < 93) {
        PlanWriteThenRead();
      } else if (kind < 97) {
        PlanReadThenFencedWrite();
      } else {
        PlanReadThenFencedForward();
      }
    }
    ChooseSignals();
  }

 private:
  uint32_t max_sge() const { return end_.scenario->capacity.max_send_sge; }

  // --- Lengths.

  uint32_t Length() {
    const uint32_t mtu = end_.connection->path_mtu;
    uint64_t length;
    const uint64_t kind = random_.Below(100);
    if (kind < 15) {
      length = random_.Pick<uint64_t>({0, 0, 1, 2, 3, 4, 7, 8, 63, 64});
    } else if (kind < 45) {
      length = mtu * (1 + random_.Below(random_.Percent(70) ? 4 : 40)) +
               random_.Between(-1, 1);
    } else if (kind < 75) {
      length = random_.Below(4 * mtu + 1);
    } else if (kind < 95) {
      length = random_.Below(65537);
    } else {
      length = random_.Below(scenario_.max_length + 1);
    }
    // The remaining budget limits long messages only.
    const uint64_t left = end_.scenario->byte_budget > spent_
                              ? end_.scenario->byte_budget - spent_
                              : 0;
    length = std::min<uint64_t>(length, scenario_.max_length);
    if (length > 2 * mtu && length > left) length = random_.Below(2 * mtu + 2);
    spent_ += length;
    return length;
  }
  uint32_t SendLength() {
    const uint32_t length = Length();
    // All receives of an SRQ hold the maximum message.
    return end_.peer->shared != nullptr ? std::min(length, 8192u) : length;
  }

  // --- Memory.

  // A key for a piece of `host` in the domain of `end`: the pool's, or that of
  // a region with exactly this size and access.
  Region KeyFor(Host& host, const End& end, Piece piece, uint32_t access,
                bool alone = false) {
    if (!alone && random_.Percent(60)) return host.pools[end.scenario->pd];
    const uint64_t va =
        random_.Percent(20)
            ? piece.offset % 8
            : (random_.Next() >> 2 & ~uint64_t{7}) + piece.offset % 8;
    return host.node->memory().Register(end.scenario->pd,
                                        host.arena.actual(piece.offset), va,
                                        piece.length, access);
  }
  static uint64_t VaOf(Host& host, const Region& region, size_t offset) {
    return region.va + (host.arena.actual(offset) - region.data);
  }
  std::vector<Piece> Split(Host& host, uint32_t length, uint32_t max_pieces) {
    std::vector<Piece> pieces;
    const uint32_t count =
        random_.Percent(50) ? 1 : random_.Between(1, max_pieces);
    uint32_t left = length;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t n = left;
      if (i + 1 < count) {
        n = random_.Percent(30) ? std::min<uint32_t>(left, random_.Below(5))
                                : random_.Below(left + 1);
      }
      left -= n;
      pieces.push_back({host.arena.Allocate(random_, n, random_.Below(8)), n});
    }
    return pieces;
  }
  std::vector<Sge> SgesFor(Host& host, const End& end,
                           const std::vector<Piece>& pieces, uint32_t access) {
    std::vector<Sge> sges;
    for (const Piece& piece : pieces) {
      if (piece.length == 0) {
        // A zero-length SGE has no key check.
        sges.push_back(
            {random_.Next(), 0, static_cast<uint32_t>(random_.Next())});
        continue;
      }
      const Region region = KeyFor(host, end, piece, access);
      sges.push_back({VaOf(host, region, piece.offset),
                      static_cast<uint32_t>(piece.length), region.lkey});
    }
    return sges;
  }
  void SetRemote(Op* op, Piece piece, uint32_t access) {
    op->remote = piece;
    if (piece.length == 0) {
      op->remote_addr = random_.Next();
      op->rkey = random_.Next();
      return;
    }
    const Region region = KeyFor(theirs_, *end_.peer, piece, access);
    op->remote_addr = VaOf(theirs_, region, piece.offset);
    op->rkey = region.rkey;
  }
  static std::vector<uint8_t> Gather(Host& host,
                                     const std::vector<Piece>& pieces) {
    std::vector<uint8_t> content;
    for (const Piece& piece : pieces) {
      const uint8_t* from = host.arena.expected(piece.offset);
      content.insert(content.end(), from, from + piece.length);
    }
    return content;
  }
  static void Scatter(Host& host, const std::vector<Piece>& pieces,
                      const std::vector<uint8_t>& content) {
    size_t at = 0;
    for (const Piece& piece : pieces) {
      const size_t n = std::min(piece.length, content.size() - at);
      std::copy_n(content.begin() + at, n, host.arena.expected(piece.offset));
      at += n;
    }
  }

  // --- Building blocks. Each adds a work request and applies it to the
  // expected images.

  Op& Add(SendOpcode opcode) {
    Op& op = end_.ops.emplace_back();
    op.opcode = opcode;
    op.wr_id = random_.Next() & ~kReceiveWrId;
    if (random_.Percent(15)) op.flags |= transport::kSendFence;
    return op;
  }
  // Sets the source of a SEND or WRITE of `length` bytes: `pieces`, or new
  // ones.
  void SetSource(Op* op, uint32_t length, std::vector<Piece> pieces = {}) {
    const bool own = pieces.empty();
    if (own) pieces = Split(mine_, length, max_sge());
    op->length = length;
    op->local = pieces;
    op->content = Gather(mine_, pieces);
    if (length <= end_.scenario->capacity.max_inline_data && own &&
        random_.Percent(40)) {
      op->flags |= transport::kSendInline;
      for (const Piece& piece : pieces) {
        op->sges.push_back(
            {reinterpret_cast<uintptr_t>(mine_.arena.actual(piece.offset)),
             static_cast<uint32_t>(piece.length),
             static_cast<uint32_t>(random_.Next())});
      }
    } else {
      op->sges = SgesFor(mine_, end_, pieces, transport::kAccessLocalRead);
    }
    op->scribble = own && random_.Percent(50);
  }
  void Write(Piece target, std::vector<Piece> source = {}, bool imm = false) {
    Op& op = Add(imm ? SendOpcode::kRdmaWriteWithImm : SendOpcode::kRdmaWrite);
    SetSource(&op, target.length, std::move(source));
    SetRemote(&op, target,
              transport::kAccessRemoteWrite | transport::kAccessLocalWrite);
    Scatter(theirs_, {target}, op.content);
    if (imm) {
      op.imm_be = random_.Next();
      AddMessage();
    }
  }
  std::vector<Piece> Read(Piece source) {
    Op& op = Add(SendOpcode::kRdmaRead);
    op.length = source.length;
    op.local = Split(mine_, source.length, max_sge());
    op.sges = SgesFor(mine_, end_, op.local, transport::kAccessLocalWrite);
    SetRemote(&op, source, transport::kAccessRemoteRead);
    op.content = Gather(theirs_, {source});
    Scatter(mine_, op.local, op.content);
    return op.local;
  }
  // Marks the last op as one that takes a receive of the peer.
  void AddMessage() {
    Op& op = end_.ops.back();
    op.message = end_.messages.size();
    end_.messages.push_back(end_.ops.size() - 1);
    if (random_.Percent(30)) op.flags |= transport::kSendSolicited;
    if (SharedReceives* shared = end_.peer->shared; shared != nullptr) {
      ++shared->messages;
      if (op.is_send()) shared->longest = std::max(shared->longest, op.length);
    }
  }
  Piece Target(uint32_t length) {
    return {theirs_.arena.Allocate(random_, length, random_.Below(8)), length};
  }

  // --- Kinds of work.

  void Send(uint32_t length, std::vector<Piece> source = {}) {
    const uint64_t kind = random_.Below(10);
    Op& op = Add(kind < 6   ? SendOpcode::kSend
                 : kind < 9 ? SendOpcode::kSendWithImm
                            : SendOpcode::kSendWithInvalidate);
    SetSource(&op, length, std::move(source));
    if (op.has_imm()) op.imm_be = random_.Next();
    if (op.opcode == SendOpcode::kSendWithInvalidate) {
      const Piece piece = Target(1 + random_.Below(100));
      const Region region = KeyFor(theirs_, *end_.peer, piece,
                                   transport::kAccessRemoteRead, true);
      theirs_.node->memory().FindByLkey(region.lkey)->may_invalidate = true;
      op.invalidate_rkey = region.rkey;
    }
    AddMessage();
  }
  void PlanSend() { Send(SendLength()); }
  void PlanWrite() { Write(Target(Length()), {}, random_.Percent(30)); }
  void PlanRead() { Read(Target(Length())); }

  // Two WRITEs to overlapping bytes: the later one wins.
  void PlanOverwrite() {
    const Piece target = Target(2 + Length());
    Write(target);
    end_.ops.back().settled = false;
    Piece part = target;
    part.offset += random_.Below(part.length);
    part.length =
        1 + random_.Below(target.offset + target.length - part.offset);
    Write(part, {}, random_.Percent(30));
  }
  // A READ after a WRITE returns the written data.
  void PlanWriteThenRead() {
    const Piece target = Target(1 + Length());
    Write(target);
    Read(target);
  }
  // A window for this op: bound, and perhaps invalidated and bound again.
  void PlanBind() {
    const Piece piece = {mine_.arena.Allocate(random_, 100), 100};
    const Region region =
        KeyFor(mine_, end_, piece, transport::kAccessRemoteRead, true);
    Region* window = mine_.node->memory().FindByLkey(region.lkey);
    window->is_window = window->may_invalidate = window->invalidated = true;
    Add(SendOpcode::kBindMw).rkey = region.rkey;
    if (random_.Percent(50)) {
      Add(SendOpcode::kLocalInvalidate).invalidate_rkey = region.rkey;
      Add(SendOpcode::kBindMw).rkey = region.rkey;
    }
  }

  void PlanAtomicWrite() {
    const Piece target = {theirs_.arena.Allocate(random_, 8), 8};
    Op& op = Add(SendOpcode::kAtomicWrite);
    SetSource(&op, 8);
    SetRemote(&op, target,
              transport::kAccessRemoteWrite | transport::kAccessLocalWrite);
    Scatter(theirs_, {target}, op.content);
  }
  // After a FLUSH, earlier WRITEs are visible.
  void PlanWriteThenFlush() {
    const Piece target = Target(1 + Length());
    Write(target);
    const std::vector<uint8_t> content = end_.ops.back().content;
    Op& op = Add(SendOpcode::kFlush);
    op.length = 0;
    op.content = content;
    const wire::Feth feth = {
        .placement_type = static_cast<uint8_t>(1 + random_.Below(3)),
        .selectivity = static_cast<uint8_t>(random_.Below(2))};
    SetRemote(&op, target,
              transport::AccessOf(feth) | transport::kAccessLocalWrite);
    op.compare_add = target.length;
    op.swap = transport::FlushOperand(feth);
  }
  // A fenced WRITE after a READ does not change the READ's data (10.8.3.3:
  // without the fence it may).
  void PlanReadThenFencedWrite() {
    const Piece target = Target(1 + Length());
    Read(target);
    Write(target);
    end_.ops.back().flags |= transport::kSendFence;
  }
  // Forwards the data of a READ: the fence waits for it.
  void PlanReadThenFencedForward() {
    const Piece source =
        Target(1 + (end_.peer->shared != nullptr ? std::min(Length(), 8000u)
                                                 : Length()));
    const std::vector<Piece> local = Read(source);
    if (random_.Percent(50)) {
      Send(source.length, local);
    } else {
      Write(Target(source.length), local);
    }
    end_.ops.back().flags |= transport::kSendFence;
  }

  // Invalidates a region; requests posted before it may still use it.
  void PlanLocalInvalidate() {
    const Piece piece = {mine_.arena.Allocate(random_, 100), 100};
    const Region region =
        KeyFor(mine_, end_, piece, transport::kAccessRemoteRead, true);
    mine_.node->memory().FindByLkey(region.lkey)->may_invalidate = true;
    if (random_.Percent(50)) {
      Op& write = Add(SendOpcode::kRdmaWrite);
      write.length = 100;
      write.local = {piece};
      write.content = Gather(mine_, {piece});
      write.sges = {{region.va, 100, region.lkey}};
      SetRemote(&write, Target(100),
                transport::kAccessRemoteWrite | transport::kAccessLocalWrite);
      Scatter(theirs_, {write.remote}, write.content);
    }
    Op& op = Add(SendOpcode::kLocalInvalidate);
    op.invalidate_rkey = region.rkey;
  }

  void PlanAtomic() {
    const bool compare_swap = random_.Percent(50);
    const int index = ChooseWord(compare_swap);
    AtomicWord& word = theirs_.words[index];
    Op& op =
        Add(compare_swap ? SendOpcode::kCompareSwap : SendOpcode::kFetchAdd);
    op.word = index;
    op.length = 8;
    op.local = {{mine_.arena.Allocate(random_, 8, random_.Below(8)), 8}};
    op.sges = SgesFor(mine_, end_, op.local, transport::kAccessLocalWrite);
    SetRemote(&op, {word.offset, 8},
              transport::kAccessRemoteAtomic | transport::kAccessLocalWrite);
    if (compare_swap) {
      // Usually the value that this queue pair's last swap stored.
      uint64_t& last =
          last_swap_.try_emplace(index, word.initial).first->second;
      op.compare_add = random_.Percent(80) ? last : random_.Next();
      op.swap = random_.Next();
      if (op.compare_add == last) last = op.swap;
    } else {
      op.compare_add = random_.Next();
    }
  }
  int ChooseWord(bool compare_swap) {
    std::vector<int> candidates;
    for (size_t i = 0; i < theirs_.words.size(); ++i) {
      if (theirs_.words[i].compare_swap == compare_swap) {
        candidates.push_back(i);
      }
    }
    if (candidates.empty() || random_.Percent(10)) {
      AtomicWord word;
      word.compare_swap = compare_swap;
      word.offset = theirs_.arena.Allocate(random_, 8);
      std::memcpy(&word.initial, theirs_.arena.actual(word.offset), 8);
      theirs_.words.push_back(word);
      return theirs_.words.size() - 1;
    }
    return random_.Pick(candidates);
  }

  // Signals the last op, and at least one in every half send queue.
  void ChooseSignals() {
    const uint32_t max = std::max(1u, end_.scenario->capacity.max_send_wr / 2);
    uint32_t unsignaled = 0;
    for (size_t i = 0; i < end_.ops.size(); ++i) {
      const bool last = i + 1 == end_.ops.size();
      if (last || ++unsignaled >= max || random_.Percent(40)) {
        end_.ops[i].flags |= transport::kSendSignaled;
        unsignaled = 0;
      }
    }
  }

  Random& random_;
  const Scenario& scenario_;
  End& end_;
  Host& mine_;
  Host& theirs_;
  uint64_t spent_ = 0;
  std::map<int, uint64_t> last_swap_;
};

Receive MakeReceive(Random& random, End& end, uint32_t bytes, bool may_split) {
  Receive receive;
  receive.wr_id = random.Next() | kReceiveWrId;
  const uint32_t max_sge = end.scenario->capacity.max_recv_sge;
  const uint32_t count =
      may_split && random.Percent(50) ? random.Between(1, max_sge) : 1;
  uint32_t left = bytes;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t n = i + 1 < count ? random.Below(left + 1) : left;
    left -= n;
    if (n == 0 && random.Percent(50)) continue;  // sometimes no SGE at all
    const Piece piece = {end.host->arena.Allocate(random, n, random.Below(8)),
                         n};
    receive.pieces.push_back(piece);
    const Region& pool = end.host->pools[end.scenario->pd];
    receive.sges.push_back({pool.va + piece.offset, n, pool.lkey});
  }
  return receive;
}

void PlanReceives(Random& random, End& end) {
  for (const int message : end.peer->messages) {
    const Op& op = end.peer->ops[message];
    uint32_t bytes = op.is_send() ? op.length : random.Below(100);
    if (random.Percent(60)) {
      bytes += random.Below(random.Percent(90) ? 100 : 5000);
    }
    end.receives.push_back(MakeReceive(random, end, bytes, true));
  }
}

void PlanSharedReceives(Random& random, End& end, SharedReceives& shared) {
  const uint32_t bytes = shared.longest + random.Below(64);
  // Each queue pair may consume one more when it breaks.
  const size_t count = shared.messages + end.host->ends.size();
  for (size_t i = 0; i < count; ++i) {
    Receive receive = MakeReceive(random, end, bytes, true);
    receive.wr_id = i | kReceiveWrId;
    shared.receives.push_back(std::move(receive));
  }
  shared.used.resize(count);
  shared.recv_batch = end.scenario->recv_batch;
  shared.recv_pause = end.scenario->recv_pause;
}

}  // namespace

void PlanWorkload(Random& random, const Scenario& scenario,
                  const std::vector<std::unique_ptr<Host>>& hosts,
                  const std::vector<std::unique_ptr<End>>& ends) {
  for (const auto& end : ends) {
    // Maps the whole arena into the region.
    Host& host = *end->host;
    if (host.pools.count(end->scenario->pd) == 0) {
      host.pools[end->scenario->pd] = host.node->memory().Register(
          end->scenario->pd, host.arena.actual(),
          (random.Next() >> 3) & ~uint64_t{4095}, host.arena.capacity(),
          transport::kAccessLocalWrite | transport::kAccessRemoteWrite |
              transport::kAccessRemoteRead | transport::kAccessRemoteAtomic |
              transport::kAccessFlushGlobal |
              transport::kAccessFlushPersistent);
    }
  }
  for (const auto& end : ends) Planner(random, scenario, *end).Plan();
  for (const auto& end : ends) {
    if (end->shared == nullptr) PlanReceives(random, *end);
  }
  for (const auto& host : hosts) {
    for (const auto& [pd, shared] : host->shared) {
      for (End* end : host->ends) {
        if (end->shared == shared.get()) {
          PlanSharedReceives(random, *end, *shared);
          break;
        }
      }
    }
  }
}

}  // namespace sim
