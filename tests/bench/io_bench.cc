// Measures one method of I/O (io_ways.h) and prints JSON. io_table runs several
// in turns and compares them.
//
//   --mode latency    ping-pong of one datagram. The active end spins on plain
//                     calls, the other waits by --receive; with --spin both
//                     ends spin on --receive
//   --mode burst      one thread sends --count datagrams to itself and receives
//                     them by --receive
//   --mode bandwidth  one process sends by --send, one receives by --receive,
//                     and both copy and compute the CRC. With --sink there is
//                     no receiver: the interface discards everything
#include <isa-l/crc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/io_ways.h"
#include "tests/bench/reference.h"

namespace {

using io_ways::Arrival;
using io_ways::kBuffers;
using reference::Die;
using reference::Now;
using reference::OpenUdp;
using reference::UdpSocket;

// Bytes of memory that receives the payload.
constexpr size_t kTarget = 1 << 20;
constexpr size_t kCrc = 4;       // bytes at the end of each datagram
constexpr double kWarmUp = 0.1;  // seconds
// A datagram that takes longer was lost.
constexpr double kLost = 0.01;

struct Options {
  std::string mode = "latency";
  std::string receive = "recvmsg";
  std::string send = "sendmsg";
  std::string address = "127.0.0.1";  // of the receiver
  std::string netns;
  std::string peer_address;  // of the sender, or of the active end
  std::string peer_netns;
  bool spin = false;
  double linger_us = 0;  // how long a receiver polls before it waits
  bool sink = false;
  int iterations = 20000;
  size_t size = 80;  // bytes of a datagram
  size_t count = 1;  // datagrams in a burst or a segmented send
  size_t window = 480 << 10;
  double seconds = 1;
};

// Data that the two processes share.
struct Shared {
  alignas(64) std::atomic<uint64_t> received{0};  // bytes
  alignas(64) std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint64_t> sends{0};
  std::atomic<double> cpu_s{0};  // the child's
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> copied{0};
};

// CPU seconds of this process.
double CpuTime() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) +
           static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// A datagram of zeros to `to`.
struct Datagram {
  Datagram(const reference::Address& to, size_t bytes)
      : address(to), data(bytes), vector{data.data(), data.size()} {
    header.msg_name = &address.at;
    header.msg_namelen = address.length;
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
  }
  Datagram(const Datagram&) = delete;
  reference::Address address;
  std::vector<uint8_t> data;
  iovec vector;
  msghdr header{};
};

void ReceiveOne(io_ways::Receiver& receiver, bool wait) {
  while (receiver.Receive(wait).empty()) {
  }
}

// Does not return: data that a polling kernel thread has not sent yet would be
// lost when the process ends.
[[noreturn]] void Answer(const Options& o, const UdpSocket& mine,
                         const UdpSocket& peer, int total, Shared* shared) {
  const auto receiver = io_ways::MakeReceiver(o.receive, mine.fd);
  const Datagram answer(peer.address, o.size);
  const double before = CpuTime();
  for (int i = 0; i < total; ++i) {
    ReceiveOne(*receiver, !o.spin);
    if (i + 1 == total) {
      shared->cpu_s = CpuTime() - before;
      shared->calls = receiver->calls();
    }
    receiver->Send(answer.header);
  }
  // Submits requests that are sent with the next call.
  (void)receiver->Receive(false);
  for (;;) pause();
}

