// Memory windows: the responder binds them and passes on their keys; the
// requester tests what they allow.
#include <cerrno>
#include <cstring>
#include <memory>

#include "tests/kernel_peer/verbs_pair/scenarios.h"

namespace verbs_pair {
namespace {

constexpr size_t kMemory = 16384;
constexpr unsigned kReadWrite =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
const Options kWithWindows = {.memory = kMemory,
                              .mr_access = kAllAccess | IBV_ACCESS_MW_BIND};

using Window = std::unique_ptr<ibv_mw, int (*)(ibv_mw*)>;

Window Allocate(const Link& link, ibv_mw_type type) {
  Window window(ibv_alloc_mw(link.pd(), type), [](ibv_mw* mw) {
    return mw != nullptr ? ibv_dealloc_mw(mw) : 0;
  });
  if (window == nullptr) throw NotSupported{"no memory windows of this type"};
  return window;
}

ibv_mw_bind_info Part(Link& link, size_t offset, size_t length,
                      unsigned access) {
  return {.mr = link.mr(),
          .addr = reinterpret_cast<uintptr_t>(link.memory()) + offset,
          .length = length,
          .mw_access_flags = access};
}

// Binds a type 1 window. Returns its new key.
uint32_t BindByCall(Link& link, ibv_mw* window, const ibv_mw_bind_info& part) {
  ibv_mw_bind bind = {
      .wr_id = 7, .send_flags = IBV_SEND_SIGNALED, .bind_info = part};
  if (int error = ibv_bind_mw(link.qp(), window, &bind); error != 0) {
    Fail("ibv_bind_mw: %s", std::strerror(error));
  }
  if (link.Expect(7).opcode != IBV_WC_BIND_MW) Fail("not a bind's");
  return window->rkey;
}

// Binds a type 2 window. Returns its new key.
uint32_t BindByRequest(Link& link, ibv_mw* window,
                       const ibv_mw_bind_info& part) {
  ibv_send_wr wr = {};
  wr.wr_id = 7;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  wr.bind_mw.bind_info = part;
  link.Post(&wr);
  if (link.Expect(7).opcode != IBV_WC_BIND_MW) Fail("not a bind's");
  return wr.bind_mw.rkey;
}

void TellKey(const Rig& rig, uint32_t key) {
  rig.wire_up->Exchange(
      std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
}

uint32_t ReceiveKey(const Rig& rig) {
  const std::string text = rig.wire_up->Exchange("");
  uint32_t key;
  if (text.size() != sizeof(key)) Fail("not a key");
  std::memcpy(&key, text.data(), sizeof(key));
  return key;
}

// A WRITE of 100 bytes that must complete with `status`.
void WriteThrough(Link& link, size_t offset, uint32_t key,
                  ibv_wc_status status = IBV_WC_SUCCESS) {
  link.RdmaAt(IBV_WR_RDMA_WRITE, 1, {link.Piece(0, 100)},
              link.remote_address() + offset, key);
  link.Expect(1, status);
}

// A type 1 window bound twice: the first key becomes invalid.
void BoundByCall(const Rig& rig) {
  Link link(rig, kWithWindows);
  if (rig.requester) {
    FillPattern(link.memory(), kMemory, 4);
    WriteThrough(link, 64, ReceiveKey(rig));
    rig.wire_up->Barrier();
    const uint32_t key = ReceiveKey(rig);
    WriteThrough(link, 4096, key);
    link.RdmaAt(IBV_WR_RDMA_READ, 2, {link.Piece(8192, 100)},
                link.remote_address() + 4096, key);
    link.Expect(2);
    CheckPattern(link.memory() + 8192, 100, 4, "a READ through a window");
    WriteThrough(link, 64, ReceiveKey(rig), IBV_WC_REM_ACCESS_ERR);
    rig.wire_up->Barrier();
    return;
  }
  const Window window = Allocate(link, IBV_MW_TYPE_1);
  const uint32_t first =
      BindByCall(link, window.get(), Part(link, 0, 1024, kReadWrite));
  TellKey(rig, first);
  rig.wire_up->Barrier();
  CheckPattern(link.memory() + 64, 100, 4, "a WRITE through a window");
  TellKey(rig,
          BindByCall(link, window.get(), Part(link, 4096, 1024, kReadWrite)));
  TellKey(rig, first);
  rig.wire_up->Barrier();
  CheckPattern(link.memory() + 4096, 100, 4, "a WRITE through the same window");
}

// A type 1 window that is unbound.
void Unbound(const Rig& rig) {
  Link link(rig, kWithWindows);
  if (rig.requester) {
    const uint32_t key = ReceiveKey(rig);
    WriteThrough(link, 0, key);
    rig.wire_up->Barrier();
    WriteThrough(link, 0, ReceiveKey(rig), IBV_WC_REM_ACCESS_ERR);
    rig.wire_up->Barrier();
    return;
  }
  const Window window = Allocate(link, IBV_MW_TYPE_1);
  TellKey(rig, BindByCall(link, window.get(), Part(link, 0, 1024, kReadWrite)));
  rig.wire_up->Barrier();
  TellKey(rig, BindByCall(link, window.get(), Part(link, 0, 0, 0)));
  rig.wire_up->Barrier();
}

// A type 2 window is valid only on the queue pair that bound it (type 2B, as on
// both devices), until it is invalidated there.
void BoundByRequest(const Rig& rig) {
  Link link(rig, kWithWindows);
  Options beside = kWithWindows;
  beside.pd = link.pd();
  Link other(rig, beside);
  if (rig.requester) {
    FillPattern(link.memory(), kMemory, 4);
    const uint32_t key = ReceiveKey(rig);
    WriteThrough(link, 64, key);
    other.RdmaAt(IBV_WR_RDMA_WRITE, 1, {other.Piece(0, 100)},
                 link.remote_address() + 64, key);
    other.Expect(1, IBV_WC_REM_ACCESS_ERR);
    rig.wire_up->Barrier();
    rig.wire_up->Barrier();
    WriteThrough(link, 64, key, IBV_WC_REM_ACCESS_ERR);
    rig.wire_up->Barrier();
    return;
  }
  const Window window = Allocate(link, IBV_MW_TYPE_2);
  const uint32_t key =
      BindByRequest(link, window.get(), Part(link, 0, 1024, kReadWrite));
  TellKey(rig, key);
  rig.wire_up->Barrier();
  CheckPattern(link.memory() + 64, 100, 4, "a WRITE through a window");
  ibv_send_wr wr = {};
  wr.wr_id = 8;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
  link.Post(&wr);
  link.Expect(8);
  rig.wire_up->Barrier();
  rig.wire_up->Barrier();
}

// An access of 100 bytes at `offset` through a window of 1024 bytes that only
// allows `access`: it must be refused.
void Refused(const Rig& rig, ibv_wr_opcode opcode, size_t offset,
             unsigned access) {
  Link link(rig, kWithWindows);
  if (rig.requester) {
    link.RdmaAt(opcode, 1, {link.Piece(0, 100)}, link.remote_address() + offset,
                ReceiveKey(rig));
    link.Expect(1, IBV_WC_REM_ACCESS_ERR);
    rig.wire_up->Barrier();
    return;
  }
  const Window window = Allocate(link, IBV_MW_TYPE_2);
  TellKey(rig,
          BindByRequest(link, window.get(), Part(link, 1024, 1024, access)));
  rig.wire_up->Barrier();
}

void Limits(const Rig& rig) {
  // rxe only checks the bounds of the region.
  if (!(rig.requester ? rig.peer_rxe : rig.rxe)) {
    Refused(rig, IBV_WR_RDMA_WRITE, 1023, kReadWrite);
    Refused(rig, IBV_WR_RDMA_WRITE, 2048 - 99, kReadWrite);
  }
  Refused(rig, IBV_WR_RDMA_READ, 1024, IBV_ACCESS_REMOTE_WRITE);
  Refused(rig, IBV_WR_RDMA_WRITE, 1024, IBV_ACCESS_REMOTE_READ);
}

// A SEND with invalidate of `size` bytes: the R_Key of a type 2 window is valid
// until then.
void Invalidate(const Rig& rig, uint32_t size) {
  Link link(rig, kWithWindows);
  if (rig.requester) {
    FillPattern(link.memory(), link.memory_size(), 4);
    const uint32_t key = ReceiveKey(rig);
    WriteThrough(link, 64, key);
    ibv_sge piece = link.Piece(0, size);
    ibv_send_wr wr = {};
    wr.wr_id = 2;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = key;
    link.Post(&wr);
    link.Expect(2);
    WriteThrough(link, 64, key, IBV_WC_REM_ACCESS_ERR);
    rig.wire_up->Barrier();
    return;
  }
  const Window window = Allocate(link, IBV_MW_TYPE_2);
  const uint32_t key = BindByRequest(
      link, window.get(), Part(link, 0, 1024, IBV_ACCESS_REMOTE_WRITE));
  link.PostRecv(2, {link.Piece(2048, size)});
  TellKey(rig, key);
  const ibv_wc wc = link.Expect(2);
  // rxe reports the kernel's own value for the flag, 4.
  if (!rig.rxe) CheckReceived(wc, IBV_WC_RECV, size, IBV_WC_WITH_INV);
  if (wc.invalidated_rkey != key) Fail("invalidated 0x%x", wc.invalidated_rkey);
  rig.wire_up->Barrier();
  CheckPattern(link.memory() + 64, 100, 4, "a WRITE through a window");
  CheckPattern(link.memory() + 2048, size, 4, "a SEND with invalidate");
}

void SendInvalidate(const Rig& rig) {
  Invalidate(rig, 10);
  Invalidate(rig, 10'000);
}

constexpr Scenario kScenarios[] = {
    {"window_type_1", BoundByCall},      {"window_unbound", Unbound},
    {"window_type_2", BoundByRequest},   {"window_limits", Limits},
    {"send_invalidate", SendInvalidate},
};

}  // namespace

std::span<const Scenario> WindowScenarios() { return kScenarios; }

}  // namespace verbs_pair
