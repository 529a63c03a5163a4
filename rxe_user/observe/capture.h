// The packets of this process in a pcap file: one RoCEv2 packet a record, in
// both directions, as it is on the wire, also where the kernel handles several
// as one (docs/decode.md).
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

// Of any number of lanes, whose packets are in the order in which they came
// here. A thread of its own writes them: who gives a packet only copies it, and
// waits for a full buffer once for some ms. What has no room then is left out.
//
// The file's link type is LINKTYPE_LINUX_SLL, whose header says whether a
// packet was sent or received, and needs no Ethernet addresses.
class Capture final : public transport::PacketObserver {
 public:
  struct Limits {
    // Of each of two buffers: one is written while the other is filled.
    size_t buffer_bytes = 4 << 20;
    // How long a packet stays in a buffer that does not get full.
    std::chrono::milliseconds flush_after{200};
    // How long the first packet that has no room waits for some.
    std::chrono::milliseconds longest_wait{10};
  };

  // Begins a file: `name`, in which %p stands for the number of this process.
  // No file is overwritten: if there is one, it is NAME.PID, and a line on
  // stderr says so. A pipe or a character device is for one process. So that
  // nobody else gets the packets through a folder that others may write, a
  // named pipe of another user, what a link of another user leads to, and a
  // block device count as files that are there. Null if that fails, after a
  // line on stderr.
  static std::unique_ptr<Capture> Begin(const std::string& name,
                                        const Limits& limits);
  static std::unique_ptr<Capture> Begin(const std::string& name) {
    return Begin(name, Limits());
  }
  // Writes what there is, and ends the thread.
  ~Capture() override;

  // Thread: any.
  void OnPacket(const transport::ObservedPacket& packet) override;

  // Returns when what came before is written, or after `patience`.
  void Flush(std::chrono::milliseconds patience);

  // Packets that had no room.
  uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

  // --- fork. Nothing more is written by the child, in which this is not to be
  // destroyed.
  void LockForFork() { mutex_.lock(); }
  void UnlockInParent() { mutex_.unlock(); }
  void AbandonInChild();

 private:
  Capture(std::string path, UniqueFd fd, bool is_file, const Limits& limits);
  bool StartWriter();
  void RunWriter();
  // False: nothing more can be written, and a line has said so.
  bool WriteAll(const std::vector<uint8_t>& bytes);
  // Lock held. Whether `bytes` have room, by now or soon.
  bool HasRoom(size_t bytes, std::unique_lock<std::mutex>* lock);

  const std::string path_;
  const bool is_file_;  // and not a pipe, say
  const Limits limits_;
  UniqueFd fd_;
  off_t good_bytes_ = 0;  // of whole records; the writer's own
  pthread_t writer_{};
  std::atomic<bool> failed_ = false;
  std::atomic<uint64_t> missed_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable filled_;
  std::condition_variable written_;
  std::vector<uint8_t> filling_;
  std::vector<uint8_t> writing_;  // empty, or the writer's
  bool ending_ = false;
  bool flushing_ = false;
  bool waited_ = false;  // for room, in vain
};

// The capture that RXE_USER_CAPTURE asks for (its value is Capture::Begin's
// name), begun by the first call; null without the variable, in a secure
// program, and if it could not be begun. The same for ever; a child of fork has
// one of its own. It is complete when the process has ended by exit(). Thread:
// any.
transport::PacketObserver* ProcessCapture();

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_CAPTURE_H_
