// Responses to READs and atomics that arrive ahead of one that is missing, and
// what is requested again (missing_responses.h).
//
// Responses ahead are placed in memory at once. If one arrives twice with
// different contents, one of the two is not the peer's: neither counts, and it
// is requested again. The same happens, without harm, if the peer's memory has
// changed meanwhile.
#include <algorithm>
#include <array>
#include <new>

#include "transport/base/local_buffer.h"
#include "transport/rc/requester.h"

namespace transport {
namespace {

constexpr size_t kMaxMtu = 4096;  // bytes

}  // namespace

bool Requester::NoteMissing(uint64_t until, Time now) {
  if (missing_ == nullptr) {
    missing_.reset(new (std::nothrow) MissingResponses);
    // Without memory for it, everything is requested again.
    if (missing_ == nullptr) {
      OnGap(now);
      return false;
    }
  }
  missing_->AnsweredTo(snd_.una);
  while (missing_->known_to() < until) {
    const uint64_t known = missing_->known_to();
    const OutstandingReads::Entry* read = reads_.FindFrom(known);
    if (read == nullptr || read->first >= until) {
      missing_->AnsweredTo(until);
      break;
    }
    if (!missing_->AddMissing(std::max(known, read->first),
                              std::min(until, read->end), read->first, now)) {
      return false;
    }
  }
  missing_->NoteAnswered(until - 1, now);
  return true;
}

bool Requester::AdmitAhead(uint64_t seq, const wire::PacketView& packet,
                           Time now) {
  if (missing_ == nullptr || seq >= missing_->known_to()) {
    // If the gap cannot be noted, the packet is dropped: the known ranges come
    // first.
    const bool noted = NoteMissing(seq, now);
    if (!phase_.running) return false;
    AskForDue(now);
    return noted && phase_.running;
  }
  if (missing_->IsMissing(seq)) return missing_->HasRoomFor(seq);
  missing_->NoteCopy(seq, path()->smoothed_rtt(), now);
  if (!IsSame(seq, packet)) {
    ++core_.counters.dropped_conflict;
    missing_->Distrust(seq, reads_.Find(seq)->first, now);
    AskForDue(now);
  }
  return false;
}

bool Requester::IsSame(uint64_t seq, const wire::PacketView& packet) {
  const uint64_t index = IndexOf(seq);
  const SendWqe& wqe = queue().at(index);
  const std::span<const uint8_t> payload = packet.payload();
  if (wqe.operation().kind != SendKind::kRead || payload.empty()) return true;
  const uint64_t offset = (seq - wqe.first) * snd_.mtu;
  if (payload.size() != std::min<uint64_t>(wqe.length - offset, snd_.mtu)) {
    return true;  // a bad response, not a different one
  }
  LocalBuffer target(*core_.config.memory, core_.config.pd, core_.config.qpn,
                     kAccessLocalRead, payload.size());
  target.Seek(queue().sges(index), offset);
  std::array<uint8_t, kMaxMtu> placed;
  return target.Read(placed.data(), payload.size()) == MemoryStatus::kOk &&
         std::equal(payload.begin(), payload.end(), placed.begin());
}

void Requester::TakeAhead(uint64_t seq, Time now) {
  if (missing_->IsMissing(seq)) {
    missing_->Take(seq, now);
  } else {
    missing_->AnsweredTo(seq + 1);
  }
  missing_->NoteAnswered(seq, now);
  snd_.acknowledged = std::max(snd_.acknowledged, seq + 1);
  if (rtt_.seq == seq) {
    path()->OnOrderedAnswer(core_.attributes.dest_qpn, rtt_.sent, now);
    rtt_.seq = kNoSequence;
  }
  // The peer is alive. How long it may leave responses out is limited by how
  // much may be outstanding.
  if (snd_.outstanding()) loss_.OnSignOfLife(now);
  Proceed(now);
  AskForDue(now);
}

void Requester::AskForDue(Time now) {
  if (missing_ == nullptr) return;
  const uint64_t lost = missing_->Expire(now);
  if (lost > 0) {
    rtt_.seq = kNoSequence;
    NoteLoss(now);
    path()->OnLost(lost * snd_.PacketCost());
    if (missing_->ranges()[0].state == MissingResponses::State::kDue &&
        !CountGap(now)) {
      return;
    }
  }
  if (DueRange() != nullptr) hints_.past_window = true;
}

// Half a window, like a run that fills a gap at the peer: a longer loss is
// probably that of a full queue, and would happen again.
uint64_t Requester::MissingRoom() const {
  const uint64_t asked = missing_->asked();
  const uint64_t limit =
      std::max<uint64_t>(path()->window() / 2 / snd_.PacketCost(), 1);
  return limit > asked ? limit - asked : 0;
}

const MissingResponses::Range* Requester::DueRange() const {
  if (!HasMissing() || snd_.nxt != snd_.max) return nullptr;
  const MissingResponses::Range* range = missing_->NextDue();
  if (range == nullptr || MissingRoom() == 0) return nullptr;
  return failures_.local_index == kNoSequence ||
                 IndexOf(range->first) < failures_.local_index
             ? range
             : nullptr;
}

Requester::Next Requester::DecideMissing(Item* item) const {
  const MissingResponses::Range* range = DueRange();
  *item = {.index = IndexOf(range->first),
           .seq = range->first,
           .count = static_cast<uint32_t>(
               std::min(range->end - range->first, MissingRoom())),
           .out_of_turn = true};
  return Next::kPacket;
}

uint64_t Requester::MissingEnd(uint64_t seq,
                               const OutstandingReads::Entry& read) const {
  return HasMissing() && missing_->IsMissing(seq) ? missing_->MissingEnd(seq)
                                                  : read.end;
}

// The peer may not have got the last request. One long request is more likely
// to be answered in part than many short ones in full.
uint64_t Requester::ReplayEnd(const OutstandingReads::Entry& read) const {
  return HasMissing() && missing_->known_to() >= read.end
             ? missing_->LastMissingEnd(read.end)
             : read.end;
}

uint64_t Requester::FirstMissing(const OutstandingReads::Entry& read) const {
  const uint64_t first = std::max(read.first, snd_.una);
  return HasMissing() ? std::min(missing_->NextMissing(first), read.end)
                      : first;
}

}  // namespace transport
