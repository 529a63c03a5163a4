// Every operation with patterns that are compared byte by byte. The bytes
// around each target must not change.
#include <poll.h>

#include <cstring>

#include "tests/kernel_peer/verbs_pair/mixed.h"
#include "tests/kernel_peer/verbs_pair/scenarios.h"

namespace verbs_pair {
namespace {

// Sizes around each MTU, odd sizes, and one of many packets.
constexpr size_t kSizes[] = {1,    2,    3,    4,     5,    63,
                             255,  1001, 1023, 1024,  1025, 4095,
                             4096, 4097, 9999, 65536, 0};
constexpr size_t kMargin = 16;
constexpr size_t kMegabyte = 1 << 20;

// The memory for one message of each size, and the offset of each.
struct Layout {
  size_t offset[std::size(kSizes)];
  size_t total;
};

Layout LayOut() {
  Layout layout;
  size_t at = kMargin;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    layout.offset[i] = at + i % 4;  // odd addresses too
    at += kSizes[i] + 2 * kMargin;
  }
  layout.total = at;
  return layout;
}

// Checks that the memory has `size` bytes of the pattern at each offset and is
// otherwise unchanged.
void CheckLayout(Link* link, const Layout& layout, const char* what) {
  size_t end = 0;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const size_t at = layout.offset[i];
    CheckBytes(link->memory() + end, at - end, kUntouched, "a margin");
    CheckPattern(link->memory() + at, kSizes[i], static_cast<uint32_t>(i),
                 what);
    end = at + kSizes[i];
  }
  CheckBytes(link->memory() + end, layout.total - end, kUntouched, "a margin");
}

void Fill(Link* link, const Layout& layout) {
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    FillPattern(link->memory() + layout.offset[i], kSizes[i],
                static_cast<uint32_t>(i));
  }
}

void SendMessages(const Rig& rig) {
  const Layout layout = LayOut();
  Link link(rig, {.memory = layout.total});
  if (rig.requester) {
    Fill(&link, layout);
    rig.wire_up->Barrier();
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      link.Send(i, {link.Piece(layout.offset[i], kSizes[i])});
    }
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      if (link.Expect(i).opcode != IBV_WC_SEND) Fail("not a SEND's completion");
    }
    rig.wire_up->Barrier();
    return;
  }
  std::memset(link.memory(), kUntouched, layout.total);
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    link.PostRecv(i, {link.Piece(layout.offset[i], kSizes[i])});
  }
  rig.wire_up->Barrier();
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    CheckReceived(link.Expect(i), IBV_WC_RECV, kSizes[i], 0);
  }
  CheckLayout(&link, layout, "a SEND");
  rig.wire_up->Barrier();
}

// Receives longer than the messages; every second message has immediate data.
void SendImmediate(const Rig& rig) {
  constexpr size_t kSlot = 16384;
  Link link(rig, {.memory = 16 * kSlot});
  if (rig.requester) {
    rig.wire_up->Barrier();
    for (uint32_t i = 0; i < 16; ++i) {
      const size_t size = i * 677;
      FillPattern(link.memory() + i * kSlot, size, i);
      ibv_sge piece = link.Piece(i * kSlot, size);
      ibv_send_wr wr = {};
      wr.wr_id = i;
      wr.sg_list = &piece;
      wr.num_sge = size == 0 ? 0 : 1;
      wr.opcode = i % 2 != 0 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.imm_data = 0xa1b2c300 + i;
      link.Post(&wr);
    }
    for (uint32_t i = 0; i < 16; ++i) link.Expect(i);
    rig.wire_up->Barrier();
    return;
  }
  std::memset(link.memory(), kUntouched, link.memory_size());
  for (uint32_t i = 0; i < 16; ++i) {
    link.PostRecv(i, {link.Piece(i * kSlot, kSlot)});
  }
  rig.wire_up->Barrier();
  for (uint32_t i = 0; i < 16; ++i) {
    const ibv_wc wc = link.Expect(i);
    const bool immediate = i % 2 == 0;
    const size_t size = i * 677;
    CheckReceived(wc, IBV_WC_RECV, size, immediate ? IBV_WC_WITH_IMM : 0);
    if (immediate && wc.imm_data != 0xa1b2c300 + i) {
      Fail("immediate data 0x%08x", wc.imm_data);
    }
    CheckPattern(link.memory() + i * kSlot, size, i, "a SEND");
    CheckBytes(link.memory() + i * kSlot + size, kSlot - size, kUntouched,
               "behind a SEND");
  }
  rig.wire_up->Barrier();
}

