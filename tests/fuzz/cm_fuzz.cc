// A libFuzzer target: the connection manager of one host on a virtual clock. It
// receives MADs of any content and is called in any order.
//
// Every event must be of an id that the application has. No message may get
// more answers than allowed. Deadlines must come to an end. Nothing may remain
// when the application has destroyed everything.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "transport/cm/connection_manager.h"
#include "wire/bytes.h"
#include "wire/cm.h"

namespace fuzz {
namespace {

using transport::kNever;
using transport::Time;
using transport::cm::CmId;
using transport::cm::ConnectionManager;
using transport::cm::Event;
using transport::cm::EventKind;
using transport::cm::Mad;

constexpr size_t kBacklog = 8;
constexpr size_t kHalfOpen = 16;
// The service ID of a MAD with zero content.
constexpr uint64_t kService = 0;
constexpr int kMaxSteps = 400;

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

class Random final : public transport::cm::RandomSource {
 public:
  uint32_t Next32() override { return ++last_; }

 private:
  uint32_t last_ = 0;
};

class Run {
 public:
  explicit Run(FuzzInput& input)
      : input_(input),
        manager_({.max_half_open = kHalfOpen, .max_half_open_for_peer = 12},
                 &random_) {
    manager_.Listen({.service_id = kService, .local = {}, .backlog = kBacklog},
                    &listener_);
  }

  void Steps() {
    for (int i = 0; i < kMaxSteps && !input_.empty(); ++i) {
      Step();
      Drain();
    }
  }

  void Finish() {
    manager_.StopListening(listener_);
    for (const CmId id : owned_) manager_.Destroy(id, now_);
    owned_.clear();
    // At most 16 messages are sent for each connection.
    for (int i = 0; manager_.NextTimeout() != kNever; ++i) {
      Require(i < 20 * kMaxSteps, "it does not end");
      now_ = std::max(now_, manager_.NextTimeout());
      manager_.OnTimer(now_);
      Drain();
    }
    Require(manager_.size() == 0, "something is left");
    Require(manager_.half_open() == 0, "half-open is counted wrongly");
  }

 private:
  wire::IpAddress Peer() {
    return wire::IpAddress::FromV4(0x0a000000u + input_.Below(3));
  }
  CmId AnyId() {
    return owned_.empty() ? input_.Byte()
                          : owned_[input_.Byte() % owned_.size()];
  }

  void Step() {
    const uint8_t step = input_.Byte();
    const CmId id = AnyId();
    switch (step % 16) {
      default:
        return Receive();
      case 5: {
        transport::cm::ConnectOptions options;
        options.remote = Peer();
        options.packet_life_time = input_.Byte();
        options.req.local_qpn = input_.Below(8);
        options.req.max_cm_retries = input_.Byte();
        options.req.remote_cm_response_timeout = input_.Byte();
        options.req.primary.local_ack_timeout = input_.Byte();
        CmId fresh = 0;
        if (manager_.Connect(options, now_, &fresh) ==
            transport::cm::Result::kOk) {
          owned_.push_back(fresh);
        }
        return;
      }
      case 6:
        (void)manager_.Accept(
            id, {.local_qpn = input_.Below(8), .local_ca_guid = 5}, now_);
        return;
      case 7:
        (void)manager_.Reject(id, {}, now_);
        return;
      case 8:
        (void)manager_.Delay(id, input_.Byte());
        return;
      case 9:
        (void)manager_.Establish(id, input_.Bytes(input_.Byte()));
        return;
      case 10:
        (void)manager_.NotifyEstablished(id);
        return;
      case 11:
        (void)manager_.Disconnect(id, input_.Bytes(input_.Byte()), now_);
        return;
      case 12:
        Require(manager_.Destroy(id, now_) == transport::cm::Result::kOk ||
                    owned_.empty(),
                "an id is lost");
        std::erase(owned_, id);
        return;
      case 13: {
        transport::cm::ResolveOptions options;
        options.remote = Peer();
        options.max_retries = input_.Below(16);
        options.req.service_id = kService;
        CmId fresh = 0;
        if (manager_.Resolve(options, now_, &fresh) ==
            transport::cm::Result::kOk) {
          owned_.push_back(fresh);
        }
        return;
      }
      case 14:
        (void)manager_.AnswerService(id, {.qpn = 3}, now_);
        return;
      case 15:
        now_ += Time{1} << input_.Below(40);
        manager_.OnTimer(now_);
        return;
    }
  }

  // Sent messages except our own requests, which may have waited for their turn
  // and are sent after the next received message.
  uint64_t Answers() const {
    const transport::cm::Counters& counters = manager_.counters();
    return counters.sent - counters.tx_msgs.Of(wire::CmAttribute::kReq) -
           counters.tx_msgs.Of(wire::CmAttribute::kSidrReq);
  }

  // A MAD of any content, mostly meaningful: class and attribute are those of
  // CM, communication IDs and queue pairs are small numbers or ours.
  void Receive() {
    Mad mad{};
    // The message after the header.
    const auto bytes = input_.Bytes(input_.Below(8) ? 0 : input_.Below(80));
    std::copy(bytes.begin(), bytes.end(), mad.begin() + 24);
    const uint8_t how = input_.Byte();
    if (how % 8 != 0) {
      wire::EmitMadHeader(
          {.management_class = wire::kMadClassCm,
           .class_version = wire::kCmClassVersion,
           .method = wire::kMadMethodSend,
           .transaction_id = input_.Byte(),
           .attribute_id = static_cast<uint16_t>(0x10 + input_.Below(11))},
          mad.data());
      // In a SIDR_REP the sender's own ID comes first.
      wire::StoreBe32(mad.data() + 24, how & 8 ? AnyId() : input_.Below(6));
      if (how % 8 > 1) wire::StoreBe32(mad.data() + 28, AnyId());
    }
    const uint64_t before = Answers();
    manager_.OnMad({.local = {}, .remote = Peer(), .bytes = mad}, now_);
    // At most two: the REJ of a stale connection and the DREQ for the old one,
    // or the message for a replaced connection.
    Require(Answers() <= before + 2, "one is answered by many");
  }

  void Drain() {
    transport::cm::OutgoingMad out;
    while (manager_.PollTransmit(&out)) {
      wire::CmView view;
      Require(wire::CmView::Parse(out.bytes, &view) == wire::CmParseError::kOk,
              "garbage is sent");
    }
    Event event;
    while (manager_.PollEvent(&event)) {
      if (event.kind == EventKind::kRequest ||
          event.kind == EventKind::kServiceRequest) {
        Require(event.listener == listener_, "of no listener");
        Require(
            std::find(owned_.begin(), owned_.end(), event.id) == owned_.end(),
            "an id is given out twice");
        owned_.push_back(event.id);
      } else {
        Require(
            std::find(owned_.begin(), owned_.end(), event.id) != owned_.end(),
            "an event of an id that is nobody's");
      }
    }
    Require(manager_.half_open() <= kHalfOpen, "half-open has no bound");
    for (const CmId id : owned_) {
      Require(manager_.state(id).has_value(), "an id is gone");
    }
  }

  FuzzInput& input_;
  Random random_;
  ConnectionManager manager_;
  transport::cm::ListenerId listener_ = 0;
  std::vector<CmId> owned_;
  Time now_ = 0;
};

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  fuzz::Run run(input);
  run.Steps();
  run.Finish();
  return 0;
}
