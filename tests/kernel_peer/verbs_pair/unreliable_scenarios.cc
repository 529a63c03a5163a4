// Unreliable connections: what arrives, and what is dropped silently.
//
// A message may be lost, so each is sent alone and repeated if needed.
#include <cstring>
#include <functional>

#include "tests/kernel_peer/verbs_pair/scenarios.h"

namespace verbs_pair {
namespace {

// Up to 16 packets, so that a slow peer's socket buffer holds a message.
constexpr size_t kSizes[] = {0,    1,    3,    255,  1001, 1024,
                             1025, 2047, 4096, 4097, 9999, 16384};
constexpr size_t kMargin = 16;
constexpr size_t kMemory = 16384 + 2 * kMargin;
// If one packet in twenty is late, every second message of 16 packets is lost.
constexpr int kTries = 14;
constexpr int kLostMs = 3000;  // a message that takes longer was lost
constexpr int kDroppedMs = 200;

Options Unreliable() { return {.type = IBV_QPT_UC, .memory = kMemory}; }

// Requester: repeats a request until the peer has received it.
void UntilArrived(const Rig& rig, Link* link,
                  const std::function<void()>& request, uint64_t id) {
  for (int i = 0; i < kTries; ++i) {
    rig.wire_up->Barrier();
    request();
    link->Expect(id);
    if (rig.wire_up->Exchange("") == "arrived") return;
  }
  Fail("lost %d times in a row", kTries);
}

// Responder: waits until the request has arrived completely. Returns the
// receive's completion.
ibv_wc AwaitArrival(
    const Rig& rig, Link* link, const std::function<void()>& prepare,
    const std::function<bool()>& whole = [] { return true; }) {
  for (int i = 0; i < kTries; ++i) {
    prepare();
    rig.wire_up->Barrier();
    ibv_wc wc;
    const bool arrived = link->Poll(&wc, kLostMs) && whole();
    rig.wire_up->Exchange(arrived ? "arrived" : "lost");
    if (!arrived) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      Fail("received with '%s'", ibv_wc_status_str(wc.status));
    }
    return wc;
  }
  Fail("lost %d times in a row", kTries);
}

void CheckMessage(Link* link, size_t size, uint32_t seed) {
  CheckBytes(link->memory(), kMargin, kUntouched, "before a message");
  CheckPattern(link->memory() + kMargin, size, seed, "a message");
  CheckBytes(link->memory() + kMargin + size, kMemory - kMargin - size,
             kUntouched, "behind a message");
}

// A receive stays posted when its message was lost.
class Receiver {
 public:
  explicit Receiver(Link* link) : link_(link) {}

  // Resets the memory and posts one receive of `bytes`.
  void Prepare(size_t bytes) {
    std::memset(link_->memory(), kUntouched, kMemory);
    if (posted_) return;
    link_->PostRecv(1, {link_->Piece(kMargin, bytes)});
    posted_ = true;
  }
  void Taken() { posted_ = false; }