constexpr size_t kGather[] = {1, 3, 1000, 4097};
constexpr size_t kScatter[] = {7, 1023, 4071};

// SGEs of `lengths` with gaps between them, from `offset` on.
std::vector<ibv_sge> Pieces(const Link& link, std::span<const size_t> lengths,
                            size_t offset) {
  std::vector<ibv_sge> pieces;
  for (size_t length : lengths) {
    pieces.push_back(link.Piece(offset, length));
    offset += length + kMargin;
  }
  return pieces;
}

uint8_t* Bytes(const ibv_sge& piece) {
  return reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(piece.addr));
}

// Writes the pattern to the SGEs, or compares them with it.
void FillPieces(const std::vector<ibv_sge>& pieces, uint32_t seed) {
  size_t total = 0;
  for (const ibv_sge& piece : pieces) total += piece.length;
  std::vector<uint8_t> all(total);
  FillPattern(all.data(), total, seed);
  size_t at = 0;
  for (const ibv_sge& piece : pieces) {
    std::memcpy(Bytes(piece), all.data() + at, piece.length);
    at += piece.length;
  }
}

void CheckPieces(const std::vector<ibv_sge>& pieces, uint32_t seed,
                 const char* what) {
  std::vector<uint8_t> all;
  for (const ibv_sge& piece : pieces) {
    all.insert(all.end(), Bytes(piece), Bytes(piece) + piece.length);
    CheckBytes(Bytes(piece) + piece.length, kMargin, kUntouched,
               "between two pieces");
  }
  CheckPattern(all.data(), all.size(), seed, what);
}

// Gathers from four SGEs and scatters to three: SEND, WRITE and READ.
void ScatterGather(const Rig& rig) {
  constexpr size_t kTotal = 1 + 3 + 1000 + 4097;
  Link link(rig, {.memory = 32768});
  std::memset(link.memory(), kUntouched, link.memory_size());
  if (rig.requester) {
    const auto gather = Pieces(link, kGather, 1);
    FillPieces(gather, 1);
    rig.wire_up->Barrier();
    link.Send(1, gather);
    link.Expect(1);
    link.Rdma(IBV_WR_RDMA_WRITE, 2, gather, 16385);
    link.Expect(2);
    const auto scatter = Pieces(link, kScatter, 20001);
    link.Rdma(IBV_WR_RDMA_READ, 3, scatter, 16385);
    link.Expect(3);
    CheckPieces(scatter, 1, "a READ");
    rig.wire_up->Barrier();
    return;
  }
  const auto scatter = Pieces(link, kScatter, 3);
  link.PostRecv(1, scatter);
  rig.wire_up->Barrier();
  CheckReceived(link.Expect(1), IBV_WC_RECV, kTotal, 0);
  CheckPieces(scatter, 1, "a SEND");
  rig.wire_up->Barrier();
  CheckPattern(link.memory() + 16385, kTotal, 1, "a WRITE");
  CheckBytes(link.memory() + 16385 + kTotal, kMargin, kUntouched, "a margin");
}

// The data may change as soon as the request is posted.
void Inline(const Rig& rig) {
  constexpr size_t kInline = 64;
  Link link(rig, {.memory = 8192, .inline_data = kInline});
  if (rig.requester) {
    rig.wire_up->Barrier();
    uint8_t data[kInline];
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t size = i * 2 + 1;
      FillPattern(data, size, i);
      // Inline data needs no lkey.
      link.Send(i, {{reinterpret_cast<uintptr_t>(data), size, 0}},
                IBV_SEND_INLINE);
      std::memset(data, kUntouched, sizeof(data));
    }
    for (uint32_t i = 0; i < 32; ++i) link.Expect(i);
    FillPattern(data, 33, 99);
    link.Rdma(IBV_WR_RDMA_WRITE, 99,
              {{reinterpret_cast<uintptr_t>(data), 33, 0}}, 5000, 0,
              IBV_SEND_INLINE);
    std::memset(data, kUntouched, sizeof(data));
    link.Expect(99);
    rig.wire_up->Barrier();
    return;
  }
  for (uint32_t i = 0; i < 32; ++i) {
    link.PostRecv(i, {link.Piece(i * 128, 128)});
  }
  rig.wire_up->Barrier();
  for (uint32_t i = 0; i < 32; ++i) {
    CheckReceived(link.Expect(i), IBV_WC_RECV, i * 2 + 1, 0);
    CheckPattern(link.memory() + i * 128, i * 2 + 1, i, "an inline SEND");
  }
  rig.wire_up->Barrier();
  CheckPattern(link.memory() + 5000, 33, 99, "an inline WRITE");
}

