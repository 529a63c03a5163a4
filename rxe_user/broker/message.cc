#include "rxe_user/broker/message.h"

#include <algorithm>

#include "rxe_user/base/descriptor_message.h"

namespace rxe_user::broker {

static_assert(kMaxMessageFds <= kMaxDescriptors);

std::optional<Header> Message::header() const {
  Header h;
  if (size_ < sizeof(h)) return std::nullopt;
  std::memcpy(&h, bytes_.data(), sizeof(h));
  if (h.magic != kMagic) return std::nullopt;
  return h;
}

std::optional<Message::StrayView> Message::AsStray() const {
  StrayView v;
  if (size_ < sizeof(v.head)) return std::nullopt;
  std::memcpy(&v.head, bytes_.data(), sizeof(v.head));
  const Header& h = v.head.header;
  if (h.magic != kMagic || h.version != kProtocolVersion ||
      h.type != Type::kStray || v.head.length != size_ - sizeof(v.head)) {
    return std::nullopt;
  }
  v.bytes = std::span(bytes_).subspan(sizeof(v.head), v.head.length);
  return v;
}

Message::Outcome Message::Receive(int socket, Fds fds) {
  for (UniqueFd& fd : fds_) fd.Reset();
  size_ = 0;
  std::span<UniqueFd> taken = fds_;
  if (fds == Fds::kRefuse) taken = {};
  ReceivedMessage received;
  const Arrival arrival = ReceiveMessage(socket, bytes_, taken, &received);
  if (arrival == Arrival::kNothing) return Outcome::kNothing;
  if (arrival == Arrival::kClosed || received.truncated) {
    return Outcome::kClosed;
  }
  lost_fds_ = received.lost_descriptors;
  size_ = received.bytes;
  return Outcome::kMessage;
}

bool SendRecord(int socket, std::span<const std::span<const uint8_t>> parts,
                std::initializer_list<int> fds) {
  std::array<iovec, 2> iov;
  if (parts.size() > iov.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    iov[i] = {const_cast<uint8_t*>(parts[i].data()), parts[i].size()};
  }
  std::array<int, kMaxMessageFds> sent;
  size_t count = 0;
  for (int fd : fds) {
    if (fd >= 0 && count < sent.size()) sent[count++] = fd;
  }
  return SendMessage(socket, std::span(iov).first(parts.size()),
                     std::span(sent).first(count));
}

bool SendStray(int socket, const StrayHead& head,
               std::span<const uint8_t> bytes) {
  const std::span<const uint8_t> parts[] = {
      {reinterpret_cast<const uint8_t*>(&head), sizeof(head)}, bytes};
  return SendRecord(socket, parts);
}

Text MakeText(absl::string_view s) {
  Text t;
  const size_t n = std::min(s.size(), sizeof(t.text) - 1);
  std::memcpy(t.text, s.data(), n);
  t.text[n] = 0;
  return t;
}

absl::string_view TextOf(const Text& text) {
  return {text.text, strnlen(text.text, sizeof(text.text))};
}

}  // namespace rxe_user::broker
