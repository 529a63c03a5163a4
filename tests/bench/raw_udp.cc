// Measures the UDP path of this machine without anything on top: the reference
// for our own figures in the same run.
//
//   raw_udp --mode bw        one process sends with UDP_SEGMENT, one receives
//                            with UDP_GRO; the bytes in flight are limited
//   raw_udp --mode latency   ping-pong of one small datagram
//
// `--work` adds what any RoCE engine must do: copy the payload and compute the
// CRC on both sides. `--message N` splits each N bytes like a WRITE
// (`--first-extra 16`: RETH) or a READ response (4 and `--last-extra 4`: AETH),
// because unequal sizes cost system calls. `--ack N` sends each ping together
// with a packet of N bytes, like a reply with its acknowledgement, and receives
// like an engine: with UDP_GRO and, over IPv4, the TOS.
#include <errno.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/reference.h"

namespace {

using reference::Die;
using reference::Now;
using reference::OpenUdp;
using reference::SocketAddress;
using reference::UdpSocket;
using reference::WriteSegmentSize;

constexpr size_t kHeader = 12;      // BTH
constexpr size_t kTrailer = 4;      // ICRC
constexpr size_t kMaxSend = 65507;  // bytes
// Bytes of memory that receives the payload.
constexpr size_t kTarget = 1 << 20;

struct Options {
  std::string mode = "bw";
  std::string address = "127.0.0.1";
  std::string netns;
  std::string peer_address;  // of the sender, or of the end that answers pings
  std::string peer_netns;
  std::string wait = "spin";
  std::string peer_wait;
  size_t mtu = 4096;       // payload bytes per packet
  size_t segments = 15;    // maximum packets per send
  size_t message = 0;      // bytes; 0 = a stream of equal packets
  size_t first_extra = 0;  // additional header bytes of the first packet
  size_t last_extra = 0;
  size_t window = 480 << 10;  // bytes in flight
  double seconds = 1;
  int iterations = 20000;
  size_t size = 64;  // bytes of a ping
  size_t ack = 0;    // bytes of the packet sent with it; 0: none
  bool work = false;
  bool json = false;
};

// Data that sender and receiver share.
struct Shared {
  alignas(64) std::atomic<uint64_t> received{0};  // payload bytes
  alignas(64) std::atomic<uint64_t> bad{0};
  alignas(64) std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> ready{0};
};

// One segmented send: packets of `size` bytes, the last one of `last` bytes.
struct Send {
  size_t size;
  size_t last;
  size_t packets;
  size_t payload;
  size_t bytes() const { return size * (packets - 1) + last; }
};

// The sends of one message.
std::vector<Send> Plan(const Options& o) {
  std::vector<std::pair<size_t, size_t>> packets;  // bytes, payload
  const size_t total = o.message != 0 ? o.message : o.mtu * o.segments;
  for (size_t at = 0; at < total; at += o.mtu) {
    const size_t payload = std::min(o.mtu, total - at);
    size_t bytes = kHeader + payload + kTrailer;
    if (at == 0) bytes += o.first_extra;
    if (at + payload == total) bytes += o.last_extra;
    packets.emplace_back(bytes, payload);
  }
  std::vector<Send> sends;
  bool open = false;
  for (const auto& [bytes, payload] : packets) {
    if (open && bytes <= sends.back().size &&
        sends.back().packets < o.segments &&
        sends.back().bytes() + bytes <= kMaxSend) {
      sends.back().last = bytes;
      ++sends.back().packets;
      sends.back().payload += payload;
    } else {
      sends.push_back({bytes, bytes, 1, payload});
    }
    open = sends.back().last == sends.back().size;
  }
  return sends;
}

void SendLoop(const Options& o, const UdpSocket& to, Shared* shared) {
  const UdpSocket s = OpenUdp(o.peer_address, o.peer_netns, false);
  uint8_t* const buffer = reference::SharedMemory(65536);
  const uint8_t* const source = reference::SharedMemory(kTarget + o.mtu);
  const std::vector<Send> sends = Plan(o);
  uint64_t sent = 0;
  size_t at = 0;
  double last_progress = Now();
  uint64_t last_received = 0;
  while (!shared->stop.load(std::memory_order_relaxed)) {
    for (const Send& send : sends) {
      while (sent - shared->received.load(std::memory_order_relaxed) +
                     send.payload >
                 o.window &&
             sent != shared->received.load(std::memory_order_relaxed)) {
        if (shared->stop.load(std::memory_order_relaxed)) std::exit(0);
        // Lost bytes no longer count as in flight.
        const uint64_t received = shared->received;
        if (received != last_received) {
          last_received = received;
          last_progress = Now();
        } else if (Now() - last_progress > 0.01) {
          sent = received;
        }
      }
      if (o.work) {
        for (size_t i = 0; i < send.packets; ++i) {
          uint8_t* packet = buffer + i * send.size;
          const size_t bytes = i + 1 == send.packets ? send.last : send.size;
          const size_t payload = bytes - kHeader - kTrailer;
          std::memcpy(packet + kHeader, source + at, payload);
          at = (at + payload) % kTarget;
          const uint32_t crc = crc32_gzip_refl(0, packet, bytes - kTrailer);
          std::memcpy(packet + bytes - kTrailer, &crc, sizeof(crc));
        }
      }
      iovec vector = {buffer, send.bytes()};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {};
      msghdr message{};
      message.msg_name = const_cast<sockaddr*>(&to.address.at.any);
      message.msg_namelen = to.address.length;
      message.msg_iov = &vector;
      message.msg_iovlen = 1;
      if (send.packets > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        WriteSegmentSize(send.size, &message);
      }
      if (sendmsg(s.fd, &message, 0) < 0) Die("sendmsg");
      sent += send.payload;
    }
  }
}

double ReceiveLoop(const Options& o, const UdpSocket& s, Shared* shared) {
  uint8_t* const buffer = reference::SharedMemory(65536);
  uint8_t* const target = reference::SharedMemory(kTarget + 65536);
  size_t at = 0;
  const double warm = Now() + 0.2;
  double start = 0;
  uint64_t base = 0;
  for (;;) {
    iovec vector = {buffer, 65536};
    alignas(cmsghdr) char control[256];
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const bool spin = o.wait == "spin";
    const ssize_t n = recvmsg(s.fd, &message, spin ? MSG_DONTWAIT : 0);
    if (n < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      Die("recvmsg");
    }
    size_t segment = static_cast<size_t>(n);
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr;
         h = CMSG_NXTHDR(&message, h)) {
      if (h->cmsg_level != IPPROTO_UDP || h->cmsg_type != UDP_GRO) continue;
      int size;
      std::memcpy(&size, CMSG_DATA(h), sizeof(size));
      segment = static_cast<size_t>(size);
    }
    uint64_t payload = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); i += segment) {
      const size_t bytes = std::min(segment, static_cast<size_t>(n) - i);
      const size_t data = std::min(bytes - kHeader - kTrailer, o.mtu);
      payload += data;
      if (!o.work) continue;
      uint32_t crc;
      std::memcpy(&crc, buffer + i + bytes - kTrailer, sizeof(crc));
      if (crc != crc32_gzip_refl(0, buffer + i, bytes - kTrailer)) {
        shared->bad.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      std::memcpy(target + at, buffer + i + bytes - kTrailer - data, data);
      at = (at + data) % kTarget;
    }
    shared->received.fetch_add(payload, std::memory_order_relaxed);
    const double now = Now();
    if (start == 0) {
      if (now < warm) continue;
      start = now;
      base = shared->received;
    } else if (now - start >= o.seconds) {
      const double gbit =
          static_cast<double>(shared->received - base) * 8e-9 / (now - start);
      shared->stop = true;
      return gbit;
    }
  }
}