bool EventComes(ibv_comp_channel* channel, int limit_ms) {
  pollfd fd = {.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (poll(&fd, 1, limit_ms) <= 0) return false;
  ibv_cq* cq;
  void* context;
  if (ibv_get_cq_event(channel, &cq, &context) != 0) return false;
  ibv_ack_cq_events(cq, 1);
  return true;
}

// A channel armed for solicited completions only wakes for those.
void Solicited(const Rig& rig) {
  Link link(rig, {.memory = 4096, .channel = true});
  if (rig.requester) {
    rig.wire_up->Barrier();
    link.Send(1, {link.Piece(0, 100)});
    link.Expect(1);
    rig.wire_up->Barrier();  // the peer has seen that it was not woken
    rig.wire_up->Barrier();
    link.Send(2, {link.Piece(0, 3000)}, IBV_SEND_SOLICITED);
    link.Expect(2);
    rig.wire_up->Barrier();
    link.Rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 3, {link.Piece(0, 5)}, 0, 7,
              IBV_SEND_SOLICITED);
    link.Expect(3);
    rig.wire_up->Barrier();
    return;
  }
  for (uint64_t i = 1; i <= 3; ++i) link.PostRecv(i, {link.Piece(0, 4096)});
  if (ibv_req_notify_cq(link.cq(), 1) != 0) Fail("ibv_req_notify_cq");
  rig.wire_up->Barrier();
  link.Expect(1);
  rig.wire_up->Barrier();
  if (EventComes(link.cq()->channel, 0)) Fail("woken without being solicited");
  rig.wire_up->Barrier();
  if (!EventComes(link.cq()->channel, kLimitMs)) Fail("not woken by a SEND");
  link.Expect(2);
  if (ibv_req_notify_cq(link.cq(), 1) != 0) Fail("ibv_req_notify_cq");
  rig.wire_up->Barrier();
  if (!EventComes(link.cq()->channel, kLimitMs)) {
    Fail("not woken by a WRITE with immediate data");
  }
  link.Expect(3);
  rig.wire_up->Barrier();
}

void Write(const Rig& rig) {
  const Layout layout = LayOut();
  Link link(rig, {.memory = layout.total});
  if (rig.requester) {
    Fill(&link, layout);
    rig.wire_up->Barrier();
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      link.Rdma(IBV_WR_RDMA_WRITE, i, {link.Piece(layout.offset[i], kSizes[i])},
                layout.offset[i]);
    }
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      if (link.Expect(i).opcode != IBV_WC_RDMA_WRITE) Fail("not a WRITE's");
    }
    rig.wire_up->Barrier();
    return;
  }
  std::memset(link.memory(), kUntouched, layout.total);
  rig.wire_up->Barrier();
  rig.wire_up->Barrier();
  CheckLayout(&link, layout, "a WRITE");
}

