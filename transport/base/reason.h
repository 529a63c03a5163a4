// Why a work request failed: the number that programs read in `vendor_err` of
// a failed completion, where IBV_WC_* only names the kind of failure.
//
// docs/errors.md is made from the table (tools/rxe_user_cli/errors_page.cc).
#ifndef TRANSPORT_BASE_REASON_H_
#define TRANSPORT_BASE_REASON_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace transport {

// Numbers are part of what users see: they never change. A flushed work request
// has the reason for which its queue pair failed first.
enum class Reason : uint8_t {
  kNone = 0,
  // The peer did not acknowledge.
  kNeverAnswered = 1,
  kPeerSilent = 2,
  kNoProgress = 3,
  kGapRepeated = 4,
  kRnrRetriesExceeded = 5,
  // The peer answered with a NAK, or with something wrong.
  kNakAccess = 10,
  kNakInvalidRequest = 11,
  kNakOperational = 12,
  kBadResponse = 13,
  // Local memory, in the order of MemoryStatus.
  kLocalKey = 20,
  kLocalDomain = 21,
  kLocalWindow = 22,
  kLocalRange = 23,
  kLocalRight = 24,
  kLocalFault = 25,
  // Lengths, and what a send work request asks for.
  kReceiveTooShort = 30,
  kMessageTooLong = 31,
  kAtomicTooShort = 32,
  kNoReadsAllowed = 33,
  kBadTsoHeader = 34,
  // Binding a window, invalidating a key; the same order.
  kBindKey = 40,
  kBindDomain = 41,
  kBindWindow = 42,
  kBindRange = 43,
  kBindRight = 44,
  // A request of the peer, its use of our memory: the same order.
  kRemoteKey = 50,
  kRemoteDomain = 51,
  kRemoteWindow = 52,
  kRemoteRange = 53,
  kRemoteRight = 54,
  kRemoteFault = 55,
  // A request of the peer, everything else.
  kRequestNotPermitted = 60,
  kRequestOutOfSequence = 61,
  kRequestLength = 62,
  kRequestMisaligned = 63,
  kRequestTooMany = 64,
  kRequestNotOffered = 65,
  kRequestSrq = 66,
  // The queue pair.
  kModifiedToError = 70,
  kCqOverrun = 71,
  kFaultOnCommand = 72,
};

// Whose side a program has to look at.
enum class Side : uint8_t {
  kNone,
  kOwn,
  kPeer,
  kEither,  // cannot be told from one end
};

struct ReasonText {
  Reason reason;
  std::string_view name;  // "remote_key"
  Side side;
  std::string_view what;    // what happened: one sentence
  std::string_view advice;  // what to do
  std::string_view spec;    // where the rule is
};

