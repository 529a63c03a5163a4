// Methods to receive and send UDP datagrams: plain system calls, and those of
// io_uring. io_bench compares them.
#ifndef TESTS_BENCH_IO_WAYS_H_
#define TESTS_BENCH_IO_WAYS_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/reference.h"

namespace io_ways {

// The buffers of a receiver, each large enough for a GRO batch; the same number
// as in a port.
inline constexpr size_t kBuffers = 8;
inline constexpr size_t kBufferBytes = 65536;

struct Arrival {
  const uint8_t* data = nullptr;
  size_t bytes = 0;
  size_t segment = 0;  // bytes of each merged datagram except the last
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  // Returns up to kBuffers arrivals; waits for the first if `wait`. Valid until
  // the next call.
  virtual std::span<const Arrival> Receive(bool wait) = 0;
  // Sends at once, or together with the next Receive. `message` must stay valid
  // until that has returned.
  virtual void Send(const msghdr& message);
  uint64_t calls() const { return calls_; }  // system calls

 protected:
  explicit Receiver(int fd) : fd_(fd) {}
  const int fd_;
  uint64_t calls_ = 0;
};

// `way`:
//   recvmsg          one datagram a call; blocks in it
//   epoll-recvmsg    epoll_wait(2), then one
//   epoll-recvmmsg   epoll_wait(2), then up to kBuffers
//   epoll-ring       epoll_wait(2), then kBuffers receives by one
//                    io_uring_enter(2), executed inline
//   multishot        multishot recvmsg into provided buffers; a ring of one
//                    thread, which runs the kernel's part when it enters
//   multishot-send   the same, and sends go with the call that waits
//   multishot-shared multishot in a ring that several threads may use
//   sqpoll           multishot and sends, by a polling kernel thread
std::unique_ptr<Receiver> MakeReceiver(const std::string& way, int fd);
const std::vector<std::string>& ReceiverWays();

class Sender {
 public:
  virtual ~Sender() = default;
  // Waits for a free buffer of kBufferBytes.
  virtual uint8_t* Buffer() = 0;
  // Sends `bytes` of the buffer from the last call of Buffer, as datagrams of
  // `segment` bytes.
  virtual void Send(size_t bytes, size_t segment) = 0;
  uint64_t calls() const { return calls_; }  // system calls
  // Zero-copy sends that were copied.
  uint64_t copied() const { return copied_; }

 protected:
  uint64_t calls_ = 0;
  uint64_t copied_ = 0;
};

// `way`: sendmsg; ring (inline); zc, zc-registered (SENDMSG_ZC with registered
// buffers).
std::unique_ptr<Sender> MakeSender(const std::string& way, int fd,
                                   const reference::Address& to);
const std::vector<std::string>& SenderWays();

}  // namespace io_ways

#endif  // TESTS_BENCH_IO_WAYS_H_