nlohmann::json Latency(const Options& o) {
  auto* shared = new (reference::SharedMemory(sizeof(Shared))) Shared;
  const UdpSocket a = OpenUdp(o.peer_address, o.peer_netns, true);
  const UdpSocket b = OpenUdp(o.address, o.netns, true);
  const int total = o.iterations + o.iterations / 10;
  const pid_t child = reference::ForkChild();
  if (child == 0) Answer(o, b, a, total, shared);
  const auto receiver =
      io_ways::MakeReceiver(o.spin ? o.receive : "recvmsg", a.fd);
  const Datagram ask(b.address, o.size);
  std::vector<double> half;
  for (int i = 0; i < total; ++i) {
    const double start = Now();
    receiver->Send(ask.header);
    ReceiveOne(*receiver, false);
    if (i >= o.iterations / 10) half.push_back((Now() - start) * 1e6 / 2);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return {{"half_round_trip_us", reference::Percentiles(std::move(half))},
          {"cpu_us", shared->cpu_s * 1e6 / total},
          {"calls", static_cast<double>(shared->calls) / total}};
}

nlohmann::json Burst(const Options& o) {
  const UdpSocket s = OpenUdp(o.address, o.netns, false);
  const UdpSocket from = OpenUdp(o.address, o.netns, false);
  const auto receiver = io_ways::MakeReceiver(o.receive, s.fd);
  (void)receiver->Receive(false);  // arms the receives
  const Datagram datagram(s.address, o.size);
  std::array<mmsghdr, kBuffers> messages{};
  for (mmsghdr& m : messages) m.msg_hdr = datagram.header;
  std::vector<double> all;
  std::vector<double> receive;
  for (int i = 0; i < o.iterations; ++i) {
    const double start = Now();
    const int sent =
        sendmmsg(from.fd, messages.data(), static_cast<unsigned>(o.count), 0);
    if (sent != static_cast<int>(o.count)) Die("sendmmsg");
    const double middle = Now();
    for (size_t got = 0; got < o.count;) {
      got += receiver->Receive(false).size();
    }
    const double end = Now();
    all.push_back((end - start) * 1e6);
    receive.push_back((end - middle) * 1e6);
  }
  const auto median = [](std::vector<double>& us) {
    std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
    return us[us.size() / 2];
  };
  return {{"burst_us", median(all)},
          {"receive_us", median(receive)},
          {"calls", static_cast<double>(receiver->calls()) / o.iterations}};
}

// Waits until `bytes` more fit into the window. Returns false at the end of the
// run.
bool AwaitWindow(const Options& o, size_t bytes, uint64_t* sent,
                 Shared* shared) {
  double last_progress = Now();
  uint64_t last_received = shared->received;
  for (;;) {
    if (shared->stop.load(std::memory_order_relaxed)) return false;
    const uint64_t received = shared->received.load(std::memory_order_relaxed);
    if (o.sink || *sent - received + bytes <= o.window) return true;
    if (received != last_received) {
      last_received = received;
      last_progress = Now();
    } else if (Now() - last_progress > kLost) {
      *sent = received;
    }
  }
}

void SendLoop(const Options& o, const UdpSocket& from,
              const reference::Address& to, Shared* shared) {
  const auto sender = io_ways::MakeSender(o.send, from.fd, to);
  const uint8_t* const source = reference::SharedMemory(kTarget + o.size);
  const size_t bytes = o.size * o.count;
  uint64_t sent = 0;
  size_t at = 0;
  const double begin = Now();
  const double before = CpuTime();
  while (AwaitWindow(o, bytes, &sent, shared)) {
    uint8_t* const buffer = sender->Buffer();
    for (size_t i = 0; i < o.count; ++i) {
      uint8_t* const datagram = buffer + i * o.size;
      std::memcpy(datagram, source + at, o.size - kCrc);
      at = (at + o.size) % kTarget;
      const uint32_t crc = crc32_gzip_refl(0, datagram, o.size - kCrc);
      std::memcpy(datagram + o.size - kCrc, &crc, sizeof(crc));
    }
    sender->Send(bytes, o.size);
    sent += bytes;
    shared->sends.fetch_add(1, std::memory_order_relaxed);
    if (o.sink && Now() - begin >= o.seconds) break;
  }
  shared->cpu_s = CpuTime() - before;
  shared->calls = sender->calls();
  shared->copied = sender->copied();
}

// Copies complete datagrams to `target` and returns their bytes.
uint64_t TakeIn(const Arrival& arrival, uint8_t* target, size_t* at) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < arrival.bytes; i += arrival.segment) {
    const size_t size = std::min(arrival.segment, arrival.bytes - i);
    const size_t data = size - kCrc;
    uint32_t crc;
    std::memcpy(&crc, arrival.data + i + data, sizeof(crc));
    if (crc != crc32_gzip_refl(0, arrival.data + i, data)) continue;
    std::memcpy(target + *at, arrival.data + i, data);
    *at = (*at + data) % kTarget;
    bytes += size;
  }
  return bytes;
}

