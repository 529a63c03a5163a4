// Measures what two processes can move through shared memory with two copies,
// as a reference: one copies messages into a ring, the other one out of it.
// Both spin. The ring is as large as the device's, and is filled in pieces as
// large as its bursts (rxe_user/ports/memory_ring.h).
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/reference.h"

namespace {

using reference::Now;

constexpr size_t kCapacity = 128 << 10;
constexpr size_t kPiece = 32 << 10;

struct Ring {
  alignas(128) std::atomic<uint64_t> tail;
  alignas(128) std::atomic<uint64_t> head;
  alignas(4096) uint8_t bytes[kCapacity];
};

// The next piece at `position` of messages of `size` bytes. A piece is within
// one message, and does not cross the ring's end.
size_t Piece(uint64_t position, size_t size) {
  return std::min(
      {kPiece, size - position % size, kCapacity - position % kCapacity});
}

[[noreturn]] void Write(Ring* ring, size_t size) {
  const std::vector<uint8_t> message(size, 1);
  for (uint64_t tail = 0;;) {
    const size_t piece = Piece(tail, size);
    while (tail + piece - ring->head.load(std::memory_order_acquire) >
           kCapacity) {
    }
    std::memcpy(ring->bytes + tail % kCapacity, message.data() + tail % size,
                piece);
    tail += piece;
    ring->tail.store(tail, std::memory_order_release);
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t size = 1 << 20;
  double seconds = 1;
  bool json = false;
  CLI::App app("Two copies through shared memory: a reference");
  app.add_option("--size", size, "bytes of a message")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--seconds", seconds);
  app.add_flag("--json", json);
  CLI11_PARSE(app, argc, argv);

  Ring* const ring = new (reference::SharedMemory(sizeof(Ring))) Ring;
  const pid_t child = reference::ForkChild();
  if (child == 0) Write(ring, size);
  std::vector<uint8_t> message(size, 2);
  const double warm = Now() + 0.2;
  double start = 0;
  uint64_t head = 0, base = 0;
  for (;;) {
    const size_t piece = Piece(head, size);
    while (ring->tail.load(std::memory_order_acquire) - head < piece) {
    }
    std::memcpy(message.data() + head % size, ring->bytes + head % kCapacity,
                piece);
    head += piece;
    ring->head.store(head, std::memory_order_release);
    const double now = Now();
    if (start == 0) {
      if (now < warm) continue;
      start = now;
      base = head;
    } else if (now - start >= seconds) {
      break;
    }
  }
  const double rate = static_cast<double>(head - base) * 8e-9 / (Now() - start);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (json) {
    const nlohmann::json out = {
        {"size", size}, {"gbit_per_s", rate}, {"payload_bytes", head}};
    std::puts(out.dump().c_str());
  } else {
    std::printf("%.2f Gbit/s\n", rate);
  }
}
