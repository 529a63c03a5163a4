#include "tools/trace/parts.h"

#include <algorithm>
#include <limits>

namespace trace {

bool Parts::Open(const std::string& path, std::string* why) {
  auto capture = CaptureFile::Open(path, why);
  if (capture == nullptr) return false;
  Add(std::move(capture));
  files_.back()->recording.path = path;
  return true;
}

void Parts::Add(std::unique_ptr<CaptureFile> capture) {
  auto file = std::make_unique<File>();
  file->reader.Use(std::move(capture));
  readable_.push_back(&file->recording);
  files_.push_back(std::move(file));
}

bool Parts::Next() {
  if (is_done_) return false;
  // Destroy what points into the recordings before they change.
  timeline_ = Timeline();
  conversation_ = Conversation();
  is_done_ = true;
  for (const auto& file : files_) {
    file->reader.Drop(file->drop.packets, file->drop.events);
    file->shown.packets -= file->drop.packets;
    file->shown.events -= file->drop.events;
    file->reader.ReadUntil(most_);
    is_done_ &= file->recording.is_whole;
  }
  timeline_ = joiner_.Join(readable_);
  Divide();
  for (TimedEvent& timed : timeline_.events) {
    const File& file = *files_[timed.file];
    const auto index =
        static_cast<size_t>(timed.event - file.recording.events.data());
    timed.shown = index >= file.shown.events && index < file.until.events;
    timed.is_kept = index >= file.drop.events;
  }
  conversation_ = Analyze(&timeline_, &carried_);
  for (const auto& file : files_) file->shown = file->until;
  return true;
}

void Parts::Divide() {
  // Show everything up to three quarters of the file that ends first.
  int64_t time = std::numeric_limits<int64_t>::max();
  size_t first = 0;
  for (size_t f = 0; f < files_.size(); ++f) {
    const Recording& r = files_[f]->recording;
    if (r.is_whole) continue;
    const int64_t end =
        (r.packets.size() >= r.events.size()
             ? r.packets[r.packets.size() * 3 / 4].time
             : r.events[r.events.size() * 3 / 4].header().time) -
        timeline_.offsets[f];
    if (end < time) {
      time = end;
      first = f;
    }
  }
  for (size_t f = 0; f < files_.size(); ++f) {
    File& file = *files_[f];
    Recording& r = file.recording;
    file.until = file.shown;
    file.drop = Position();
    if (is_done_) {
      file.until = {r.packets.size(), r.events.size()};
    } else {
      Forward(time + timeline_.offsets[f], &file.until, r);
      // Whatever the times in a file are, show half of it.
      if (f == first) {
        if (r.packets.size() >= r.events.size()) {
          file.until.packets =
              std::max(file.until.packets, r.packets.size() / 2);
        } else {
          file.until.events = std::max(file.until.events, r.events.size() / 2);
        }
      }
      const auto before = [](size_t until, size_t size) {
        return until - std::min(until, size / 4);
      };
      file.drop = {before(file.until.packets, r.packets.size()),
                   before(file.until.events, r.events.size())};
    }
    for (size_t p = 0; p < r.packets.size(); ++p) {
      r.packets[p].shown = p >= file.shown.packets && p < file.until.packets;
      r.packets[p].is_kept = p >= file.drop.packets;
    }
  }
}

void Parts::Forward(int64_t time, Position* until, const Recording& r) {
  while (until->packets < r.packets.size() &&
         r.packets[until->packets].time < time) {
    ++until->packets;
  }
  while (until->events < r.events.size() &&
         r.events[until->events].header().time < time) {
    ++until->events;
  }
}

}  // namespace trace
