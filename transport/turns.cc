#include "transport/turns.h"

namespace transport {

void Turns::Activate(EndpointLink* link) {
  if (link->turn == Turn::kActive) return;
  // What was left of its share stays what it has until all others have had
  // theirs: to come and go gains nothing.
  if (link->turn == Turn::kIdle && ended_ - link->idle_since >= listed_) {
    link->deficit = kQuantum;
    link->place = Place::kFirst;
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
  // Should the window have closed by then, it waits before the others again.
  link->place = std::min(link->place, Place::kNext);
  List(link, Turn::kActive, nullptr, false);
}

void Turns::Remove(EndpointLink* link) {
  Unlist(link);
  if (!link->answers) return;
  link->answers = false;
  answers_.Remove(link);
}

Turns::Next Turns::Take() {
  Next next = {.link = answers_.front()};
  if (next.link == nullptr) {
    next.link = active_.front();
  } else if (next.link->turn != Turn::kActive ||
             (next.link->place == Place::kLast &&
              next.link != active_.front())) {
    next.answers_only = true;
    next.link->answers = false;
    answers_.Remove(next.link);
    return next;
  }
  if (next.link != nullptr) Remove(next.link);
  return next;
}

void Turns::Transmitted(EndpointLink* link, size_t bytes, bool more) {
  // Meanwhile it may have been listed again.
  const Turn turn = more ? Turn::kActive : link->turn;
  TurnList* const waiting = link->waiting;
  Unlist(link);
  link->deficit -= static_cast<int32_t>(bytes);
  const bool over = link->deficit <= 0;
  if (over) {
    link->deficit += kQuantum;
    link->place = Place::kLast;
    ++ended_;
  } else if (bytes != 0) {
    link->place = Place::kNext;
  }
  if (turn != Turn::kIdle) {
    List(link, turn, waiting, bytes != 0 && !over);
  } else {
    link->idle_since = ended_;  // behind its own turn
  }
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
  link->idle_since = ended_;
  --listed_;
}

void Turns::List(EndpointLink* link, Turn turn, TurnList* waiting,
                 bool resumes) {
  link->turn = turn;
  link->waiting = turn == Turn::kWaiting ? waiting : nullptr;
  TurnList& list = link->waiting != nullptr ? *link->waiting : active_;
  resumes ? list.PushFront(link) : list.PushBack(link);
  ++listed_;
}

}  // namespace transport
