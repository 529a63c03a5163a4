// Checks of completions by a seed's applications.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/sim/seed_run.h"

namespace sim {

using transport::Completion;
using transport::SendOpcode;
using transport::WcStatus;

namespace {

bool SameBytes(Host& host, const std::vector<Piece>& pieces,
               const std::vector<uint8_t>& content) {
  size_t at = 0;
  for (const Piece& piece : pieces) {
    const size_t n = std::min(piece.length, content.size() - at);
    if (!std::equal(content.begin() + at, content.begin() + at + n,
                    host.arena.actual(piece.offset))) {
      return false;
    }
    at += n;
  }
  return at == content.size();
}

}  // namespace

void SeedRun::OnCompletion(Host& host, SimCq& cq, const Completion& wc) {
  last_progress_ = network_.now();
  End& end = *host.by_qpn.at(wc.qpn);
  const bool receive = IsReceive(wc);
  if (network_.trace()) {
    network_.Trace(absl::StrFormat(
        "%d  QP %06x completes %s %d: status %d byte_len %d",
        host.node->index(), end.qpn, receive ? "receive" : "send",
        receive ? end.receives_completed : end.completed,
        static_cast<int>(wc.status), wc.byte_len));
  }
  const int cq_index = receive ? end.scenario->recv_cq : end.scenario->send_cq;
  if (host.cqs[cq_index].get() != &cq) FailAt(end, "completion in another CQ");
  if (wc.status != WcStatus::kSuccess && !end.broken) {
    FailAt(end, absl::StrFormat("%s completes with status %d",
                                receive ? "receive" : "send",
                                static_cast<int>(wc.status)));
    return;
  }
  if (receive) {
    OnReceiveCompletion(end, wc);
  } else {
    OnSendCompletion(end, wc);
  }
}

void SeedRun::OnSendCompletion(End& end, const Completion& wc) {
  const bool error = wc.status != WcStatus::kSuccess;
  if (!error && end.failed_send) FailAt(end, "a success after an error");
  // Unsignaled requests before it succeeded silently; after an error every
  // request completes.
  size_t i = end.completed;
  if (error && !end.failed_send) {
    while (i < end.posted && end.ops[i].wr_id != wc.wr_id &&
           !(end.ops[i].flags & transport::kSendSignaled) &&
           !end.scenario->signal_all) {
      ++i;
    }
  } else if (!error && !end.scenario->signal_all) {
    while (i < end.posted && !(end.ops[i].flags & transport::kSendSignaled)) {
      ++i;
    }
  }
  if (i >= end.posted || end.ops[i].wr_id != wc.wr_id) {
    FailAt(end, absl::StrFormat("send completion with wr_id %x, expected that "
                                "of request %d",
                                wc.wr_id, i));
    return;
  }
  for (; end.completed < i; ++end.completed) {
    FinishOp(end, end.ops[end.completed]);
  }
  Op& op = end.ops[end.completed++];
  if (error) {
    // The first error has the reason, the rest is flushed (11.6.2).
    if (end.failed_send && wc.status != WcStatus::kFlushed) {
      FailAt(end, absl::StrCat("status ", static_cast<int>(wc.status),
                               " after the first error"));
    }
    end.failed_send = true;
    return;
  }
  if (wc.opcode != SendCompletion(op.opcode)) FailAt(end, "wrong WC opcode");
  if ((op.is_atomic() || op.opcode == SendOpcode::kRdmaRead) &&
      wc.byte_len != op.length) {
    FailAt(end, absl::StrCat("byte_len ", wc.byte_len, " for ", op.length));
  }
  FinishOp(end, op);
}

// Checks `op` once the sender knows that it is done.
void SeedRun::FinishOp(End& end, Op& op) {
  op.done = true;
  ++requests_;
  Host& mine = *end.host;
  Host& theirs = *end.peer->host;
  const size_t index = &op - end.ops.data();
  if (op.takes_receive() && !end.broken &&
      end.peer->receives_pushed <= static_cast<uint64_t>(op.message)) {
    FailAt(end, absl::StrCat("request ", index,
                             " done before its receive was completed"));
  }
  if (op.is_atomic()) {
    uint8_t word[8];
    std::memcpy(word, mine.arena.actual(op.local[0].offset), 8);
    std::memcpy(&op.original, word, 8);
    mine.arena.Accept(op.local[0].offset, 8);
    return;
  }
  if (op.opcode == SendOpcode::kLocalInvalidate) {
    const Region* region = mine.node->memory().FindByRkey(op.invalidate_rkey);
    // A window may have been bound again.
    if (!region->invalidated && !region->is_window) {
      FailAt(end, "R_Key was not invalidated");
    }
    return;
  }
  if (op.opcode == SendOpcode::kBindMw) {
    if (mine.node->memory().FindByRkey(op.rkey)->bound_qpn != end.qpn) {
      FailAt(end, "window was not bound");
    }
    return;
  }
  if (network_.undetected() > 0) return;
  if (op.opcode == SendOpcode::kRdmaRead) {
    if (op.settled && !SameBytes(mine, op.local, op.content)) {
      FailAt(end, absl::StrCat("READ ", index, " brought other bytes"));
    }
  } else if (!op.is_send()) {
    if (op.settled && !SameBytes(theirs, {op.remote}, op.content)) {
      FailAt(end, absl::StrCat("WRITE ", index, " is done but not there"));
    }
  }
  // After completion the application owns the buffers again.
  if (op.scribble && (op.flags & transport::kSendInline) == 0) {
    for (const Piece& piece : op.local) {
      random_.Fill(mine.arena.actual(piece.offset), piece.length);
      mine.arena.Accept(piece.offset, piece.length);
    }
  }
}

void SeedRun::OnReceiveCompletion(End& end, const Completion& wc) {
  const bool error = wc.status != WcStatus::kSuccess;
  if (!error && end.failed_receive) FailAt(end, "a success after an error");
  if (error) end.failed_receive = true;
  const Receive* receive = nullptr;
  if (end.shared != nullptr) {
    SharedReceives& shared = *end.shared;
    const uint64_t index = wc.wr_id & ~kReceiveWrId;
    if (index >= shared.posted || shared.used[index]) {
      FailAt(end, absl::StrCat("SRQ completion with wr_id ", wc.wr_id));
      return;
    }
    shared.used[index] = true;
    receive = &shared.receives[index];
  } else {
    if (end.receives_completed >= end.receives_posted ||
        end.receives[end.receives_completed].wr_id != wc.wr_id) {
      FailAt(end, absl::StrFormat("receive completion with wr_id %x, expected "
                                  "that of receive %d",
                                  wc.wr_id, end.receives_completed));
      return;
    }
    receive = &end.receives[end.receives_completed];
  }
  if (!error) OnReceiveSuccess(end, wc, *receive);
  ++end.receives_completed;
}

void SeedRun::OnReceiveSuccess(End& end, const Completion& wc,
                               const Receive& receive) {
  const End& peer = *end.peer;
  const size_t message = end.receives_completed;
  if (message >= peer.messages.size() ||
      static_cast<size_t>(peer.messages[message]) >= peer.posted) {
    FailAt(end, "receive of a message that was not sent");
    return;
  }
  const Op& op = peer.ops[peer.messages[message]];
  CheckReceiveFields(op, wc, absl::StrCat("message ", message, ": "));
  if (network_.undetected() > 0) return;
  Host& host = *end.host;
  if (op.opcode == SendOpcode::kRdmaWriteWithImm) {
    if (op.settled && !SameBytes(host, {op.remote}, op.content)) {
      FailAt(end, absl::StrCat("message ", message, ": WRITE is not there"));
    }
    return;
  }
  if (!SameBytes(host, receive.pieces, op.content)) {
    FailAt(end, absl::StrCat("message ", message, " arrived with other bytes"));
  }
  size_t at = 0;
  for (const Piece& piece : receive.pieces) {
    const size_t n = std::min(piece.length, op.content.size() - at);
    std::copy_n(op.content.begin() + at, n, host.arena.expected(piece.offset));
    at += n;
  }
}

void SeedRun::CheckReceiveFields(const Op& op, const Completion& wc,
                                 const std::string& where) {
  const auto check = [&](bool good, const char* what) {
    if (!good) checker_.Fail(absl::StrCat(where, what));
  };
  check(wc.opcode == ReceiveCompletion(op.opcode), "opcode");
  check(wc.byte_len == op.length, "byte_len");
  check(((wc.flags & transport::kWcWithImm) != 0) == op.has_imm(),
        "flag of an immediate");
  if (op.has_imm()) check(wc.imm_be_or_rkey == op.imm_be, "immediate");
  const bool invalidates = op.opcode == SendOpcode::kSendWithInvalidate;
  check(((wc.flags & transport::kWcWithInvalidate) != 0) == invalidates,
        "flag of an invalidation");
  if (invalidates) {
    check(wc.imm_be_or_rkey == op.invalidate_rkey, "invalidated R_Key");
  }
  check(wc.solicited == ((op.flags & transport::kSendSolicited) != 0),
        "solicited");
}

}  // namespace sim