void WriteImmediate(const Rig& rig) {
  const Layout layout = LayOut();
  Link link(rig, {.memory = layout.total});
  if (rig.requester) {
    Fill(&link, layout);
    rig.wire_up->Barrier();
    for (uint32_t i = 0; i < std::size(kSizes); ++i) {
      link.Rdma(IBV_WR_RDMA_WRITE_WITH_IMM, i,
                {link.Piece(layout.offset[i], kSizes[i])}, layout.offset[i],
                0x01020304 * i);
    }
    for (size_t i = 0; i < std::size(kSizes); ++i) link.Expect(i);
    rig.wire_up->Barrier();
    return;
  }
  std::memset(link.memory(), kUntouched, layout.total);
  for (size_t i = 0; i < std::size(kSizes); ++i) link.PostRecv(i, {});
  rig.wire_up->Barrier();
  for (uint32_t i = 0; i < std::size(kSizes); ++i) {
    const ibv_wc wc = link.Expect(i);
    CheckReceived(wc, IBV_WC_RECV_RDMA_WITH_IMM, kSizes[i], IBV_WC_WITH_IMM);
    if (wc.imm_data != 0x01020304 * i) Fail("immediate 0x%08x", wc.imm_data);
    CheckPattern(link.memory() + layout.offset[i], kSizes[i], i,
                 "a WRITE with immediate data");
  }
  rig.wire_up->Barrier();
  CheckLayout(&link, layout, "a WRITE with immediate data");
}

void Read(const Rig& rig) {
  const Layout layout = LayOut();
  Link link(rig, {.memory = layout.total});
  if (rig.requester) {
    std::memset(link.memory(), kUntouched, layout.total);
    rig.wire_up->Barrier();
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      link.Rdma(IBV_WR_RDMA_READ, i, {link.Piece(layout.offset[i], kSizes[i])},
                layout.offset[i]);
    }
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      if (link.Expect(i).opcode != IBV_WC_RDMA_READ) Fail("not a READ's");
    }
    CheckLayout(&link, layout, "a READ");
    rig.wire_up->Barrier();
    return;
  }
  Fill(&link, layout);
  rig.wire_up->Barrier();
  rig.wire_up->Barrier();  // it responds to READs while it waits here
}

// A megabyte in each direction by each operation, compared.
void Megabyte(const Rig& rig) {
  Link link(rig, {.memory = 3 * kMegabyte});
  uint8_t* memory = link.memory();
  FillPattern(memory, kMegabyte, rig.requester ? 5 : 6);
  if (rig.requester) {
    rig.wire_up->Barrier();
    link.Send(1, {link.Piece(0, kMegabyte)});
    link.Expect(1);
    link.Rdma(IBV_WR_RDMA_WRITE, 2, {link.Piece(0, kMegabyte)}, 2 * kMegabyte);
    link.Expect(2);
    link.Rdma(IBV_WR_RDMA_READ, 3, {link.Piece(kMegabyte, kMegabyte)}, 0);
    link.Expect(3);
    CheckPattern(memory + kMegabyte, kMegabyte, 6, "a READ");
    rig.wire_up->Barrier();
    return;
  }
  link.PostRecv(1, {link.Piece(kMegabyte, kMegabyte)});
  rig.wire_up->Barrier();
  CheckReceived(link.Expect(1), IBV_WC_RECV, kMegabyte, 0);
  CheckPattern(memory + kMegabyte, kMegabyte, 5, "a SEND");
  rig.wire_up->Barrier();
  CheckPattern(memory + 2 * kMegabyte, kMegabyte, 5, "a WRITE");
}

void Atomics(const Rig& rig) {
  constexpr uint64_t kStart = 0x1122334455667788;
  Link link(rig, {.memory = 4096});
  uint64_t* words = reinterpret_cast<uint64_t*>(link.memory());
  if (!rig.requester) {
    words[8] = kStart;
    words[9] = UINT64_MAX;
    words[10] = 0;
    rig.wire_up->Barrier();
    rig.wire_up->Barrier();
    if (words[8] != 99) Fail("compare and swap left 0x%lx", words[8]);
    if (words[9] != 1) Fail("fetch and add left 0x%lx", words[9]);
    if (words[10] != 64 * 65 / 2) Fail("64 additions left %lu", words[10]);
    if (words[7] != 0 || words[11] != 0) Fail("an atomic hit its neighbour");
    return;
  }
  rig.wire_up->Barrier();
  auto one = [&](ibv_wr_opcode opcode, int word, uint64_t compare_add,
                 uint64_t swap, uint64_t before) {
    words[0] = 0;
    link.Atomic(opcode, 1, 0, link.remote_address() + 8u * word,
                link.remote_key(), compare_add, swap);
    const ibv_wc wc = link.Expect(1);
    if (wc.opcode != (opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP
                                                          : IBV_WC_FETCH_ADD)) {
      Fail("completion of opcode %d", wc.opcode);
    }
    if (words[0] != before) Fail("an atomic returned 0x%lx", words[0]);
  };
  one(IBV_WR_ATOMIC_CMP_AND_SWP, 8, kStart, 42, kStart);
  one(IBV_WR_ATOMIC_CMP_AND_SWP, 8, kStart, 43, 42);  // the compare fails
  one(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 42, 99, 42);
  one(IBV_WR_ATOMIC_FETCH_AND_ADD, 9, 2, 0, UINT64_MAX);  // wraps around
  // More outstanding atomics than the limit allows at once.
  uint64_t sum = 0;
  for (uint64_t i = 1; i <= 64; ++i) {
    link.Atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, i, 8 * i,
                link.remote_address() + 80, link.remote_key(), i, 0);
  }
  for (uint64_t i = 1; i <= 64; ++i) {
    link.Expect(i);
    if (words[i] != sum) Fail("addition %lu returned %lu", i, words[i]);
    sum += i;
  }
  rig.wire_up->Barrier();
}

