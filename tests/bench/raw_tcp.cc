// Measures TCP on this machine, as a reference like raw_udp.
//
//   raw_tcp --mode bw        one process writes, one reads
//   raw_tcp --mode latency   ping-pong of small messages; both ends spin
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/reference.h"

namespace {

using reference::Die;
using reference::InNamespace;
using reference::Now;

struct Options {
  std::string mode = "bw";
  std::string address = "127.0.0.1";
  std::string netns;
  std::string peer_address;
  std::string peer_netns;
  size_t size = 1 << 20;  // bytes of a write, and of the reader's buffer
  double seconds = 1;
  int iterations = 20000;
  bool json = false;
};

// The two ends of one connection.
struct Connection {
  int here;
  int peer;
};

int Socket(const reference::Address& address, const std::string& netns) {
  const InNamespace there(netns);
  const int fd = socket(address.at.any.sa_family, SOCK_STREAM, 0);
  if (fd < 0) Die("socket");
  if (bind(fd, &address.at.any, address.length) != 0) Die("bind");
  return fd;
}

void NoDelay(int fd) {
  const int one = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
    Die("TCP_NODELAY");
  }
}

Connection Connect(const Options& o) {
  reference::Address address = reference::Parse(o.address);
  const int listener = Socket(address, o.netns);
  if (listen(listener, 1) != 0) Die("listen");
  if (getsockname(listener, &address.at.any, &address.length) != 0) {
    Die("getsockname");
  }
  Connection c;
  c.peer = Socket(reference::Parse(o.peer_address), o.peer_netns);
  if (connect(c.peer, &address.at.any, address.length) != 0) Die("connect");
  c.here = accept(listener, nullptr, nullptr);
  if (c.here < 0) Die("accept");
  close(listener);
  NoDelay(c.here);
  NoDelay(c.peer);
  return c;
}

void Bandwidth(const Options& o, nlohmann::json* out) {
  const Connection c = Connect(o);
  uint8_t* const buffer = reference::SharedMemory(o.size);
  const pid_t child = reference::ForkChild();
  if (child == 0) {
    close(c.here);
    // Until the reader has closed its end.
    while (send(c.peer, buffer, o.size, MSG_NOSIGNAL) >= 0 || errno == EINTR) {
    }
    _exit(0);
  }
  close(c.peer);
  uint8_t* const target = reference::SharedMemory(o.size);
  const double warm = Now() + 0.2;
  double start = 0;
  uint64_t total = 0, base = 0;
  for (;;) {
    const ssize_t n = recv(c.here, target, o.size, 0);
    if (n <= 0) Die("recv");
    total += static_cast<uint64_t>(n);
    const double now = Now();
    if (start == 0) {
      if (now < warm) continue;
      start = now;
      base = total;
    } else if (now - start >= o.seconds) {
      (*out)["gbit_per_s"] =
          static_cast<double>(total - base) * 8e-9 / (now - start);
      break;
    }
  }
  (*out)["payload_bytes"] = total;
  close(c.here);
  waitpid(child, nullptr, 0);
}

void SendAll(int fd, const uint8_t* bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    const ssize_t n = send(fd, bytes + at, size - at, MSG_NOSIGNAL);
    if (n < 0) Die("send");
    at += static_cast<size_t>(n);
  }
}

void ReceiveAll(int fd, uint8_t* bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    const ssize_t n = recv(fd, bytes + at, size - at, MSG_DONTWAIT);
    if (n == 0) std::exit(1);
    if (n < 0 && errno != EAGAIN && errno != EINTR) Die("recv");
    if (n > 0) at += static_cast<size_t>(n);
  }
}

void Latency(const Options& o, nlohmann::json* out) {
  const Connection c = Connect(o);
  std::vector<uint8_t> bytes(o.size);
  const int total = o.iterations + o.iterations / 10;
  const pid_t child = reference::ForkChild();
  if (child == 0) {
    for (int i = 0; i < total; ++i) {
      ReceiveAll(c.peer, bytes.data(), o.size);
      SendAll(c.peer, bytes.data(), o.size);
    }
    _exit(0);
  }
  std::vector<double> half;
  for (int i = 0; i < total; ++i) {
    const double start = Now();
    SendAll(c.here, bytes.data(), o.size);
    ReceiveAll(c.here, bytes.data(), o.size);
    if (i >= o.iterations / 10) half.push_back((Now() - start) * 1e6 / 2);
  }
  waitpid(child, nullptr, 0);
  (*out)["round_trips"] = total;
  (*out)["half_round_trip_us"] = reference::Percentiles(std::move(half));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("TCP over the kernel's path: a reference");
  app.add_option("--mode", o.mode)->check(CLI::IsMember({"bw", "latency"}));
  app.add_option("--address", o.address, "of the reader");
  app.add_option("--netns", o.netns, "network namespace of the reader");
  app.add_option("--peer-address", o.peer_address,
                 "of the writer; the same unless given");
  app.add_option("--peer-netns", o.peer_netns,
                 "network namespace of the writer");
  app.add_option("--size", o.size, "bytes of a write")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--seconds", o.seconds);
  app.add_option("--iterations", o.iterations)->check(CLI::Range(10, 1 << 24));
  app.add_flag("--json", o.json);
  CLI11_PARSE(app, argc, argv);
  if (o.peer_address.empty()) o.peer_address = o.address;

  nlohmann::json out = {{"mode", o.mode}, {"size", o.size}};
  if (o.mode == "bw") {
    Bandwidth(o, &out);
  } else {
    Latency(o, &out);
  }
  if (o.json) {
    std::puts(out.dump().c_str());
  } else if (o.mode == "bw") {
    std::printf("%.2f Gbit/s\n", out["gbit_per_s"].get<double>());
  } else {
    const auto& half = out["half_round_trip_us"];
    std::printf("half a round trip: min %.2f, p50 %.2f, p99 %.2f us\n",
                half["min"].get<double>(), half["p50"].get<double>(),
                half["p99"].get<double>());
  }
}
