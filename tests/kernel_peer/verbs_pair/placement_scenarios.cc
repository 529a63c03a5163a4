// ATOMIC WRITE and FLUSH (annex A19 of the specification).
#include <cstring>

#include "tests/kernel_peer/verbs_pair/scenarios.h"
#include "verbs_api/supplement/rxe_user_verbs.h"

namespace verbs_pair {
namespace {

constexpr uint8_t kUntouched = 0xee;

// Whether both ends have the capability in device_cap_flags_ex.
bool BothHave(const Rig& rig, uint64_t capability) {
  ibv_device_attr_ex device;
  const bool here = ibv_query_device_ex(rig.context, nullptr, &device) == 0 &&
                    (device.device_cap_flags_ex & capability) != 0;
  return rig.wire_up->Exchange(here ? "yes" : "no") == "yes" && here;
}

// Uses ibv_wr_atomic_write: rxe's library (rdma-core 44) accepts ATOMIC WRITE
// from ibv_post_send too, but omits R_Key and data.
void PostAtomicWrite(Link& link, uint64_t id, size_t from, uint64_t address) {
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(link.qp());
  ibv_wr_start(qp);
  qp->wr_id = id;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_write(qp, link.remote_key(), address, link.memory() + from);
  if (ibv_wr_complete(qp) != 0) Fail("ibv_wr_complete");
}

Options ForAtomicWrite(const Rig& rig, size_t memory) {
  if (!BothHave(rig, RXE_USER_DEVICE_ATOMIC_WRITE)) {
    throw NotSupported{"no ATOMIC WRITE"};
  }
  Options options = {.memory = memory};
  if (rig.requester) options.send_ops = IBV_QP_EX_WITH_ATOMIC_WRITE;
  return options;
}

void AtomicWrite(const Rig& rig) {
  constexpr size_t kBytes = 32 * 8;
  Link link(rig, ForAtomicWrite(rig, kBytes));
  if (rig.requester) {
    FillPattern(link.memory(), kBytes, 5);
    rig.wire_up->Barrier();
    for (size_t at = 0; at < kBytes; at += 8) {
      PostAtomicWrite(link, at, at, link.remote_address() + at);
      if (link.Expect(at).opcode != IBV_WC_ATOMIC_WRITE) {
        Fail("not an ATOMIC WRITE's");
      }
    }
    rig.wire_up->Barrier();
    return;
  }
  std::memset(link.memory(), kUntouched, kBytes);
  rig.wire_up->Barrier();
  rig.wire_up->Barrier();
  CheckPattern(link.memory(), kBytes, 5, "an ATOMIC WRITE");
}

void MisalignedAtomicWrite(const Rig& rig) {
  Link link(rig, ForAtomicWrite(rig, 16));
  std::memset(link.memory(), rig.requester ? 1 : kUntouched, 16);
  rig.wire_up->Barrier();
  if (rig.requester) {
    PostAtomicWrite(link, 1, 0, link.remote_address() + 4);
    link.Expect(1, IBV_WC_REM_INV_REQ_ERR);
  }
  rig.wire_up->Barrier();
  if (!rig.requester) CheckBytes(link.memory(), 16, kUntouched, "the memory");
}

// Region and queue pair of the responder allow FLUSH to global visibility,
// which needs no special memory. Only the queue pair allows persistence.
Options ForFlush(const Rig& rig) {
  if (!BothHave(rig, RXE_USER_DEVICE_FLUSH_GLOBAL)) {
    throw NotSupported{"no FLUSH"};
  }
  // rxe's library supports FLUSH from rdma-core 45 on.
  if (rig.requester ? rig.rxe : rig.peer_rxe) {
    throw NotSupported{"rxe's library cannot post it"};
  }
  Options options;
  options.mr_access |= RXE_USER_ACCESS_FLUSH_GLOBAL;
  options.qp_access |=
      RXE_USER_ACCESS_FLUSH_GLOBAL | RXE_USER_ACCESS_FLUSH_PERSISTENT;
  if (rig.requester) {
    options.send_ops = IBV_QP_EX_WITH_RDMA_WRITE | RXE_USER_QP_EX_WITH_FLUSH;
  }
  return options;
}

constexpr uint32_t kFlushed = 10'000;  // bytes

// An unsignaled WRITE, and a FLUSH of its range.
void PostWriteAndFlush(Link& link, uint64_t id, uint8_t type, uint8_t level) {
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(link.qp());
  ibv_wr_start(qp);
  qp->wr_id = id;
  qp->wr_flags = 0;
  ibv_wr_rdma_write(qp, link.remote_key(), link.remote_address());
  const ibv_sge piece = link.Piece(0, kFlushed);
  ibv_wr_set_sge(qp, piece.lkey, piece.addr, piece.length);
  qp->wr_flags = IBV_SEND_SIGNALED;
  rxe_user_wr_flush(qp, link.remote_key(), link.remote_address(), kFlushed,
                    type, level);
  if (ibv_wr_complete(qp) != 0) Fail("ibv_wr_complete");
}

// FLUSH of a range, and of the whole region.
void Flush(const Rig& rig) {
  Link link(rig, ForFlush(rig));
  for (uint8_t level : {RXE_USER_FLUSH_RANGE, RXE_USER_FLUSH_REGION}) {
    const uint32_t seed = 6u + level;
    if (rig.requester) {
      FillPattern(link.memory(), link.memory_size(), seed);
      PostWriteAndFlush(link, level, RXE_USER_FLUSH_GLOBAL, level);
      if (link.Expect(level).opcode != RXE_USER_WC_FLUSH) {
        Fail("not a FLUSH's");
      }
    }
    rig.wire_up->Barrier();
    if (!rig.requester) {
      CheckPattern(link.memory(), kFlushed, seed, "a WRITE that was flushed");
    }
    rig.wire_up->Barrier();
  }
}

// FLUSH to persistence, which the region does not allow.
void FlushNotAllowed(const Rig& rig) {
  Link link(rig, ForFlush(rig));
  if (rig.requester) {
    PostWriteAndFlush(link, 3, RXE_USER_FLUSH_PERSISTENT, RXE_USER_FLUSH_RANGE);
    link.Expect(3, IBV_WC_REM_ACCESS_ERR);
  }
  rig.wire_up->Barrier();
}

constexpr Scenario kScenarios[] = {
    {"atomic_write", AtomicWrite},
    {"misaligned_atomic_write", MisalignedAtomicWrite},
    {"flush", Flush},
    {"flush_not_allowed", FlushNotAllowed},
};

}  // namespace

std::span<const Scenario> PlacementScenarios() { return kScenarios; }

}  // namespace verbs_pair