// A SEND with a fence carries the data of the READ before it. rxe sometimes
// does not notice that the READ is complete until another request is posted, so
// it posts one more SEND.
void Fence(const Rig& rig) {
  Link link(rig, {.memory = 32768});
  if (rig.requester) {
    std::memset(link.memory(), kUntouched, link.memory_size());
    rig.wire_up->Barrier();
    link.Rdma(IBV_WR_RDMA_READ, 1, {link.Piece(0, 9000)}, 0);
    link.Send(2, {link.Piece(0, 9000)}, IBV_SEND_FENCE);
    link.Expect(1);
    if (rig.rxe) link.Send(3, {});
    link.Expect(2);
    if (rig.rxe) link.Expect(3);
    rig.wire_up->Barrier();
    return;
  }
  FillPattern(link.memory(), 9000, 3);
  link.PostRecv(2, {link.Piece(16384, 9000)});
  if (rig.peer_rxe) link.PostRecv(3, {});
  rig.wire_up->Barrier();
  CheckReceived(link.Expect(2), IBV_WC_RECV, 9000, 0);
  if (rig.peer_rxe) CheckReceived(link.Expect(3), IBV_WC_RECV, 0, 0);
  CheckPattern(link.memory() + 16384, 9000, 3, "a SEND behind a fence");
  rig.wire_up->Barrier();
}

// Two queue pairs share one receive queue.
void SharedReceive(const Rig& rig) {
  constexpr size_t kSlot = 5000;
  Link shared(rig, {.memory = 32 * kSlot, .srq = true});
  if (rig.requester) {
    rig.wire_up->Barrier();
    for (uint32_t i = 0; i < 32; ++i) {
      const size_t size = i * 150;
      FillPattern(shared.memory() + i * kSlot, size, i);
      shared.Send(i, {shared.Piece(i * kSlot, size)});
    }
    for (uint32_t i = 0; i < 32; ++i) shared.Expect(i);
    rig.wire_up->Barrier();
    return;
  }
  for (uint32_t i = 0; i < 32; ++i) {
    shared.PostRecv(i, {shared.Piece(i * kSlot, kSlot)});
  }
  rig.wire_up->Barrier();
  for (uint32_t i = 0; i < 32; ++i) {
    CheckReceived(shared.Expect(i), IBV_WC_RECV, i * 150, 0);
    CheckPattern(shared.memory() + i * kSlot, i * 150, i, "a SEND to an SRQ");
  }
  rig.wire_up->Barrier();
}

constexpr Scenario kScenarios[] = {
    {"send", SendMessages},
    {"send_immediate", SendImmediate},
    {"scatter_gather", ScatterGather},
    {"inline", Inline},
    {"solicited", Solicited},
    {"write", Write},
    {"write_immediate", WriteImmediate},
    {"read", Read},
    {"megabyte", Megabyte},
    {"atomics", Atomics},
    {"fence", Fence},
    {"shared_receive", SharedReceive},
    {"mixed", Mixed},
};

}  // namespace

std::span<const Scenario> DataScenarios() { return kScenarios; }

}  // namespace verbs_pair
