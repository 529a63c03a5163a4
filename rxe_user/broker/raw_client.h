// A client that writes the broker's protocol by hand, to test messages that the
// library would never send.
#ifndef RXE_USER_BROKER_RAW_CLIENT_H_
#define RXE_USER_BROKER_RAW_CLIENT_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/message.h"
#include "rxe_user/broker/udp.h"
#include "rxe_user/testing/descriptors.h"

namespace rxe_user::broker {

// A connection to the broker without the library.
class RawClient {
 public:
  RawClient() : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const SocketAddress name = BrokerAddress();
    connected_ = connect(fd_.get(), name.get(), name.size) == 0;
  }
  bool connected() const { return connected_; }

  void SendHello(uint16_t slot, int ledger) {
    Hello hello;
    hello.slot = slot;
    Send(fd_.get(), hello, {ledger});
  }
  // Returns the slot; 0 if refused, see refusal().
  uint16_t Greet(uint16_t slot = 0, int ledger = -1) {
    SendHello(slot, ledger);
    Message message;
    const auto reply = Next<HelloReply>(message);
    if (!reply.has_value()) return 0;
    refusal_ = reply->refusal;
    ledger_ = message.TakeFd(0);
    return static_cast<uint16_t>(reply->slot);
  }
  Refusal refusal() const { return refusal_; }
  // The broker's text for OpenAddress.
  const std::string& refusal_text() const { return refusal_text_; }
  int ledger() const { return ledger_.get(); }
  void CloseLedger() { ledger_.Reset(); }

  UniqueFd OpenAddress(const LocalAddress& address) {
    Open open;
    open.address = address;
    Send(fd_.get(), open);
    Message message;
    const auto reply = Next<OpenReply>(message);
    refusal_ = reply.has_value() ? reply->refusal : Refusal::kOther;
    refusal_text_ = reply.has_value() ? reply->text.text : "no answer";
    return message.TakeFd(0);
  }

  // The reason of the refusal; kOther if there is no reply.
  Refusal ReserveService(uint32_t token, const Service& service) {
    Reserve reserve;
    reserve.token = token;
    reserve.sequence = 1;
    reserve.service = service;
    Send(fd_.get(), reserve);
    Message message;
    const auto reply = Next<ReserveReply>(message);
    return reply.has_value() ? reply->refusal : Refusal::kOther;
  }
  // Whether there is a reply. The broker has then processed all earlier
  // messages.
  bool UnreserveService(uint32_t token) {
    Unreserve unreserve;
    unreserve.token = token;
    unreserve.sequence = 1;
    // Not Send, which does not wait for space in the broker's queue.
    const std::span<const uint8_t> bytes(
        reinterpret_cast<const uint8_t*>(&unreserve), sizeof(unreserve));
    Message message;
    return SendRaw(bytes, {}) && Next<ReserveReply>(message).has_value();
  }
  void SendStray(const StrayHead& head, std::span<const uint8_t> bytes) {
    broker::SendStray(fd_.get(), head, bytes);
  }

  void HandBack(const LocalAddress& address, int socket, int anchor = -1) {
    Restore restore;
    restore.address = address;
    Send(fd_.get(), restore, {socket, anchor});
  }
  void EndOfHandingBack() { Send(fd_.get(), RestoreEnd{}); }
  // Sends any bytes with any number of descriptors. False if not sent.
  bool SendRaw(std::span<const uint8_t> bytes, const std::vector<int>& fds) {
    return SendWithDescriptors(fd_.get(), bytes, fds);
  }
  // From now on the broker cannot write to this client.
  void StopReading() { shutdown(fd_.get(), SHUT_RD); }
  bool Closed() {
    Message message;
    return Await(fd_.get(), MonotonicMs() + kPatienceMs, message) ==
           Message::Outcome::kClosed;
  }
  void HangUp() { fd_.Reset(); }

 private:
  static constexpr int kPatienceMs = 60'000;

  template <typename T>
  std::optional<T> Next(Message& message) {
    if (Await(fd_.get(), MonotonicMs() + kPatienceMs, message) !=
        Message::Outcome::kMessage) {
      return std::nullopt;
    }
    return message.As<T>();
  }

  UniqueFd fd_;
  bool connected_ = false;
  Refusal refusal_ = Refusal::kNone;
  std::string refusal_text_;
  UniqueFd ledger_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_RAW_CLIENT_H_
