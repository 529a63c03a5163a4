#include "transport/rc/missing_responses.h"

#include <algorithm>
#include <cassert>

namespace transport {
namespace {

// A response that was requested again, but was only late, arrives twice within
// this time, or never.
Time AnsweredWithin(Time round_trip) {
  return std::max(10 * kMillisecond, 4 * round_trip);
}

}  // namespace

size_t MissingResponses::Find(uint64_t seq) const {
  const auto all = ranges();
  return std::partition_point(
             all.begin(), all.end(),
             [seq](const Range& range) { return range.end <= seq; }) -
         all.begin();
}

bool MissingResponses::IsMissing(uint64_t seq) const {
  const size_t i = Find(seq);
  return i < size_ && ranges_[i].first <= seq;
}

uint64_t MissingResponses::NextMissing(uint64_t seq) const {
  if (seq >= known_to_) return seq;
  const size_t i = Find(seq);
  return i < size_ ? std::max(seq, ranges_[i].first) : known_to_;
}

uint64_t MissingResponses::MissingEnd(uint64_t seq) const {
  const size_t i = Find(seq);
  assert(i < size_ && ranges_[i].first <= seq);
  return ranges_[i].end;
}

uint64_t MissingResponses::LastMissingEnd(uint64_t end) const {
  const size_t i = Find(end - 1);
  if (i < size_ && ranges_[i].first < end) return end;
  return i == 0 ? 0 : ranges_[i - 1].end;
}

uint64_t MissingResponses::missing() const {
  uint64_t packets = 0;
  for (const Range& range : ranges()) packets += range.end - range.first;
  return packets;
}

uint64_t MissingResponses::asked() const {
  uint64_t packets = 0;
  for (const Range& range : ranges()) {
    if (range.state == State::kAsked) packets += range.end - range.first;
  }
  return packets;
}

const MissingResponses::Range* MissingResponses::NextDue() const {
  uint64_t before = kNone;
  for (const Range& range : ranges()) {
    if (range.state == State::kDue && range.request != before) return &range;
    before = range.request;
  }
  return nullptr;
}

Time MissingResponses::NextDeadline() const {
  Time next = kNever;
  for (const Range& range : ranges()) {
    if (range.state == State::kWaiting) next = std::min(next, range.due);
  }
  return next;
}

void MissingResponses::Insert(size_t index, const Range& range) {
  assert(size_ < kMaxRanges);
  std::move_backward(ranges_.begin() + index, ranges_.begin() + size_,
                     ranges_.begin() + size_ + 1);
  ranges_[index] = range;
  ++size_;
}

void MissingResponses::Erase(size_t index) {
  std::move(ranges_.begin() + index + 1, ranges_.begin() + size_,
            ranges_.begin() + index);
  --size_;
}

void MissingResponses::Wait(Range* range, Time now) const {
  range->state = State::kWaiting;
  range->due = now + reorder_wait_.wait();
}

bool MissingResponses::AddMissing(uint64_t first, uint64_t end,
                                  uint64_t request, Time now) {
  assert(first >= known_to_ && first < end);
  if (size_ == kMaxRanges) return false;
  Range range = {.first = first, .end = end, .request = request};
  Wait(&range, now);
  Insert(size_, range);
  known_to_ = end;
  return true;
}

bool MissingResponses::HasRoomFor(uint64_t seq) const {
  if (size_ < kMaxRanges) return true;
  const Range& range = ranges_[Find(seq)];
  return range.first == seq || range.end == seq + 1;
}

void MissingResponses::Take(uint64_t seq, Time now) {
  const size_t i = Find(seq);
  Range& range = ranges_[i];
  assert(i < size_ && range.first <= seq);
  // The peer sends responses in order: those before this one were lost.
  for (size_t j = i; j-- > 0 && ranges_[j].request == range.request;) {
    if (ranges_[j].state == State::kAsked && range.state == State::kAsked &&
        ranges_[j].marker == range.marker) {
      Wait(&ranges_[j], now);
    }
  }
  Range after = range;
  after.first = seq + 1;
  if (range.first == seq) {
    after.first < after.end ? void(range = after) : Erase(i);
    return;
  }
  range.end = seq;
  if (range.state == State::kAsked) Wait(&range, now);
  if (after.first < after.end) Insert(i + 1, after);
}

bool MissingResponses::Distrust(uint64_t seq, uint64_t request, Time now) {
  assert(seq < known_to_ && !IsMissing(seq));
  if (size_ == kMaxRanges) return false;
  Range range = {.first = seq, .end = seq + 1, .request = request};
  Wait(&range, now);
  Insert(Find(seq), range);
  return true;
}

void MissingResponses::NoteAnswered(uint64_t seq, Time now) {
  if (seq < min_marker_) return;
  min_marker_ = kNone;
  for (size_t i = 0; i < size_; ++i) {
    Range& range = ranges_[i];
    if (range.state != State::kAsked) continue;
    if (range.marker <= seq) {
      Wait(&range, now);
    } else {
      min_marker_ = std::min(min_marker_, range.marker);
    }
  }
}

void MissingResponses::GiveUpAsked(uint64_t until, Time now) {
  for (size_t i = 0; i < size_ && ranges_[i].first < until; ++i) {
    if (ranges_[i].state != State::kAsked) continue;
    Wait(&ranges_[i], now);
    DoubtSample(&ranges_[i]);
  }
}

void MissingResponses::DoubtSample(Range* range) {
  range->doubtful = true;
  if (sample_ >= range->first && sample_ < range->end) sample_ = kNone;
}

void MissingResponses::NoteCopy(uint64_t seq, Time round_trip, Time now) {
  if (seq != sample_) return;
  sample_ = kNone;
  if (now - sampled_at_ > AnsweredWithin(round_trip)) return;
  reorder_wait_.OnTooEarly(round_trip);
}

uint64_t MissingResponses::Expire(Time now) {
  uint64_t packets = 0;
  for (size_t i = 0; i < size_; ++i) {
    Range& range = ranges_[i];
    if (range.state != State::kWaiting || range.due > now) continue;
    range.state = State::kDue;
    packets += range.end - range.first;
  }
  return packets;
}

void MissingResponses::NoteAsked(uint64_t first, uint64_t end, uint64_t marker,
                                 Time round_trip, Time now) {
  bool due = false;  // `first` is missing, and not doubtful
  for (size_t i = Find(first); i < size_ && ranges_[i].first < end; ++i) {
    Range& range = ranges_[i];
    // The part beyond `end` keeps its state, if there is room for a range.
    if (range.end > end && size_ < kMaxRanges) {
      Range rest = range;
      rest.first = end;
      range.end = end;
      Insert(i + 1, rest);
    }
    if (range.state == State::kAsked) DoubtSample(&range);
    if (range.first <= first) due = !range.doubtful;
    range.state = State::kAsked;
    range.marker = marker;
    min_marker_ = std::min(min_marker_, marker);
  }
  if (due &&
      (sample_ == kNone || now - sampled_at_ > AnsweredWithin(round_trip))) {
    sample_ = first;
    sampled_at_ = now;
  }
  reorder_wait_.OnAsked();
}

}  // namespace transport
