#include "tests/kernel_peer/verbs_pair/wire_up.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace verbs_pair {
namespace {

// Longer than any scenario of the peer.
constexpr timeval kPatience = {.tv_sec = 60, .tv_usec = 0};

}  // namespace

void Fail(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  throw Failure{text};
}

WireUp::WireUp(const char* server, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("socket: %s", std::strerror(errno));
  if (server == nullptr) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(fd, 1) != 0) {
      Fail("port %u: %s", port, std::strerror(errno));
    }
    socket_ = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
    close(fd);
  } else {
    if (inet_pton(AF_INET, server, &address.sin_addr) != 1) {
      Fail("not an IPv4 address: %s", server);
    }
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
        0) {
      Fail("connect to %s: %s", server, std::strerror(errno));
    }
    socket_ = fd;
  }
  if (socket_ < 0) Fail("accept: %s", std::strerror(errno));
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
}

WireUp::~WireUp() { close(socket_); }

void WireUp::Send(Kind kind, const std::string& text) {
  uint8_t head[5] = {static_cast<uint8_t>(kind)};
  const uint32_t size = htonl(static_cast<uint32_t>(text.size()));
  std::memcpy(head + 1, &size, sizeof(size));
  std::string frame(reinterpret_cast<char*>(head), sizeof(head));
  frame += text;
  if (send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(frame.size())) {
    Fail("the peer's connection: %s", std::strerror(errno));
  }
}

std::string WireUp::Receive(Kind* kind) {
  auto read = [this](void* to, size_t size) {
    if (size == 0) return;
    const ssize_t n = recv(socket_, to, size, MSG_WAITALL);
    if (n == static_cast<ssize_t>(size)) return;
    Fail("the peer's connection: %s", n < 0 ? std::strerror(errno) : "ended");
  };
  uint8_t head[5];
  read(head, sizeof(head));
  *kind = static_cast<Kind>(head[0]);
  uint32_t size;
  std::memcpy(&size, head + 1, sizeof(size));
  std::string text(ntohl(size), '\0');
  read(text.data(), text.size());
  return text;
}

std::string WireUp::Exchange(const std::string& mine) {
  Send(Kind::kData, mine);
  Kind kind;
  std::string text = Receive(&kind);
  if (kind == Kind::kData) return text;
  peer_verdict_ = text;
  Fail("the peer gave up: %s", text.c_str());
}

std::string WireUp::EndScenario(const std::string& verdict) {
  Send(Kind::kEnd, verdict);
  std::optional<std::string> text;
  text.swap(peer_verdict_);
  while (!text) {
    Kind kind;
    std::string received = Receive(&kind);
    if (kind == Kind::kEnd) text = std::move(received);
  }
  return *text;
}

}  // namespace verbs_pair