 private:
  Link* const link_;
  bool posted_ = false;
};

// Messages of every size with `opcode`.
void Messages(const Rig& rig, ibv_wr_opcode opcode) {
  const bool writes = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const bool immediate = opcode != IBV_WR_SEND;
  Link link(rig, Unreliable());
  Receiver receiver(&link);
  for (uint32_t i = 0; i < std::size(kSizes); ++i) {
    const size_t size = kSizes[i];
    if (rig.requester) {
      FillPattern(link.memory(), size, i);
      ibv_sge piece = link.Piece(0, size);
      ibv_send_wr wr = {};
      wr.wr_id = i;
      wr.sg_list = &piece;
      wr.num_sge = size == 0 ? 0 : 1;
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.imm_data = 0x5a000000 + i;
      wr.wr.rdma.remote_addr = link.remote_address() + kMargin;
      wr.wr.rdma.rkey = link.remote_key();
      UntilArrived(
          rig, &link, [&] { link.Post(&wr); }, i);
      continue;
    }
    const ibv_wc wc = AwaitArrival(rig, &link, [&] {
      receiver.Prepare(writes ? 0 : kMemory - 2 * kMargin);
    });
    receiver.Taken();
    CheckReceived(wc, writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, size,
                  immediate ? IBV_WC_WITH_IMM : 0);
    if (immediate && wc.imm_data != 0x5a000000 + i) {
      Fail("immediate data 0x%08x", wc.imm_data);
    }
    CheckMessage(&link, size, i);
  }
  rig.wire_up->Barrier();
}

void UcSend(const Rig& rig) { Messages(rig, IBV_WR_SEND); }
void UcSendImmediate(const Rig& rig) { Messages(rig, IBV_WR_SEND_WITH_IMM); }
void UcWriteImmediate(const Rig& rig) {
  Messages(rig, IBV_WR_RDMA_WRITE_WITH_IMM);
}

// WRITEs do not notify the peer; an empty SEND after each does.
void UcWrite(const Rig& rig) {
  Link link(rig, Unreliable());
  Receiver receiver(&link);
  for (uint32_t i = 0; i < std::size(kSizes); ++i) {
    const size_t size = kSizes[i];
    if (rig.requester) {
      FillPattern(link.memory(), size, i);
      UntilArrived(
          rig, &link,
          [&] {
            link.Rdma(IBV_WR_RDMA_WRITE, 100, {link.Piece(0, size)}, kMargin);
            link.Send(i, {});
            link.Expect(100);
          },
          i);
      continue;
    }
    AwaitArrival(
        rig, &link,
        [&] {
          receiver.Taken();  // by the SEND after a lost WRITE
          receiver.Prepare(0);
        },
        [&] { return HoldsPattern(link.memory() + kMargin, size, i); });
    CheckMessage(&link, size, i);
  }
}

// Requester: sends something that the peer drops. Then both check that the
// connection still carries messages.
void DropThenSend(const Rig& rig, Link* link,
                  const std::function<void()>& dropped) {
  constexpr size_t kSize = 4097;
  Receiver receiver(link);
  if (rig.requester) {
    FillPattern(link->memory(), kSize, 7);
    rig.wire_up->Barrier();
    dropped();
    link->Expect(9);  // it was sent; its fate is unknown
    rig.wire_up->Barrier();
    UntilArrived(
        rig, link, [&] { link->Send(1, {link->Piece(0, kSize)}); }, 1);
    link->ExpectState(IBV_QPS_RTS);
    rig.wire_up->Barrier();
    return;
  }
  std::memset(link->memory(), kUntouched, kMemory);
  rig.wire_up->Barrier();
  rig.wire_up->Barrier();
  link->ExpectNone(kDroppedMs);
  CheckBytes(link->memory(), kMemory, kUntouched, "where nothing may arrive");
  AwaitArrival(rig, link, [&] { receiver.Prepare(kMemory - 2 * kMargin); });
  CheckMessage(link, kSize, 7);
  link->ExpectState(IBV_QPS_RTS);
  rig.wire_up->Barrier();
}

// IBA vol. 1, 9.9.3: without a receive a SEND is dropped.
void UcNoReceive(const Rig& rig) {
  Link link(rig, Unreliable());
  DropThenSend(rig, &link, [&] { link.Send(9, {link.Piece(0, 5000)}); });
}

// A WRITE with an invalid key is dropped.
void UcBadKey(const Rig& rig) {
  Link link(rig, Unreliable());
  DropThenSend(rig, &link, [&] {
    link.RdmaAt(IBV_WR_RDMA_WRITE, 9, {link.Piece(0, 5000)},
                link.remote_address(), link.remote_key() ^ 0x5500);
  });
}

constexpr Scenario kScenarios[] = {
    {"uc_send", UcSend},
    {"uc_send_immediate", UcSendImmediate},
    {"uc_write", UcWrite},
    {"uc_write_immediate", UcWriteImmediate},
    {"uc_no_receive", UcNoReceive},
    {"uc_bad_key", UcBadKey},
};

}  // namespace

std::span<const Scenario> UnreliableScenarios() { return kScenarios; }

}  // namespace verbs_pair
