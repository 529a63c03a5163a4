// Requests that must fail, and how both ends learn of it: completion status and
// flushing at the requester, asynchronous event and state at the responder.
// Specification, sections 9.7.5.2 (requester), 9.7.5.1 and 10.10 (responder),
// except for known deviations of the kernel's rxe as responder
// (docs/interop.md).
#include <cstring>

#include "tests/kernel_peer/verbs_pair/scenarios.h"

namespace verbs_pair {
namespace {

constexpr size_t kMemory = 32768;

// After a failure at the requester: checks its state, and that later requests
// are flushed.
void ExpectRequesterInError(Link* link) {
  link->Send(77, {link->Piece(0, 1)});
  link->Expect(77, IBV_WC_WR_FLUSH_ERR);
  link->ExpectState(IBV_QPS_ERR);
}

// The responder of a request that it must refuse.
void ExpectResponderInError(const Rig& rig, Link* link, ibv_event_type event) {
  // rxe raises no such event.
  if (!rig.rxe) link->ExpectEvent(event);
  link->ExpectState(IBV_QPS_ERR);
}

// The status of a failed receive at the responder: `status`, or rxe's single
// status for all errors.
ibv_wc_status ReceiveStatus(const Rig& rig, ibv_wc_status status) {
  return rig.rxe ? IBV_WC_LOC_QP_OP_ERR : status;
}

// Expects that the request of `post(link)` fails with `status`. The responder's
// memory has `mr_access` and its queue pair `qp_access`.
template <typename Post>
void Refused(const Rig& rig, ibv_wc_status status, ibv_event_type event,
             Post post, Options options = {}) {
  options.memory = kMemory;
  if (rig.requester) {
    // Only the responder's access rights are restricted.
    options.mr_access = kAllAccess;
    options.qp_access = kAllAccess;
  }
  Link link(rig, options);
  std::memset(link.memory(), kUntouched, kMemory);
  rig.wire_up->Barrier();
  if (rig.requester) {
    post(&link);
    link.Expect(1, status);
    ExpectRequesterInError(&link);
    CheckBytes(link.memory(), kMemory, kUntouched, "at the requester");
  }
  rig.wire_up->Barrier();
  if (!rig.requester) {
    ExpectResponderInError(rig, &link, event);
    CheckBytes(link.memory(), kMemory, kUntouched, "at the responder");
  }
  rig.wire_up->Barrier();
}

void RefuseAccess(const Rig& rig, void (*post)(Link* link),
                  Options options = {}) {
  Refused(rig, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, post, options);
}

constexpr ibv_wr_opcode kReadOrWrite[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};

void BadKey(const Rig& rig) {
  RefuseAccess(rig, [](Link* link) {
    link->RdmaAt(IBV_WR_RDMA_WRITE, 1, {link->Piece(0, 5000)},
                 link->remote_address(), link->remote_key() ^ 0x5a5a00);
  });
  RefuseAccess(rig, [](Link* link) {
    link->RdmaAt(IBV_WR_RDMA_READ, 1, {link->Piece(0, 5000)},
                 link->remote_address(), link->remote_key() ^ 0x5a5a00);
  });
  RefuseAccess(rig, [](Link* link) {
    link->Atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, link->remote_address(),
                 link->remote_key() ^ 0x5a5a00, 1, 0);
  });
}

void OutOfBounds(const Rig& rig) {
  RefuseAccess(rig, [](Link* link) {  // one byte beyond the end
    link->RdmaAt(IBV_WR_RDMA_WRITE, 1, {link->Piece(0, 100)},
                 link->remote_address() + kMemory - 99, link->remote_key());
  });
  RefuseAccess(rig, [](Link* link) {  // before the start
    link->RdmaAt(IBV_WR_RDMA_WRITE, 1, {link->Piece(0, 100)},
                 link->remote_address() - 1, link->remote_key());
  });
  RefuseAccess(rig, [](Link* link) {
    link->RdmaAt(IBV_WR_RDMA_READ, 1, {link->Piece(0, 9000)},
                 link->remote_address() + kMemory - 8999, link->remote_key());
  });
  RefuseAccess(rig, [](Link* link) {
    link->Atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 1, 0,
                 link->remote_address() + kMemory, link->remote_key(), 1, 0);
  });
}

