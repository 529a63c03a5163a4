// One record of the broker protocol, with its descriptors.
#ifndef RXE_USER_BROKER_MESSAGE_H_
#define RXE_USER_BROKER_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/protocol.h"

namespace rxe_user::broker {

// A received record. Descriptors that are not taken are closed.
class Message {
 public:
  // The message as a T, if it has T's size and type, and our magic and version.
  template <typename T>
  std::optional<T> As() const {
    T t;
    if (size_ != sizeof(T)) return std::nullopt;
    std::memcpy(&t, bytes_.data(), sizeof(T));
    const Header expected = T{}.header;
    if (t.header.magic != kMagic || t.header.version != kProtocolVersion ||
        t.header.type != expected.type) {
      return std::nullopt;
    }
    return t;
  }
  // The header of any version. Absent if the record is too short or not of this
  // protocol.
  std::optional<Header> header() const;
  // A Stray. `bytes` points into the message.
  struct StrayView {
    StrayHead head;
    std::span<const uint8_t> bytes;
  };
  std::optional<StrayView> AsStray() const;

  // Descriptor i; invalid if there is none.
  UniqueFd TakeFd(int i) { return std::move(fds_[static_cast<size_t>(i)]); }
  std::array<UniqueFd, kMaxMessageFds>& fds() { return fds_; }
  // Some descriptors are missing: this process may not open more files, or
  // Receive refused them.
  bool lost_fds() const { return lost_fds_; }

  enum class Outcome { kMessage, kNothing, kClosed };
  // What to do with a record's descriptors. Refused ones are never opened in
  // this process.
  enum class Fds { kTake, kRefuse };
  // Reads one record without blocking. kClosed also stands for errors and for
  // records larger than any of ours.
  Outcome Receive(int socket, Fds fds = Fds::kTake);

 private:
  std::array<uint8_t, kMaxMessageBytes> bytes_;
  size_t size_ = 0;
  std::array<UniqueFd, kMaxMessageFds> fds_;
  bool lost_fds_ = false;
};

// Sends one record without blocking. False if it was not sent. Negative
// descriptors are left out.
bool SendRecord(int socket, std::span<const std::span<const uint8_t>> parts,
                std::initializer_list<int> fds = {});

template <typename T>
bool Send(int socket, const T& message, std::initializer_list<int> fds = {}) {
  const std::span<const uint8_t> part(
      reinterpret_cast<const uint8_t*>(&message), sizeof(message));
  return SendRecord(socket, {&part, 1}, fds);
}

// Sends a Stray, as Send.
bool SendStray(int socket, const StrayHead& head,
               std::span<const uint8_t> bytes);

// Truncates to fit.
Text MakeText(absl::string_view s);
// Up to the terminating zero, or the end.
absl::string_view TextOf(const Text& text);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_MESSAGE_H_
