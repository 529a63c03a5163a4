#include "rxe_user/observe/status_text.h"

#include <algorithm>
#include <iterator>

namespace rxe_user {
namespace {

using transport::Reason;
using transport::Side;

constexpr StatusText kStatuses[] = {
    {0, "IBV_WC_SUCCESS", Side::kNone, "The work request succeeded.",
     "Nothing.", "ibv_poll_cq(3)"},
    {1, "IBV_WC_LOC_LEN_ERR", Side::kEither,
     "A message did not fit the receive that it took, or is longer than its "
     "service permits.",
     "Post longer receives; send at most the port's MTU by UD.",
     "IBA vol. 1, 11.6.2"},
    {2, "IBV_WC_LOC_QP_OP_ERR", Side::kOwn,
     "The queue pair cannot execute this work request.",
     "Check opcode and attributes of the queue pair (max_rd_atomic).",
     "IBA vol. 1, 11.6.2"},
    {3, "IBV_WC_LOC_EEC_OP_ERR", Side::kOwn,
     "The same for an end-to-end context (reliable datagrams).",
     "No device in use offers these.", "IBA vol. 1, 11.6.2"},
    {4, "IBV_WC_LOC_PROT_ERR", Side::kOwn,
     "A local buffer (SGE) is not usable: L_Key, protection domain, range, "
     "right, or the memory is gone.",
     "Check sge.lkey, addr and length against ibv_reg_mr(3).",
     "IBA vol. 1, 10.6.3, 11.6.2"},
    {5, "IBV_WC_WR_FLUSH_ERR", Side::kEither,
     "The queue pair was in the error state already: this work request was "
     "not executed. It is a consequence, not a cause.",
     "Look for the first completion with another status, of either queue, at "
     "either end. If there is none, the program moved the queue pair to the "
     "error state, or the peer's request was refused (asynchronous event).",
     "IBA vol. 1, 10.3.1.7, 11.6.2"},
    {6, "IBV_WC_MW_BIND_ERR", Side::kOwn,
     "A memory window could not be bound, or a key could not be invalidated.",
     "Check keys, protection domain, range and IBV_ACCESS_MW_BIND.",
     "IBA vol. 1, 10.6.7, 11.6.2"},
    {7, "IBV_WC_BAD_RESP_ERR", Side::kPeer,
     "The peer's response does not fit the request.",
     "Compare path_mtu at both ends.", "IBA vol. 1, 11.6.2"},
    {8, "IBV_WC_LOC_ACCESS_ERR", Side::kEither,
     "The peer wrote with immediate data to memory that it may not write.",
     "Compare R_Key, address and length that the peer uses with the "
     "registration here.",
     "IBA vol. 1, 11.6.2"},
    {9, "IBV_WC_REM_INV_REQ_ERR", Side::kEither,
     "The peer refused the request as invalid: not permitted by its "
     "qp_access_flags, too long for its receive, or more READs than "
     "max_dest_rd_atomic.",
     "Check these at the peer, and max_rd_atomic here.", "IBA vol. 1, 11.6.2"},
    {10, "IBV_WC_REM_ACCESS_ERR", Side::kEither,
     "The peer refused the R_Key, the range, the right, the protection domain "
     "or the window of an RDMA or atomic operation.",
     "Compare R_Key, address and length with the peer's registration. The "
     "peer's device knows which check failed.",
     "IBA vol. 1, 9.7.4.1.3, 11.6.2"},
    {11, "IBV_WC_REM_OP_ERR", Side::kPeer,
     "The peer could not execute the request, for a fault of its own (its "
     "receive buffer, its memory).",
     "Look at the peer's completions.", "IBA vol. 1, 11.6.2"},
    {12, "IBV_WC_RETRY_EXC_ERR", Side::kEither,
     "The peer did not acknowledge: it is gone, stopped or unreachable, its "
     "queue pair is not ready, or another number, GID or PSN is meant.",
     "Check the peer's process and queue pair, dest_qp_num, GID and PSN, UDP "
     "port 4791 in both directions, and whether timeout and retry_cnt are long "
     "enough for a loaded peer.",
     "IBA vol. 1, 9.9.2.1.1, 11.6.2; ibv_modify_qp(3)"},
    {13, "IBV_WC_RNR_RETRY_EXC_ERR", Side::kPeer,
     "The peer had no receive posted, more than rnr_retry times.",
     "Post receives before the peer may send, and more of them; rnr_retry 7 "
     "means no limit.",
     "IBA vol. 1, 9.7.5.2.8, 11.6.2"},
    {14, "IBV_WC_LOC_RDD_VIOL_ERR", Side::kOwn, "Reliable datagrams only.",
     "No device in use offers these.", "IBA vol. 1, 11.6.2"},
    {15, "IBV_WC_REM_INV_RD_REQ_ERR", Side::kPeer, "Reliable datagrams only.",
     "No device in use offers these.", "IBA vol. 1, 11.6.2"},
    {16, "IBV_WC_REM_ABORT_ERR", Side::kPeer, "The peer aborted the operation.",
     "Look at the peer: its queue pair or SRQ was put into the error state.",
     "IBA vol. 1, 11.6.2"},
    {17, "IBV_WC_INV_EECN_ERR", Side::kOwn, "Reliable datagrams only.",
     "No device in use offers these.", "IBA vol. 1, 11.6.2"},
    {18, "IBV_WC_INV_EEC_STATE_ERR", Side::kOwn, "Reliable datagrams only.",
     "No device in use offers these.", "IBA vol. 1, 11.6.2"},
    {19, "IBV_WC_FATAL_ERR", Side::kOwn, "The device failed.",
     "Close and open it again.", "IBA vol. 1, 11.6.2"},
    {20, "IBV_WC_RESP_TIMEOUT_ERR", Side::kPeer,
     "A response did not arrive in time.", "Check the peer.",
     "IBA vol. 1, 11.6.2"},
    {21, "IBV_WC_GENERAL_ERR", Side::kEither,
     "A failure that no other status describes.", "See vendor_err.",
     "IBA vol. 1, 11.6.2"},
    {22, "IBV_WC_TM_ERR", Side::kEither, "Tag matching failed.",
     "See the vendor's manual.", "ibv_poll_cq(3)"},
    {23, "IBV_WC_TM_RNDV_INCOMPLETE", Side::kEither,
     "A rendezvous message has to be fetched by software.",
     "See the vendor's manual.", "ibv_poll_cq(3)"},
};

// From public bug reports and drivers; NVIDIA documents few of these.
constexpr SyndromeText kSyndromes[] = {
    {0x51, 4, "a local protection check failed (L_Key)", false},
    {0x52, 4, "a local protection check failed", false},
    {0x53, 4, "a local protection check failed", false},
    {0x68, 9, "the peer answered with a NAK \"invalid request\"", false},
    {0x81, 12, "transport retry counter exceeded: no acknowledgement", true},
    {0x82, 13, "RNR retry counter exceeded: the peer had no receive posted",
     true},
    {0x88, 10, "the peer answered with a NAK \"remote access error\"", true},
    {0x89, 9, "the peer answered with a NAK \"remote invalid request\"", false},
    {0x8a, 9, "the peer answered with a NAK \"remote invalid request\"", false},
    {0xf5, 5, "flushed: the queue pair is in the error state", false},
    {0xf9, 5, "flushed: the queue pair is in the error state", true},
};

// The status of the reasons from `first` to the next row. Ascending.
struct StatusFrom {
  Reason first;
  uint32_t status;
};
constexpr StatusFrom kStatusFrom[] = {
    {Reason::kNone, 0},
    {Reason::kNeverAnswered, 12},
    {Reason::kRnrRetriesExceeded, 13},
    {Reason::kNakAccess, 10},
    {Reason::kNakInvalidRequest, 9},
    {Reason::kNakOperational, 11},
    {Reason::kBadResponse, 7},
    {Reason::kLocalKey, 4},
    {Reason::kReceiveTooShort, 1},
    {Reason::kNoReadsAllowed, 2},
    {Reason::kBindKey, 6},
    {Reason::kRemoteKey, 5},
};
static_assert(std::ranges::is_sorted(kStatusFrom, {}, &StatusFrom::first));

}  // namespace

const StatusText* FindStatus(uint32_t status) {
  for (const StatusText& text : kStatuses) {
    if (text.status == status) return &text;
  }
  return nullptr;
}

const SyndromeText* FindSyndrome(uint32_t vendor_err) {
  for (const SyndromeText& text : kSyndromes) {
    if (text.vendor_err == vendor_err) return &text;
  }
  return nullptr;
}

uint32_t StatusOf(Reason reason) {
  uint32_t status = 0;
  for (const StatusFrom& from : kStatusFrom) {
    if (from.first <= reason) status = from.status;
  }
  return status;
}

std::string_view NameOf(Side side) {
  // In the order of Side.
  static constexpr std::string_view kNames[] = {
      "none", "this side", "the peer's side", "either side"};
  static_assert(std::size(kNames) == static_cast<size_t>(Side::kEither) + 1);
  return kNames[static_cast<size_t>(side)];
}

}  // namespace rxe_user