void Bandwidth(const Options& o, nlohmann::json* out) {
  auto* shared = new (reference::SharedMemory(sizeof(Shared))) Shared;
  const UdpSocket s = OpenUdp(o.address, o.netns, true);
  const pid_t child = reference::ForkChild();
  if (child == 0) {
    SendLoop(o, s, shared);
    std::exit(0);
  }
  (*out)["gbit_per_s"] = ReceiveLoop(o, s, shared);
  (*out)["payload_bytes"] = shared->received.load();  // including the warm-up
  (*out)["bad_packets"] = shared->bad.load();
  waitpid(child, nullptr, 0);
}

// One end of the ping-pong. `wait`: spin on the socket, block in it, or spin on
// memory that a blocked thread writes (the passive end of a WRITE).
class Pinger {
 public:
  Pinger(const std::string& wait, size_t size, size_t ack,
         const UdpSocket& mine, const UdpSocket& peer)
      : wait_(wait), size_(size), ack_(ack), mine_(mine), peer_(peer) {
    const int one = 1;
    if (ack_ != 0)
      setsockopt(mine_.fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof(one));
    if (wait_ != "helper") return;
    std::thread([this] {
      uint8_t bytes[2048];
      for (;;) {
        if (recv(mine_.fd, bytes, sizeof(bytes), 0) >= 0) {
          arrived_.fetch_add(1, std::memory_order_release);
        }
      }
    }).detach();
  }
  void Send() {
    uint8_t bytes[2048] = {};
    if (ack_ != 0) {
      SendWithAck(bytes);
      return;
    }
    if (sendto(mine_.fd, bytes, size_, 0, &peer_.address.at.any,
               peer_.address.length) < 0) {
      Die("sendto");
    }
  }
  void Receive() {
    uint8_t bytes[2048];
    if (wait_ == "helper") {
      ++expected_;
      while (arrived_.load(std::memory_order_acquire) < expected_) {
      }
      return;
    }
    const int flags = wait_ == "spin" ? MSG_DONTWAIT : 0;
    if (ack_ != 0) {
      ReceiveWithAck(bytes, sizeof(bytes), flags);
      return;
    }
    while (recv(mine_.fd, bytes, sizeof(bytes), flags) < 0) {
      if (errno != EAGAIN && errno != EINTR) Die("recv");
    }
  }