// Returns the seconds in which the bytes were received, without the warm-up.
double ReceiveLoop(const Options& o, const UdpSocket& s, Shared* shared,
                   uint64_t* bytes, uint64_t* calls) {
  const auto receiver = io_ways::MakeReceiver(o.receive, s.fd);
  uint8_t* const target = reference::SharedMemory(kTarget + (64 << 10));
  size_t at = 0;
  const double warm = Now() + kWarmUp;
  double start = 0;
  uint64_t base = 0;
  double last = 0;
  for (double now = Now();; now = Now()) {
    const bool wait = !o.spin && now - last >= o.linger_us * 1e-6;
    for (const Arrival& arrival : receiver->Receive(wait)) {
      shared->received.fetch_add(TakeIn(arrival, target, &at),
                                 std::memory_order_relaxed);
      last = now;
    }
    if (start == 0) {
      if (now < warm) continue;
      start = now;
      base = shared->received;
    } else if (now - start >= o.seconds) {
      shared->stop = true;
      *bytes = shared->received - base;
      *calls = receiver->calls();
      return now - start;
    }
  }
}

nlohmann::json Bandwidth(const Options& o) {
  auto* shared = new (reference::SharedMemory(sizeof(Shared))) Shared;
  UdpSocket to;
  if (o.sink) {  // any address behind the interface
    to.address = reference::Parse(o.address);
    to.address.at.v4.sin_port = htons(4791);
  } else {
    to = OpenUdp(o.address, o.netns, true);
  }
  const pid_t child = reference::ForkChild();
  if (child == 0) {
    SendLoop(o, OpenUdp(o.peer_address, o.peer_netns, false), to.address,
             shared);
    _exit(0);
  }
  const double before = CpuTime();
  uint64_t bytes = 0;
  uint64_t calls = 0;
  double took = o.seconds;
  if (!o.sink) took = ReceiveLoop(o, to, shared, &bytes, &calls);
  const double cpu_s = CpuTime() - before;
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
  const auto sends = static_cast<double>(shared->sends);
  if (o.sink) bytes = shared->sends * o.size * o.count;
  return {{"gbit_per_s", static_cast<double>(bytes) * 8e-9 / took},
          {"send_cpu_us", shared->cpu_s * 1e6 / sends},
          {"send_calls", static_cast<double>(shared->calls) / sends},
          {"copied", static_cast<double>(shared->copied) / sends},
          {"receive_cpu_us", cpu_s * 1e6 / sends},
          {"receive_calls", static_cast<double>(calls) / sends}};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  bool json = true;
  CLI::App app("Ways to do I/O by UDP: one figure");
  app.add_option("--mode", o.mode)
      ->check(CLI::IsMember({"latency", "burst", "bandwidth"}));
  app.add_option("--receive", o.receive)
      ->check(CLI::IsMember(io_ways::ReceiverWays()));
  app.add_option("--send", o.send)->check(CLI::IsMember(io_ways::SenderWays()));
  app.add_option("--address", o.address, "of the receiver");
  app.add_option("--netns", o.netns, "network namespace of the receiver");
  app.add_option("--peer-address", o.peer_address,
                 "of the sender; the same unless given");
  app.add_option("--peer-netns", o.peer_netns,
                 "network namespace of the sender");
  app.add_flag("--spin", o.spin, "who receives does not wait");
  app.add_option("--linger-us", o.linger_us,
                 "who receives looks for so long before it waits");
  app.add_flag("--sink", o.sink, "nobody receives");
  app.add_option("--iterations", o.iterations)->check(CLI::Range(10, 1 << 24));
  app.add_option("--size", o.size, "bytes of a datagram")
      ->check(CLI::Range(size_t{8}, size_t{9000}));
  app.add_option("--count", o.count, "datagrams in a burst")
      ->check(CLI::Range(1, 128));
  app.add_option("--seconds", o.seconds);
  app.add_flag("--json", json, "what it prints in any case");
  CLI11_PARSE(app, argc, argv);
  if (o.peer_address.empty()) o.peer_address = o.address;
  if ((o.mode == "burst" && o.count > kBuffers) || o.size * o.count > 65507) {
    std::fprintf(stderr, "io_bench: --count is too large\n");
    return 2;
  }
  const nlohmann::json out = o.mode == "latency" ? Latency(o)
                             : o.mode == "burst" ? Burst(o)
                                                 : Bandwidth(o);
  std::printf("%s\n", out.dump().c_str());
}