// The region does not grant the access right.
void WrongRights(const Rig& rig) {
  RefuseAccess(rig,
               [](Link* link) {
                 link->Rdma(IBV_WR_RDMA_WRITE, 1, {link->Piece(0, 100)}, 0);
               },
               {.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
  RefuseAccess(rig,
               [](Link* link) {
                 link->Rdma(IBV_WR_RDMA_READ, 1, {link->Piece(0, 100)}, 0);
               },
               {.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
  RefuseAccess(rig,
               [](Link* link) {
                 link->Atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0,
                              link->remote_address(), link->remote_key(), 1, 0);
               },
               {.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ});
}

// The queue pair does not support the operation.
void NotOffered(const Rig& rig) {
  Refused(rig, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR,
          [](Link* link) {
            link->Rdma(IBV_WR_RDMA_WRITE, 1, {link->Piece(0, 100)}, 0);
          },
          {.qp_access = IBV_ACCESS_REMOTE_READ});
  Refused(rig, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR,
          [](Link* link) {
            link->Rdma(IBV_WR_RDMA_READ, 1, {link->Piece(0, 100)}, 0);
          },
          {.qp_access = IBV_ACCESS_REMOTE_WRITE});
}

void Misaligned(const Rig& rig) {
  if (rig.requester && rig.rxe) throw NotSupported{"rxe refuses to post it"};
  Refused(rig, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, [](Link* link) {
    link->Atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, link->remote_address() + 4,
                 link->remote_key(), 1, 0);
  });
}

// A message longer than its receive.
void TooLong(const Rig& rig) {
  for (size_t size : {1001u, 20'000u}) {
    Link link(rig, {.memory = kMemory});
    std::memset(link.memory(), kUntouched, kMemory);
    if (!rig.requester) {
      link.PostRecv(1, {link.Piece(0, 1000)});
      link.PostRecv(2, {link.Piece(0, 1000)});
    }
    rig.wire_up->Barrier();
    if (rig.requester) {
      link.Send(1, {link.Piece(0, size)});
      // rxe sends "remote operational error" (NAK 0x63).
      link.Expect(1, rig.peer_rxe ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
      ExpectRequesterInError(&link);
    } else {
      link.Expect(1, ReceiveStatus(rig, IBV_WC_LOC_LEN_ERR));
      link.Expect(2, IBV_WC_WR_FLUSH_ERR);
      link.ExpectState(IBV_QPS_ERR);
      CheckBytes(link.memory() + 1000, kMemory - 1000, kUntouched,
                 "behind the receive");
    }
    rig.wire_up->Barrier();
  }
}

// The responder's receive has an invalid L_Key.
void BadReceive(const Rig& rig) {
  Link link(rig, {.memory = kMemory});
  if (rig.requester) {
    rig.wire_up->Barrier();
    link.Send(1, {link.Piece(0, 500)});
    link.Expect(1, IBV_WC_REM_OP_ERR);
    ExpectRequesterInError(&link);
    rig.wire_up->Barrier();
    return;
  }
  ibv_sge piece = link.Piece(0, 1000);
  piece.lkey ^= 0x5a5a00;
  link.PostRecv(1, {piece});
  rig.wire_up->Barrier();
  link.Expect(1, ReceiveStatus(rig, IBV_WC_LOC_PROT_ERR));
  link.ExpectState(IBV_QPS_ERR);
  rig.wire_up->Barrier();
}

// No receive is posted: after two retries the requester fails. The responder is
// not affected.
void RnrExceeded(const Rig& rig) {
  Link link(rig, {.memory = kMemory, .rnr_retry = 2});
  rig.wire_up->Barrier();
  if (rig.requester) {
    link.Send(1, {link.Piece(0, 500)});
    link.Send(2, {link.Piece(0, 500)});
    link.Expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
    link.Expect(2, IBV_WC_WR_FLUSH_ERR);
    ExpectRequesterInError(&link);
  }
  rig.wire_up->Barrier();
  if (!rig.requester) {
    link.ExpectNoEvent();
    link.ExpectState(IBV_QPS_RTS);
  }
}

// The receive is posted late: the requester waits as long as the responder's
// timer says.
void RnrRecovers(const Rig& rig) {
  // 7: no limit. 20: 10.24 ms.
  Link link(rig, {.memory = kMemory, .rnr_retry = 7, .min_rnr_timer = 20});
  if (rig.requester) {
    FillPattern(link.memory(), 9000, 1);
    link.Send(1, {link.Piece(0, 9000)});
    link.Rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 2, {link.Piece(0, 9000)}, 16384, 9);
    link.ExpectNone(100);
    rig.wire_up->Barrier();
    link.Expect(1);
    link.Expect(2);
    rig.wire_up->Barrier();
    return;
  }
  rig.wire_up->Barrier();
  link.PostRecv(1, {link.Piece(0, 9000)});
  CheckReceived(link.Expect(1), IBV_WC_RECV, 9000, 0);
  CheckPattern(link.memory(), 9000, 1, "a SEND");
  link.PostRecv(2, {});
  CheckReceived(link.Expect(2), IBV_WC_RECV_RDMA_WITH_IMM, 9000,
                IBV_WC_WITH_IMM);
  CheckPattern(link.memory() + 16384, 9000, 1, "a WRITE");
  rig.wire_up->Barrier();
}

// The peer's queue pair does not exist any more. 12: 16.8 ms.
void PeerGone(const Rig& rig) {
  for (ibv_wr_opcode opcode : kReadOrWrite) {
    Link link(rig, {.memory = kMemory, .timeout = 12, .retry_cnt = 2});
    if (!rig.requester) link.DestroyQp();
    rig.wire_up->Barrier();
    if (rig.requester) {
      link.Rdma(opcode, 1, {link.Piece(0, 9000)}, 0);
      link.Rdma(opcode, 2, {link.Piece(0, 9000)}, 0);
      link.Expect(1, IBV_WC_RETRY_EXC_ERR);
      link.Expect(2, IBV_WC_WR_FLUSH_ERR);
      ExpectRequesterInError(&link);
    }
    rig.wire_up->Barrier();
  }
}

// The responder's queue pair is destroyed while it receives WRITEs or answers
// READs: some requests complete, one fails, the rest are flushed.
void DestroyedInTransfer(const Rig& rig) {
  constexpr size_t kSize = 256 * 1024;
  constexpr uint64_t kCount = 48;
  for (ibv_wr_opcode opcode : kReadOrWrite) {
    // rxe treats a retry_cnt of 7 as unlimited.
    Link link(rig, {.memory = kSize, .timeout = 12, .retry_cnt = 6});
    rig.wire_up->Barrier();
    if (rig.requester) {
      for (uint64_t i = 0; i + 1 < kCount; ++i) {
        link.Rdma(opcode, i, {link.Piece(0, kSize)}, 0);
      }
      link.Expect(0);
      rig.wire_up->Barrier();
      rig.wire_up->Barrier();
      // Fails even if all others were executed before the destruction.
      link.Rdma(opcode, kCount - 1, {link.Piece(0, kSize)}, 0);
      ibv_wc_status wanted = IBV_WC_SUCCESS;
      for (uint64_t i = 1; i < kCount; ++i) {
        const ibv_wc wc = link.Next();
        if (wanted == IBV_WC_SUCCESS && wc.status == IBV_WC_RETRY_EXC_ERR) {
          wanted = IBV_WC_WR_FLUSH_ERR;
        } else if (wc.status != wanted) {
          Fail("number %lu ended with '%s'", i, ibv_wc_status_str(wc.status));
        }
        if (wc.wr_id != i) Fail("number %lu is missing", i);
      }
      if (wanted == IBV_WC_SUCCESS) Fail("all completed without a peer");
    } else {
      rig.wire_up->Barrier();
      link.DestroyQp();
      rig.wire_up->Barrier();
    }
    rig.wire_up->Barrier();
  }
}

// The requester's queue pair is destroyed with requests in flight. The
// responder's other queue pair is not affected.
void RequesterDestroyed(const Rig& rig) {
  constexpr size_t kSize = 256 * 1024;
  Link other(rig, {.memory = kSize});
  for (ibv_wr_opcode opcode : kReadOrWrite) {
    Link link(rig, {.memory = kSize});
    if (rig.requester) {
      for (uint64_t i = 0; i < 16; ++i) {
        link.Rdma(opcode, i, {link.Piece(0, kSize)}, 0);
      }
      link.Expect(0);
      link.DestroyQp();
      FillPattern(other.memory(), kSize, 8);
      other.Rdma(IBV_WR_RDMA_WRITE, 1, {other.Piece(0, kSize)}, 0);
      other.Expect(1);
    }
    rig.wire_up->Barrier();
    if (!rig.requester) {
      CheckPattern(other.memory(), kSize, 8, "a WRITE of another queue pair");
      link.ExpectState(IBV_QPS_RTS);
      link.ExpectNoEvent();
    }
  }
}

constexpr Scenario kScenarios[] = {
    {"bad_key", BadKey},
    {"out_of_bounds", OutOfBounds},
    {"wrong_rights", WrongRights},
    {"not_offered", NotOffered},
    {"misaligned_atomic", Misaligned},
    {"too_long", TooLong},
    {"bad_receive", BadReceive},
    {"rnr_exceeded", RnrExceeded},
    {"rnr_recovers", RnrRecovers},
    {"peer_gone", PeerGone},
    {"destroyed_in_transfer", DestroyedInTransfer},
    {"requester_destroyed", RequesterDestroyed},
};

}  // namespace

std::span<const Scenario> ErrorScenarios() { return kScenarios; }

}  // namespace verbs_pair