 private:
  void SendWithAck(uint8_t* bytes) {
    iovec vector = {bytes, size_ + ack_};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {};
    SocketAddress to = peer_.address.at;
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = peer_.address.length;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    WriteSegmentSize(size_, &message);
    if (sendmsg(mine_.fd, &message, 0) < 0) Die("sendmsg");
  }
  // Both arrive in one call, or one after the other if they were not merged.
  void ReceiveWithAck(uint8_t* bytes, size_t room, int flags) {
    for (size_t received = 0; received < size_ + ack_;) {
      iovec vector = {bytes, room};
      alignas(cmsghdr) char control[128];
      SocketAddress from;
      msghdr message{};
      message.msg_name = &from;
      message.msg_namelen = sizeof(from);
      message.msg_iov = &vector;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      const ssize_t n = recvmsg(mine_.fd, &message, flags);
      if (n >= 0) {
        received += static_cast<size_t>(n);
      } else if (errno != EAGAIN && errno != EINTR) {
        Die("recvmsg");
      }
    }
  }

  const std::string wait_;
  const size_t size_;
  const size_t ack_;
  const UdpSocket mine_;
  const UdpSocket peer_;
  uint64_t expected_ = 0;
  std::atomic<uint64_t> arrived_{0};
};

void Latency(const Options& o, nlohmann::json* out) {
  const UdpSocket a = OpenUdp(o.address, o.netns, o.ack != 0);
  const UdpSocket b = OpenUdp(o.peer_address, o.peer_netns, o.ack != 0);
  const int total = o.iterations + o.iterations / 10;
  const pid_t child = reference::ForkChild();
  if (child == 0) {
    Pinger* pinger = new Pinger(o.peer_wait, o.size, o.ack, b, a);
    for (int i = 0; i < total; ++i) {
      pinger->Receive();
      pinger->Send();
    }
    _exit(0);
  }
  Pinger* pinger = new Pinger(o.wait, o.size, o.ack, a, b);
  std::vector<double> half;
  for (int i = 0; i < total; ++i) {
    const double start = Now();
    pinger->Send();
    pinger->Receive();
    if (i >= o.iterations / 10) half.push_back((Now() - start) * 1e6 / 2);
  }
  waitpid(child, nullptr, 0);
  (*out)["round_trips"] = total;
  (*out)["half_round_trip_us"] = reference::Percentiles(std::move(half));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Raw UDP over the kernel's path: a reference");
  app.add_option("--mode", o.mode)->check(CLI::IsMember({"bw", "latency"}));
  app.add_option("--address", o.address, "of the receiver");
  app.add_option("--netns", o.netns, "network namespace of the receiver");
  app.add_option("--peer-address", o.peer_address,
                 "of the sender; the same unless given");
  app.add_option("--peer-netns", o.peer_netns,
                 "network namespace of the sender");
  app.add_option("--wait", o.wait, "how the receiver waits")
      ->check(CLI::IsMember({"spin", "block", "helper"}));
  app.add_option("--peer-wait", o.peer_wait,
                 "how who answers a ping waits; the same unless given")
      ->check(CLI::IsMember({"spin", "block", "helper"}));
  app.add_option("--mtu", o.mtu, "payload bytes per packet")
      ->check(CLI::Range(1, 9000));
  app.add_option("--segments", o.segments, "packets per send, at most")
      ->check(CLI::Range(1, 128));
  app.add_option("--message", o.message, "bytes that are cut as one message");
  app.add_option("--first-extra", o.first_extra, "bytes");
  app.add_option("--last-extra", o.last_extra, "bytes");
  app.add_option("--window", o.window, "bytes in flight, at most");
  app.add_option("--seconds", o.seconds);
  app.add_option("--iterations", o.iterations)->check(CLI::Range(10, 1 << 24));
  app.add_option("--size", o.size, "bytes of a ping")
      ->check(CLI::Range(1, 2048));
  app.add_option("--ack", o.ack, "bytes of the packet beside each ping")
      ->check(CLI::Range(0, 2048));
  app.add_flag("--work", o.work, "copy and compute the CRC on both sides");
  app.add_flag("--json", o.json);
  CLI11_PARSE(app, argc, argv);
  if (o.peer_address.empty()) o.peer_address = o.address;
  if (o.peer_wait.empty()) o.peer_wait = o.wait;
  if (o.ack > o.size || (o.ack != 0 && o.size + o.ack > 2048) ||
      (o.ack != 0 && (o.wait == "helper" || o.peer_wait == "helper"))) {
    std::fprintf(
        stderr,
        "--ack takes at most --size, 2048 bytes with it, and no helpers\n");
    return 2;
  }
  while (o.segments > 1 &&
         o.segments * (o.mtu + kHeader + kTrailer + o.first_extra) > kMaxSend) {
    --o.segments;
  }

  nlohmann::json out = {{"mode", o.mode},           {"wait", o.wait},
                        {"peer_wait", o.peer_wait}, {"mtu", o.mtu},
                        {"segments", o.segments},   {"work", o.work}};
  if (o.mode == "bw") {
    Bandwidth(o, &out);
  } else {
    Latency(o, &out);
  }
  if (o.json) {
    std::puts(out.dump().c_str());
  } else if (o.mode == "bw") {
    std::printf("%.2f Gbit/s of payload\n", out["gbit_per_s"].get<double>());
  } else {
    const auto& half = out["half_round_trip_us"];
    std::printf("half a round trip: min %.2f, p50 %.2f, p99 %.2f us\n",
                half["min"].get<double>(), half["p50"].get<double>(),
                half["p99"].get<double>());
  }
}