inline constexpr ReasonText kReasons[] = {
    {Reason::kNone, "none", Side::kNone, "Nothing failed.", "Nothing.",
     "ibv_poll_cq(3)"},
    {Reason::kNeverAnswered, "never_answered", Side::kEither,
     "The peer has not answered a single packet of this connection, and "
     "retry_cnt is used up.",
     "Compare dest_qp_num, the GID and sq_psn with the peer's own values; "
     "check "
     "that its queue pair is in RTR or RTS, and that UDP port 4791 is open in "
     "both directions.",
     "IBA vol. 1, 9.9.2.1.1; ibv_modify_qp(3): timeout, retry_cnt"},
    {Reason::kPeerSilent, "peer_silent", Side::kEither,
     "The peer has answered before, and then stopped; retry_cnt is used up.",
     "Check whether its process ended, was stopped or had no core, whether its "
     "queue pair was destroyed or failed, and whether the network lost "
     "packets.",
     "IBA vol. 1, 9.9.2.1.1; ibv_modify_qp(3): timeout, retry_cnt"},
    {Reason::kNoProgress, "no_progress", Side::kEither,
     "The peer answers that it misses a packet, and retransmitting it did not "
     "help; retry_cnt is used up.",
     "Look for a path that drops certain packets (an MTU below path_mtu, a "
     "firewall that drops fragments), and compare sq_psn with the peer's "
     "rq_psn.",
     "IBA vol. 1, 9.9.2.1.1"},
    {Reason::kGapRepeated, "gap_repeated", Side::kEither,
     "The peer reported the same missing packet more than retry_cnt times.",
     "Look for a path that drops certain packets, and compare sq_psn with the "
     "peer's rq_psn.",
     "IBA vol. 1, 9.7.5.1.3, 9.9.2.1.1"},
    {Reason::kRnrRetriesExceeded, "rnr_retries_exceeded", Side::kPeer,
     "The peer had no receive posted, more than rnr_retry times.",
     "Post receives at the peer before it may be sent to, and more of them; or "
     "set rnr_retry to 7 (no limit) here, or a longer min_rnr_timer at the "
     "peer.",
     "IBA vol. 1, 9.7.5.2.8, 9.9.2.1.1; ibv_modify_qp(3): rnr_retry"},
    {Reason::kNakAccess, "nak_access", Side::kPeer,
     "The peer answered with a NAK \"remote access error\": it refused the "
     "R_Key, the range or the right.",
     "The NAK does not say which. Ask the peer's process (rxe-user explain "
     "PID, "
     "on its host), and compare R_Key, address and length with its "
     "registration.",
     "IBA vol. 1, 9.7.5.2.4"},
    {Reason::kNakInvalidRequest, "nak_invalid_request", Side::kEither,
     "The peer answered with a NAK \"invalid request\": it does not permit or "
     "expect this operation, or its receive is too short.",
     "Check the peer's qp_access_flags and max_dest_rd_atomic against "
     "max_rd_atomic here, the length of its receives, and path_mtu at both "
     "ends.",
     "IBA vol. 1, 9.7.5.2.3"},
    {Reason::kNakOperational, "nak_operational", Side::kPeer,
     "The peer answered with a NAK \"remote operational error\": it could not "
     "execute the request, for a fault of its own.",
     "Look at the peer: its receive buffer or its memory is not usable.",
     "IBA vol. 1, 9.7.5.2.5"},
    {Reason::kBadResponse, "bad_response", Side::kPeer,
     "The peer's response does not fit the request.",
     "Compare path_mtu at both ends. Otherwise the peer's device is at fault.",
     "IBA vol. 1, 9.7.5.1.4, 11.6.2"},
    {Reason::kLocalKey, "local_key", Side::kOwn,
     "An L_Key of the work request names no memory region.",
     "Check sge.lkey: was the region deregistered, or the key taken from "
     "elsewhere?",
     "IBA vol. 1, 10.6.3; ibv_reg_mr(3)"},
    {Reason::kLocalDomain, "local_domain", Side::kOwn,
     "An L_Key of the work request is of another protection domain than the "
     "queue pair (or SRQ).",
     "Register the memory in the protection domain of the queue pair.",
     "IBA vol. 1, 10.2.3; ibv_alloc_pd(3)"},
    {Reason::kLocalWindow, "local_window", Side::kOwn,
     "The work request names a memory window's key as L_Key.",
     "Use the L_Key of the region: windows have R_Keys only.",
     "IBA vol. 1, 10.6.7"},
    {Reason::kLocalRange, "local_range", Side::kOwn,
     "A buffer of the work request is not inside its memory region.",
     "Check sge.addr and sge.length against the registration.",
     "IBA vol. 1, 10.6.3"},
    {Reason::kLocalRight, "local_right", Side::kOwn,
     "The memory region of a receive, READ or atomic does not permit local "
     "writing.",
     "Register it with IBV_ACCESS_LOCAL_WRITE.", "ibv_reg_mr(3)"},
    {Reason::kLocalFault, "local_fault", Side::kOwn,
     "A buffer of the work request is registered, but its pages are gone: "
     "unmapped or protected.",
     "Keep memory mapped until all work requests that use it have completed.",
     "IBA vol. 1, 10.6.3"},
    {Reason::kReceiveTooShort, "receive_too_short", Side::kEither,
     "A message did not fit the receive that it took.",
     "Post receives as long as the longest message; 40 bytes more for UD.",
     "IBA vol. 1, 9.7.4.1.6, 11.6.2; ibv_post_recv(3)"},
    {Reason::kMessageTooLong, "message_too_long", Side::kOwn,
     "The message is longer (or shorter) than a datagram or frame may be.",
     "Send at most active_mtu bytes by UD, and whole Ethernet frames by raw "
     "packet queue pairs.",
     "IBA vol. 1, 9.8.3; ibv_query_port(3)"},
    {Reason::kAtomicTooShort, "atomic_too_short", Side::kOwn,
     "The buffer of an atomic has less than the 8 bytes of its result.",
     "Give it a buffer of 8 bytes.", "IBA vol. 1, 9.4.5; ibv_post_send(3)"},
    {Reason::kNoReadsAllowed, "no_reads_allowed", Side::kOwn,
     "A READ or atomic was posted, and max_rd_atomic is 0.",
     "Set max_rd_atomic (and the peer's max_dest_rd_atomic) when the queue "
     "pair "
     "goes to RTS.",
     "IBA vol. 1, 9.7.3.1; ibv_modify_qp(3)"},
    {Reason::kBadTsoHeader, "bad_tso_header", Side::kOwn,
     "The header of a segmented send is not Ethernet, IP and TCP.",
     "Pass the whole header in tso.hdr.", "ibv_post_send(3): IBV_WR_TSO"},
    {Reason::kBindKey, "bind_key", Side::kOwn,
     "There is no window, or no region, with the key of a bind or invalidate.",
     "Check mw, mr and rkey of the request, and the R_Key that a SEND with "
     "invalidate names.",
     "IBA vol. 1, 10.6.7.2"},
    {Reason::kBindDomain, "bind_domain", Side::kOwn,
     "Window, region and queue pair are not of one protection domain.",
     "Allocate all three in one protection domain.", "IBA vol. 1, 10.6.7.2.2"},
    {Reason::kBindWindow, "bind_window", Side::kOwn,
     "The key to be invalidated is of a window that is not bound, or is bound "
     "to another queue pair.",
     "Invalidate a window through the queue pair that bound it.",
     "IBA vol. 1, 10.6.7.2.6"},
    {Reason::kBindRange, "bind_range", Side::kOwn,
     "The window's range is not inside the region.",
     "Check addr and length of the bind.", "IBA vol. 1, 10.6.7.2.3"},
    {Reason::kBindRight, "bind_right", Side::kOwn,
     "The bind or invalidate is not permitted: the region lacks "
     "IBV_ACCESS_MW_BIND, or local writing for a window that is written; a "
     "type "
     "2 window is bound already; or the key cannot be invalidated.",
     "Register the region with IBV_ACCESS_MW_BIND (and "
     "IBV_ACCESS_LOCAL_WRITE); invalidate a type 2 window before binding it "
     "again.",
     "IBA vol. 1, 10.6.7.2; ibv_alloc_mw(3)"},
    {Reason::kRemoteKey, "remote_key", Side::kEither,
     "The peer used an R_Key that names no memory region of this process.",
     "Compare the R_Key that the peer uses with mr->rkey here: wrong key, byte "
     "order, or a region that was deregistered.",
     "IBA vol. 1, 9.7.4.1.3"},
    {Reason::kRemoteDomain, "remote_domain", Side::kOwn,
     "The peer used an R_Key of another protection domain than this queue "
     "pair's.",
     "Register the memory in the protection domain of the queue pair.",
     "IBA vol. 1, 9.7.4.1.3, 10.2.3"},
    {Reason::kRemoteWindow, "remote_window", Side::kEither,
     "The peer used the R_Key of a memory window that is not bound (any more), "
     "or is bound to another queue pair.",
     "Bind the window through this queue pair before the peer uses its key, "
     "and "
     "give it the key of the last bind.",
     "IBA vol. 1, 10.6.7.2"},
    {Reason::kRemoteRange, "remote_range", Side::kEither,
     "The range that the peer asked for is not inside the memory region (or "
     "window) of its R_Key.",
     "Compare the peer's remote_addr and length with the registration: a zero "
     "based region starts at 0, all others at their address.",
     "IBA vol. 1, 9.7.4.1.3"},
    {Reason::kRemoteRight, "remote_right", Side::kOwn,
     "The memory region (or window) of the R_Key does not permit this "
     "operation.",
     "Register it with IBV_ACCESS_REMOTE_WRITE, _READ or _ATOMIC.",
     "IBA vol. 1, 9.7.4.1.3; ibv_reg_mr(3)"},
    {Reason::kRemoteFault, "remote_fault", Side::kOwn,
     "The memory that the peer asked for is registered, but cannot be used: "
     "its "
     "pages are unmapped or protected, or an atomic's word is not aligned.",
     "Keep memory mapped until it is deregistered.", "IBA vol. 1, 9.7.4.1.3"},
    {Reason::kRequestNotPermitted, "request_not_permitted", Side::kOwn,
     "The peer sent a WRITE, READ, atomic or FLUSH that qp_access_flags of "
     "this "
     "queue pair do not permit.",
     "Set IBV_ACCESS_REMOTE_WRITE, _READ or _ATOMIC in qp_access_flags.",
     "IBA vol. 1, 9.7.4.1.2; ibv_modify_qp(3)"},
    {Reason::kRequestOutOfSequence, "request_out_of_sequence", Side::kPeer,
     "The peer sent a packet whose opcode cannot follow the last one, or is "
     "reserved.",
     "Check that two senders do not use one connection.",
     "IBA vol. 1, 9.7.4.1.2"},
    {Reason::kRequestLength, "request_length", Side::kEither,
     "The peer sent a packet of a length that path_mtu, or the message's own "
     "length, does not permit.",
     "Set the same path_mtu at both ends.", "IBA vol. 1, 9.7.4.1.6"},
    {Reason::kRequestMisaligned, "request_misaligned", Side::kPeer,
     "The peer sent an atomic to an address that is not a multiple of 8.",
     "Align the remote address at the peer.", "IBA vol. 1, 9.7.4.1.3"},
    {Reason::kRequestTooMany, "request_too_many", Side::kEither,
     "The peer has more READs and atomics outstanding than max_dest_rd_atomic "
     "of this queue pair.",
     "Set max_dest_rd_atomic here at least to the peer's max_rd_atomic.",
     "IBA vol. 1, 9.7.4.1.2; ibv_modify_qp(3)"},
    {Reason::kRequestNotOffered, "request_not_offered", Side::kEither,
     "The peer sent a FLUSH or ATOMIC WRITE that is not valid, or that this "
     "device does not offer.",
     "See which operations ibv_query_device_ex(3) reports.",
     "IBA vol. 1, annex A19"},
    {Reason::kRequestSrq, "request_srq", Side::kEither,
     "The peer named an SRQ that the XRC domain does not have.",
     "Compare the peer's remote_srqn with ibv_get_srq_num(3).",
     "IBA vol. 1, annex A14"},
    {Reason::kModifiedToError, "modified_to_error", Side::kOwn,
     "This program moved the queue pair to the error state.",
     "Nothing, if it ends the connection. Otherwise look for what it saw "
     "before.",
     "IBA vol. 1, 10.3.1.7; ibv_modify_qp(3)"},
    {Reason::kCqOverrun, "cq_overrun", Side::kOwn,
     "A completion queue of the queue pair was full, and completions were "
     "lost.",
     "Make it as large as all queues that complete into it together, or poll "
     "it "
     "more often.",
     "IBA vol. 1, 10.8.3.1; ibv_create_cq(3)"},
    {Reason::kFaultOnCommand, "fault_on_command", Side::kOwn,
     "A rule for faults answered a request of the peer with a NAK, or changed "
     "a "
     "completion.",
     "Nothing, if the rule is meant so: rxe-user explain names it.",
     "docs/faults-on-command.md"},
};

// Null for a number that no reason has.
constexpr const ReasonText* FindReason(uint32_t number) {
  for (const ReasonText& text : kReasons) {
    if (static_cast<uint32_t>(text.reason) == number) return &text;
  }
  return nullptr;
}
constexpr const ReasonText& TextOf(Reason reason) {
  const ReasonText* const found = FindReason(static_cast<uint32_t>(reason));
  return found != nullptr ? *found : kReasons[0];
}

}  // namespace transport

#endif  // TRANSPORT_BASE_REASON_H_
