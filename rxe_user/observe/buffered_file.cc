#include "rxe_user/observe/buffered_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "rxe_user/base/no_cancellation.h"
#include "rxe_user/base/service_thread.h"
#include "rxe_user/base/timed_lock.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

void WarnOfFailure(const BufferedFile::Words& words, const std::string& path,
                   int error) {
  Warn(std::string("cannot ") + words.verb + " " + words.records + " to " +
       path + ": " + std::strerror(error) + "; the program runs without " +
       words.result);
}

}  // namespace

std::unique_ptr<BufferedFile> BufferedFile::Begin(
    const std::string& name, const Limits& limits, const Words& words,
    const std::vector<uint8_t>& beginning) {
  OutputFile file = OpenOutputFile(name);
  if (!file.fd.valid()) {
    WarnOfFailure(words, file.path, errno);
    return nullptr;
  }
  if (file.path != file.wanted) {
    Warn(file.wanted + " exists already: the " + words.records +
         " of process " + std::to_string(::getpid()) + " are in " + file.path);
  }
  std::unique_ptr<BufferedFile> buffered(
      new BufferedFile(std::move(file), limits, words));
  buffered->filling_ = beginning;
  buffered->filling_.reserve(limits.buffer_bytes);
  if (!buffered->StartWriter()) return nullptr;
  return buffered;
}

BufferedFile::BufferedFile(OutputFile file, const Limits& limits,
                           const Words& words)
    : path_(std::move(file.path)),
      is_file_(file.is_file),
      limits_(limits),
      words_(words),
      fd_(std::move(file.fd)) {
  writing_.reserve(limits_.buffer_bytes);
}

bool BufferedFile::StartWriter() {
  const int error = StartServiceThread(
      &writer_,
      [](void* argument) -> void* {
        auto* const file = static_cast<BufferedFile*>(argument);
        ::pthread_setname_np(::pthread_self(), file->words_.thread_name);
        file->RunWriter();
        return nullptr;
      },
      this);
  if (error == 0) return true;
  WarnOfFailure(words_, path_, error);
  writer_ = 0;
  return false;
}

BufferedFile::~BufferedFile() {
  if (writer_ == 0) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  filled_.notify_one();
  ::pthread_join(writer_, nullptr);
}

void BufferedFile::OnMissed() {
  missed_.fetch_add(1, std::memory_order_relaxed);
  WarnOnceAbout(path_, path_ + " is incomplete: " + words_.records +
                           " arrive faster than it can be written");
}

bool BufferedFile::HasRoom(size_t bytes, std::unique_lock<std::mutex>* lock) {
  const auto has_room = [&] {
    return filling_.size() + bytes <= limits_.buffer_bytes;
  };
  if (has_room()) {
    waited_ = false;
    return true;
  }
  // Waits once, until there is space again, so that a lane is not blocked for
  // long.
  if (waited_) return false;
  waited_ = !written_.wait_for(*lock, limits_.longest_wait, has_room);
  return !waited_;
}

// --- The writer.

void BufferedFile::RunWriter() {
  std::unique_lock lock(mutex_);
  for (;;) {
    filled_.wait(lock, [&] { return !filling_.empty() || ending_; });
    if (filling_.empty()) return;
    filled_.wait_for(lock, limits_.flush_after, [&] {
      return ending_ || flushing_ ||
             filling_.size() >= limits_.buffer_bytes / 2;
    });
    filling_.swap(writing_);
    lock.unlock();
    // Other threads can fill the other buffer while this one is written.
    written_.notify_all();
    const bool good = failed_ || WriteAll(writing_);
    lock.lock();
    writing_.clear();
    if (!good) failed_ = true;
    written_.notify_all();
  }
}

bool BufferedFile::WriteAll(const std::vector<uint8_t>& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        ::write(fd_.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      Warn("cannot write " + path_ + ": " + std::strerror(error) +
           "; no more " + words_.records + " are " + words_.participle +
           ", and the program continues");
      // Truncated, the file ends with a whole record.
      if (is_file_ && ::ftruncate(fd_.get(), good_bytes_) != 0) return false;
      return false;
    }
    done += static_cast<size_t>(n);
  }
  good_bytes_ += static_cast<off_t>(bytes.size());
  return true;
}

bool BufferedFile::IsInterrupted(std::chrono::milliseconds patience) {
  return !LockWithin(mutex_, patience).owns_lock();
}

void BufferedFile::Flush(std::chrono::milliseconds patience) {
  const NoCancellation no_cancellation;
  std::unique_lock lock = LockWithin(mutex_, patience);
  if (!lock.owns_lock()) return;
  flushing_ = true;
  filled_.notify_one();
  written_.wait_for(lock, patience,
                    [&] { return filling_.empty() && writing_.empty(); });
  flushing_ = false;
}

void BufferedFile::AbandonInChild() {
  failed_ = true;
  fd_.Reset();
  std::vector<uint8_t>().swap(filling_);
  std::vector<uint8_t>().swap(writing_);
  mutex_.unlock();
}

}  // namespace rxe_user
