#include "transport/rc/responder_resources.h"

#include <algorithm>
#include <utility>

namespace transport {

void ResponderResources::Allocate(size_t capacity) {
  if (capacity != capacity_) {
    ring_ = std::make_unique<Resource[]>(capacity);
    capacity_ = static_cast<uint16_t>(capacity);
  }
  Clear();
}

void ResponderResources::Resize(size_t capacity) {
  auto resized = std::make_unique<Resource[]>(capacity);
  const size_t kept = std::min<size_t>(capacity, size_);
  const size_t dropped = size_ - kept;
  for (size_t i = 0; i < kept; ++i) resized[i] = at(dropped + i);
  ring_ = std::move(resized);
  capacity_ = static_cast<uint16_t>(capacity);
  head_ = 0;
  size_ = static_cast<uint16_t>(kept);
  first_pending_ -=
      static_cast<uint16_t>(std::min<size_t>(first_pending_, dropped));
}

Resource* ResponderResources::Find(uint64_t psn) {
  for (size_t i = size_; i > 0; --i) {
    Resource& resource = at(i - 1);
    if (resource.last_psn < psn) return nullptr;
    if (resource.first_psn <= psn) return &resource;
  }
  return nullptr;
}

Resource* ResponderResources::New() {
  if (capacity_ == 0) return nullptr;
  if (size_ == capacity_) {
    if (at(0).pending && !at(0).answered) return nullptr;
    head_ = static_cast<uint16_t>((head_ + 1) % capacity_);
    --size_;
    if (first_pending_ > 0) --first_pending_;
  }
  Resource* resource = &at(size_);
  *resource = Resource{};
  return resource;
}

void ResponderResources::SetPending(Resource* resource) {
  resource->pending = true;
  const size_t place = static_cast<size_t>(resource - ring_.get());
  const size_t index = (place + capacity_ - head_) % capacity_;
  first_pending_ = std::min(first_pending_, static_cast<uint16_t>(index));
}

}  // namespace transport
