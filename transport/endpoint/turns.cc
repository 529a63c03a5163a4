#include "transport/endpoint/turns.h"

namespace transport {

void Turns::Activate(EndpointLink* link) {
  if (link->turn == Turn::kActive) return;
  // One that comes back is fresh if so many others have had whole turns since
  // its last one began to count as are listed: to come and go gains nothing.
  if (link->turn == Turn::kIdle) {
    if (ended_ - link->turn_since >= listed_) {
      link->deficit = kFirstQuantum;
      link->place = Place::kFresh;
      link->turn_since = ended_;
    } else {
      link->place = link->place <= Place::kFresh ? Place::kFresh : Place::kLast;
    }
  }
  Unlist(link);
  List(link, Turn::kActive, nullptr, false);
}

void Turns::Answer(EndpointLink* link) {
  if (link->answers) return;
  link->answers = true;
  answers_.InsertBehind(answers_.back(), link);
}

void Turns::Wait(EndpointLink* link, TurnList* waiting) {
  if (link->turn == Turn::kWaiting) return;
  Unlist(link);
  List(link, Turn::kWaiting, waiting, false);
}

void Turns::Wake(TurnList* waiting) {
  EndpointLink* const link = waiting->front();
  if (link == nullptr) return;
  Unlist(link);
  List(link, Turn::kActive, nullptr, false);
  link->woken = true;
}

void Turns::StopWaiting(EndpointLink* link) {
  if (link->turn == Turn::kWaiting) Unlist(link);
}

void Turns::End(EndpointLink* link) {
  const Turn turn = link->turn;
  TurnList* const waiting = link->waiting;
  Unlist(link);
  link->woken = false;
  link->deficit = 0;
  link->place = Place::kLast;
  if (turn != Turn::kIdle) List(link, turn, waiting, false);
}

void Turns::Remove(EndpointLink* link) {
  Unlist(link);
  RemoveFromAnswers(link);
  link->woken = false;
}

Turns::Next Turns::Take() {
  Next next = {.link = answers_.front()};
  if (next.link == nullptr) {
    next.link = active_.front();
  } else if (!MayGoNow(*next.link)) {
    next.answers_only = true;
    RemoveFromAnswers(next.link);
    return next;
  }
  if (next.link != nullptr) {
    Unlist(next.link);
    RemoveFromAnswers(next.link);
  }
  return next;
}

// It is the next one anyway, or as fresh as those before it.
bool Turns::MayGoNow(const EndpointLink& link) const {
  return link.turn == Turn::kActive &&
         (&link == active_.front() ||
          (link.place == Place::kFresh &&
           active_.front()->place == Place::kFresh));
}

void Turns::Transmitted(EndpointLink* link, size_t bytes, bool more) {
  // Meanwhile it may have been listed again.
  const Turn turn = more ? Turn::kActive : link->turn;
  TurnList* const waiting = link->waiting;
  // One that found the window closed, and whose turn it was, has lost nothing.
  bool goes_on = link->woken && bytes == 0;
  Unlist(link);
  link->woken = false;
  link->deficit -= static_cast<int32_t>(bytes);
  if (link->deficit <= 0) {
    UseUp(link);
  } else if (bytes != 0) {
    link->place =
        link->place <= Place::kFresh ? Place::kBegun : Place::kOngoing;
    goes_on = true;
  }
  if (turn != Turn::kIdle) List(link, turn, waiting, goes_on);
}

void Turns::UseUp(EndpointLink* link) {
  // First turns do not count: those who always come back in time for another
  // one would keep them coming.
  if (link->place > Place::kFresh) ++ended_;
  link->deficit += kQuantum;
  link->place = Place::kLast;
  link->turn_since = ended_;
}

void Turns::RemoveFromAnswers(EndpointLink* link) {
  if (!link->answers) return;
  link->answers = false;
  answers_.Remove(link);
}

void Turns::Unlist(EndpointLink* link) {
  switch (link->turn) {
    case Turn::kIdle:
      return;
    case Turn::kActive:
      active_.Remove(link);
      break;
    case Turn::kWaiting:
      link->waiting->Remove(link);
      link->waiting = nullptr;
      break;
  }
  link->turn = Turn::kIdle;
  --listed_;
}

void Turns::List(EndpointLink* link, Turn turn, TurnList* waiting,
                 bool in_front) {
  link->turn = turn;
  link->waiting = turn == Turn::kWaiting ? waiting : nullptr;
  TurnList& list = link->waiting != nullptr ? *link->waiting : active_;
  in_front ? list.PushFront(link) : list.PushBack(link);
  ++listed_;
}

}  // namespace transport
