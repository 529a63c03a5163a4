#include "transport/endpoint/transmit_scheduler.h"

namespace transport {

void TransmitScheduler::Activate(EndpointLink* link) {
  if (link->schedule == Schedule::kActive) return;
  // A link counts as fresh only if all others may have had a turn since its
  // last one: as many turns have ended as links are listed. So going idle and
  // returning gains nothing.
  if (link->schedule == Schedule::kIdle) {
    if (ended_ - link->turn_since >= listed_) {
      link->deficit = kFirstQuantum;
      link->priority = Priority::kFresh;
      link->turn_since = ended_;
    } else {
      link->priority = link->priority <= Priority::kFresh ? Priority::kFresh
                                                          : Priority::kLast;
    }
  }
  Unlist(link);
  List(link, Schedule::kActive, nullptr, false);
}

void TransmitScheduler::Wait(EndpointLink* link, ScheduleList* waiting) {
  if (link->schedule == Schedule::kWaiting) return;
  Unlist(link);
  List(link, Schedule::kWaiting, waiting, false);
}

void TransmitScheduler::Wake(ScheduleList* waiting) {
  EndpointLink* const link = waiting->front();
  if (link == nullptr) return;
  Unlist(link);
  List(link, Schedule::kActive, nullptr, false);
  link->woken = true;
}

bool TransmitScheduler::Deactivate(EndpointLink* link) {
  const bool held_window = link->woken || link->schedule == Schedule::kWaiting;
  Unlist(link);
  link->woken = false;
  return held_window;
}

void TransmitScheduler::StopWaiting(EndpointLink* link) {
  if (link->schedule == Schedule::kWaiting) Unlist(link);
}

void TransmitScheduler::EndTurn(EndpointLink* link) {
  const Schedule schedule = link->schedule;
  ScheduleList* const waiting = link->waiting;
  Unlist(link);
  link->woken = false;
  link->deficit = 0;
  link->priority = Priority::kLast;
  if (schedule != Schedule::kIdle) List(link, schedule, waiting, false);
}

void TransmitScheduler::Remove(EndpointLink* link) {
  Unlist(link);
  RemoveAcks(link);
  link->woken = false;
}

// Whether `link` may transmit now with its ACKs: it is next anyway, or as fresh
// as those before it.
bool TransmitScheduler::MayTransmitNow(const EndpointLink& link) const {
  return link.schedule == Schedule::kActive &&
         (&link == active_.front() ||
          (link.priority == Priority::kFresh &&
           active_.front()->priority == Priority::kFresh));
}

void TransmitScheduler::Transmitted(EndpointLink* link, size_t bytes,
                                    bool more) {
  // The queue pair may have been listed again during its turn.
  const Schedule schedule = more ? Schedule::kActive : link->schedule;
  ScheduleList* const waiting = link->waiting;
  // A woken link that found the window closed keeps its position.
  bool in_front = link->woken && bytes == 0;
  Unlist(link);
  link->woken = false;
  link->deficit -= static_cast<int32_t>(bytes);
  if (link->deficit <= 0) {
    FinishTurn(link);
  } else if (bytes != 0) {
    link->priority = link->priority <= Priority::kFresh ? Priority::kBegun
                                                        : Priority::kOngoing;
    in_front = true;
  }
  if (schedule != Schedule::kIdle) List(link, schedule, waiting, in_front);
}

void TransmitScheduler::FinishTurn(EndpointLink* link) {
  // First turns do not count: queue pairs that keep returning in time would
  // otherwise renew each other's first turns.
  if (link->priority > Priority::kFresh) ++ended_;
  link->deficit += kQuantum;
  link->priority = Priority::kLast;
  link->turn_since = ended_;
}

void TransmitScheduler::Unlist(EndpointLink* link) {
  switch (link->schedule) {
    case Schedule::kIdle:
      return;
    case Schedule::kActive:
      active_.Remove(link);
      break;
    case Schedule::kWaiting:
      link->waiting->Remove(link);
      link->waiting = nullptr;
      break;
  }
  link->schedule = Schedule::kIdle;
  --listed_;
}

void TransmitScheduler::List(EndpointLink* link, Schedule schedule,
                             ScheduleList* waiting, bool in_front) {
  link->schedule = schedule;
  link->waiting = schedule == Schedule::kWaiting ? waiting : nullptr;
  ScheduleList& list = link->waiting != nullptr ? *link->waiting : active_;
  in_front ? list.PushFront(link) : list.PushBack(link);
  ++listed_;
}

}  // namespace transport
