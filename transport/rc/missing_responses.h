// Which responses to READs and atomics are missing while later ones have
// arrived, and when to request them again (IBA vol. 1, 9.7.5.1.1: a retried
// READ may request only the part that was not answered). Responses beyond a gap
// are placed in memory at once: the application may look only after the
// completion.
//
// - A range that is found missing is requested after a wait that allows for
//   reordering (ReorderWait). The wait is zero until a response arrives that
//   was requested too early (MissingResponsesTest.WaitsWherePacketsAreLate).
// - It is requested once more when a response has arrived that the peer can
//   only have sent later: another one to the same request, or one to a later
//   request (MissingResponsesTest.LaterAnswersShowALoss). Silence is left to
//   the requester's timers.
// - Of one READ, only the first range is requested at a time: a peer (the
//   kernel's rxe) may forget what is before the part that it has repeated last
//   (MissingResponsesTest.OneRangeOfARequestAtATime).
#ifndef TRANSPORT_RC_MISSING_RESPONSES_H_
#define TRANSPORT_RC_MISSING_RESPONSES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "transport/base/types.h"
#include "transport/rc/reorder_wait.h"

namespace transport {

// In sequence numbers of the requester. Everything before known_to() has been
// answered, but for the ranges. Allocated when the first gap is found.
class MissingResponses {
 public:
  // Once there are this many, later gaps are not noted, and responses beyond
  // them are dropped.
  static constexpr size_t kMaxRanges = 64;

  enum class State : uint8_t {
    kWaiting,  // until `due`: it may only be late
    kDue,      // to be requested
    kAsked,
  };
  struct Range {
    uint64_t first = 0;
    uint64_t end = 0;
    uint64_t request = 0;  // first of the READ or atomic that it belongs to
    // kAsked: anything requested afterwards has this number or a later one.
    uint64_t marker = 0;
    Time due = 0;
    State state = State::kWaiting;
    bool doubtful = false;  // DoubtSample
  };

  // --- Getters.
  uint64_t known_to() const { return known_to_; }
  bool empty() const { return size_ == 0; }
  std::span<const Range> ranges() const { return {ranges_.data(), size_}; }
  // The first that is missing, or known_to().
  uint64_t first() const { return size_ == 0 ? known_to_ : ranges_[0].first; }
  // `seq`, if it is missing or not known yet; else the next one that is.
  uint64_t NextMissing(uint64_t seq) const;
  // `seq` is missing: one past the last that is missing without a break.
  uint64_t MissingEnd(uint64_t seq) const;
  // One past the last missing before `end`; 0: there is none.
  uint64_t LastMissingEnd(uint64_t end) const;
  bool IsMissing(uint64_t seq) const;  // and known to be
  uint64_t missing() const;            // packets
  uint64_t asked() const;              // of them, packets in ranges kAsked
  // The range to ask for next; null: none.
  const Range* NextDue() const;
  Time NextDeadline() const;  // of Expire; kNever
  Time reorder_wait() const { return reorder_wait_.wait(); }  // ns

  // --- Inputs.
  // Everything from known_to() to `seq` is answered.
  void AnsweredTo(uint64_t seq) {
    if (known_to_ < seq) known_to_ = seq;
  }
  // [known_to, first) is answered. [first, end) is missing; it belongs to the
  // READ or atomic that begins at `request`. False if there are kMaxRanges.
  bool AddMissing(uint64_t first, uint64_t end, uint64_t request, Time now);
  // Whether Take may be called: there is room for the range that it may split
  // off.
  bool HasRoomFor(uint64_t seq) const;
  // `seq`, which was missing, has arrived.
  void Take(uint64_t seq, Time now);
  // What arrived for `seq` is no longer trusted: it is missing again. False if
  // there are kMaxRanges.
  bool Distrust(uint64_t seq, uint64_t request, Time now);
  // `seq` has been answered.
  void NoteAnswered(uint64_t seq, Time now);
  // A round trip after they were requested, ranges before `until` have not
  // arrived.
  void GiveUpAsked(uint64_t until, Time now);
  // A copy of a response that has already arrived. `round_trip`: as measured,
  // or 0.
  void NoteCopy(uint64_t seq, Time round_trip, Time now);
  // Ranges whose wait has ended become due. Returns how many packets they have.
  uint64_t Expire(Time now);
  // [first, end) has been requested. `marker`: the next number to request.
  void NoteAsked(uint64_t first, uint64_t end, uint64_t marker, Time round_trip,
                 Time now);

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  // Index of the first range that ends beyond `seq`.
  size_t Find(uint64_t seq) const;
  void Insert(size_t index, const Range& range);
  void Erase(size_t index);
  // `range` was requested once more because of silence: it may be answered
  // twice though nothing was late, so a copy shows nothing.
  void DoubtSample(Range* range);
  // `range` is missing, and has not been requested since that became known.
  void Wait(Range* range, Time now) const;

  uint64_t known_to_ = 0;
  uint64_t min_marker_ = kNone;  // of all that are kAsked
  // A number that was requested again recently, until it has arrived twice; and
  // when it was requested.
  uint64_t sample_ = kNone;
  Time sampled_at_ = 0;
  ReorderWait reorder_wait_;
  size_t size_ = 0;
  std::array<Range, kMaxRanges> ranges_;  // in order
};

}  // namespace transport

#endif  // TRANSPORT_RC_MISSING_RESPONSES_H_
