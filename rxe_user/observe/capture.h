// Writes the packets of this process to a pcap file (docs/decode.md). A record
// is one RoCEv2 packet as on the wire, in either direction, also where GRO or
// segmentation merges several.
#ifndef RXE_USER_OBSERVE_CAPTURE_H_
#define RXE_USER_OBSERVE_CAPTURE_H_

#include <pthread.h>
#include <sys/types.h>

#include <array>
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
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

// Captures the packets of any number of lanes, in the order in which they
// arrive here. A thread writes them to the file. The caller only copies a
// packet; at a full buffer it waits once, for some ms. Packets that still do
// not fit are dropped.
//
// The file's link type is LINKTYPE_LINUX_SLL: its header has the direction of
// the packet and needs no Ethernet addresses.
class Capture final : public transport::PacketObserver {
 public:
  struct Limits {
    // Size of each of two buffers: one is filled while the other is written.
    size_t buffer_bytes = 4 << 20;
    // How long a packet stays in a buffer that does not fill up.
    std::chrono::milliseconds flush_after{200};
    // How long the first packet that does not fit waits.
    std::chrono::milliseconds longest_wait{10};
  };

  // Starts a capture in file `name`, in which %p stands for the process ID.
  // Never overwrites a file: if it exists, the file is NAME.PID, and a line on
  // stderr says so. A pipe or character device serves one process. Treated as
  // existing files, so that no other user gets the packets through a folder
  // that others may write: another user's named pipe, the target of another
  // user's link, and a block device. Null on failure, after a line on stderr.
  static std::unique_ptr<Capture> Begin(const std::string& name,
                                        const Limits& limits);
  static std::unique_ptr<Capture> Begin(const std::string& name) {
    return Begin(name, Limits());
  }
  // Writes what is buffered, and ends the thread.
  ~Capture() override;

  // Thread: any.
  void OnPacket(const transport::ObservedPacket& packet) override;

  // Returns when earlier packets are written, or after `patience`.
  void Flush(std::chrono::milliseconds patience);

  // Packets that were dropped.
  uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

  // --- fork. The child writes nothing more, and must not destroy this.
  void LockForFork() { mutex_.lock(); }
  void UnlockInParent() { mutex_.unlock(); }
  void AbandonInChild();

 private:
  Capture(std::string path, UniqueFd fd, bool is_file, const Limits& limits);
  bool StartWriter();
  void RunWriter();
  // False: writing has failed for good, and a line on stderr says so.
  bool WriteAll(const std::vector<uint8_t>& bytes);
  // Lock held. Whether `bytes` fit, now or soon.
  bool HasRoom(size_t bytes, std::unique_lock<std::mutex>* lock);

  const std::string path_;
  const bool is_file_;  // not a pipe or device
  const Limits limits_;
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

// The capture of RXE_USER_CAPTURE (its value is the name for Capture::Begin),
// started by the first call. Null without the variable, in a secure program,
// and if it could not be started. Stays the same; a child of fork has its own.
// Complete after exit(). Thread: any.
transport::PacketObserver* ProcessCapture();

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_CAPTURE_H_
