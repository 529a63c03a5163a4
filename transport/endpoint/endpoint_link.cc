#include "transport/endpoint/endpoint_link.h"

#include <bit>

namespace transport {

// Powers of two, so that adding links one by one rarely copies.
void TimerHeap::Reserve(size_t links) {
  if (links > heap_.capacity()) heap_.reserve(std::bit_ceil(links));
}

void TimerHeap::Set(EndpointLink* link, Time deadline) {
  if (deadline == kNever) {
    Remove(link);
    return;
  }
  if (link->heap_index == EndpointLink::kNotInHeap) {
    link->deadline = deadline;
    heap_.push_back(link);
    link->heap_index = static_cast<uint32_t>(heap_.size() - 1);
    Up(link->heap_index);
    return;
  }
  const Time before = link->deadline;
  link->deadline = deadline;
  if (deadline < before) Up(link->heap_index);
  if (deadline > before) Down(link->heap_index);
}

void TimerHeap::Remove(EndpointLink* link) {
  const size_t index = link->heap_index;
  link->deadline = kNever;
  if (index == EndpointLink::kNotInHeap) return;
  link->heap_index = EndpointLink::kNotInHeap;
  EndpointLink* last = heap_.back();
  heap_.pop_back();
  if (last == link) return;
  Place(last, index);
  Up(index);
  Down(last->heap_index);
}

void TimerHeap::Place(EndpointLink* link, size_t index) {
  heap_[index] = link;
  link->heap_index = static_cast<uint32_t>(index);
}

void TimerHeap::Up(size_t index) {
  EndpointLink* link = heap_[index];
  while (index > 0) {
    const size_t parent = (index - 1) / 2;
    if (heap_[parent]->deadline <= link->deadline) break;
    Place(heap_[parent], index);
    index = parent;
  }
  Place(link, index);
}

void TimerHeap::Down(size_t index) {
  EndpointLink* link = heap_[index];
  for (;;) {
    size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() &&
        heap_[child + 1]->deadline < heap_[child]->deadline) {
      ++child;
    }
    if (link->deadline <= heap_[child]->deadline) break;
    Place(heap_[child], index);
    index = child;
  }
  Place(link, index);
}

}  // namespace transport
