// A file that a thread writes, so that callers that append to it only copy.
#ifndef RXE_USER_OBSERVE_BUFFERED_FILE_H_
#define RXE_USER_OBSERVE_BUFFERED_FILE_H_

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/observe/output_file.h"

namespace rxe_user {

// Any number of threads append records. If the buffer is full, a thread waits
// once, for some ms. Records that still do not fit are dropped and counted.
class BufferedFile {
 public:
  struct Limits {
    // Size of each of two buffers: one is filled while the other is written.
    size_t buffer_bytes = 4 << 20;
    // How long a record stays in a buffer that does not fill up.
    std::chrono::milliseconds flush_after{200};
    // How long a record waits if it does not fit. If it then still does not
    // fit, later records do not wait, until one has fit.
    std::chrono::milliseconds longest_wait{10};
  };
  // For the lines on stderr: "cannot capture packets to ...".
  struct Words {
    const char* records;      // "packets"
    const char* verb;         // "capture"
    const char* participle;   // "captured"
    const char* result;       // "a capture"
    const char* thread_name;  // at most 15 characters
  };

  // Opens file `name` (OpenOutputFile), which begins with `beginning`. Null on
  // failure, after a line on stderr. If the file gets another name, a line on
  // stderr says so. `words` is static.
  static std::unique_ptr<BufferedFile> Begin(
      const std::string& name, const Limits& limits, const Words& words,
      const std::vector<uint8_t>& beginning);
  // Writes what is buffered, and ends the writer thread.
  ~BufferedFile();

  // Appends a record of at most `bytes` bytes, which `write(buffer)` adds to a
  // std::vector<uint8_t>. `write` is called under a lock, so records are in the
  // order of what it reads, such as a clock. False: the record was dropped.
  template <typename Write>
  bool Append(size_t bytes, Write&& write) {
    if (failed()) return false;
    std::unique_lock lock(mutex_);
    if (!HasRoom(bytes, &lock)) {
      lock.unlock();
      OnMissed();
      return false;
    }
    const bool first = filling_.empty();
    const bool was_full = filling_.size() >= limits_.buffer_bytes / 2;
    write(&filling_);
    const bool is_full = filling_.size() >= limits_.buffer_bytes / 2;
    lock.unlock();
    if (first || is_full != was_full) filled_.notify_one();
    return true;
  }

  // Writing has failed for good, or this is the child of a fork.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // Records that were dropped.
  uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

  // Whether a thread in Append does not finish within `patience`, because a
  // signal handler has interrupted it and ends the program. The file then has
  // the records that were appended before; Append would wait forever.
  bool IsInterrupted(std::chrono::milliseconds patience);
  // Returns once all earlier records are written, or after `patience`.
  void Flush(std::chrono::milliseconds patience);

  // --- fork. The child writes nothing more, and must not destroy this object.
  void LockForFork() { mutex_.lock(); }
  void UnlockInParent() { mutex_.unlock(); }
  void AbandonInChild();

 private:
  BufferedFile(OutputFile file, const Limits& limits, const Words& words);
  bool StartWriter();
  void RunWriter();
  // False: writing has failed for good, and a line on stderr says so.
  bool WriteAll(const std::vector<uint8_t>& bytes);
  // Lock held. Whether `bytes` fit, now or soon.
  bool HasRoom(size_t bytes, std::unique_lock<std::mutex>* lock);
  void OnMissed();

  const std::string path_;
  const bool is_file_;  // not a pipe or device
  const Limits limits_;
  const Words& words_;
  UniqueFd fd_;
  off_t good_bytes_ = 0;  // size in whole records; used by the writer
  pthread_t writer_{};
  std::atomic<bool> failed_ = false;
  std::atomic<uint64_t> missed_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable filled_;
  std::condition_variable written_;
  std::vector<uint8_t> filling_;
  std::vector<uint8_t> writing_;  // empty, or used by the writer
  bool ending_ = false;
  bool flushing_ = false;
  bool waited_ = false;  // for space, without success
};

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_BUFFERED_FILE_H_
