// A libFuzzer target: two connected queue pairs in the simulated network, with
// traffic both ways and forged packets. The first byte selects the service and
// the options of the run; the other bytes are steps.
//
// Whatever is forged, and whatever the application does:
// - memory is only accessed within the regions that a key names, and never in
//   another protection domain;
// - a packet from another address than the peer's, or from another port once
//   the
//   port is known, changes nothing but one drop counter;
// - work requests complete once, in order, and none succeeds after an error;
// - no end gets more replies than it sends requests;
// - queue pairs in the error state are silent.
// If only others than the peer forge, all traffic arrives as it was sent.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/fuzz/endpoint_forger.h"
#include "tests/fuzz/endpoint_watch.h"
#include "tests/fuzz/fuzz_input.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/sim/pair.h"

namespace fuzz {
namespace {

using sim::Pair;
using transport::QpState;
using transport::Time;

constexpr size_t kBufferBytes = 32 * 1024;
// After the halves: receives, and words for atomics.
constexpr uint64_t kReceives = 2 * kHalf;
constexpr uint64_t kAtomics = kBufferBytes - 64;
const std::vector<uint8_t> kForbiddenBytes(4096, 0x77);
constexpr int kMaxSteps = 160;
constexpr uint64_t kMaxEvents = 20'000;  // of the network, in one run

struct Options {
  explicit Options(FuzzInput& input) {
    const uint8_t bits = input.Byte();
    pair.type = bits & 1 ? transport::QpType::kUc : transport::QpType::kRc;
    pair.srq = bits & 2;
    pair.path_mtu = bits & 4 ? 256 : 1024;
    outsider = bits & 8;
    pair.seed = bits >> 4;
    pair.buffer_bytes = kBufferBytes;
    pair.signal_all = true;
    pair.capacity = {.max_send_wr = 32,
                     .max_recv_wr = 32,
                     .max_send_sge = 2,
                     .max_recv_sge = 2,
                     .max_inline_data = 64};
    pair.max_rd_atomic = 4;
    pair.node.burst_bytes = 16 * 1024;
    if (bits & 16) pair.node.ip_id = sim::IpIdMode::kZero;
  }

  sim::PairOptions pair;
  bool outsider = false;  // only others than the peer forge
};

class Run {
 public:
  explicit Run(FuzzInput& input)
      : input_(input), options_(input), pair_(options_.pair) {
    for (Pair::Side* side : {&pair_.a, &pair_.b}) {
      // A region of another domain, and missing access rights.
      forbidden_bytes_.push_back(kForbiddenBytes);
      forbidden_.push_back(
          side->node->memory().Register(8, forbidden_bytes_.back().data(),
                                        0x600000000000, 4096, sim::kAllAccess));
      watches_.emplace_back(*side, Other(*side).attributes.av.source_port);
    }
    pair_.Connect();
    // So that each end knows the other's port.
    for (Pair::Side* side : {&pair_.a, &pair_.b}) {
      Watched(*side).NotePosted(
          side->Write(Watched(*side).NextWrId(), kHalf, kHalf, 8));
    }
    Advance(transport::kMillisecond);
    Check();
  }

  void Steps() {
    for (int i = 0; i < kMaxSteps && !input_.empty(); ++i) {
      Step();
      Check();
    }
  }

  void Finish() {
    if (options_.outsider) FinishUndisturbed();
    for (Pair::Side* side : {&pair_.a, &pair_.b}) side->Modify(QpState::kErr);
    SetLinks({});
    // Packets in flight arrive.
    pair_.net.RunTo(pair_.now() + transport::kSecond);
    const uint64_t before = pair_.net.events();
    pair_.net.RunTo(pair_.now() + 60 * transport::kSecond);
    Require(pair_.net.events() - before < 100, "busy in the error state");
    Check();
    for (Pair::Side* side : {&pair_.a, &pair_.b}) {
      Require(Watched(*side).AllCompleted(), "a request has not completed");
      // No packets beyond a gap stay buffered.
      Require(side->node->endpoint().arena_pool()->in_use() == 0,
              "packets are kept in the error state");
    }
  }

 private:
  Watch& Watched(const Pair::Side& side) { return watches_[&side == &pair_.b]; }
  const sim::Region& Forbidden(const Pair::Side& side) const {
    return forbidden_[&side == &pair_.b];
  }
  Pair::Side& AnySide() { return input_.Byte() & 1 ? pair_.b : pair_.a; }
  Pair::Side& Other(const Pair::Side& side) {
    return &side == &pair_.a ? pair_.b : pair_.a;
  }

  void Advance(Time time) {
    const uint64_t limit = pair_.net.events() + kMaxEvents;
    pair_.net.RunUntil([&] { return pair_.net.events() >= limit; },
                       pair_.now() + time);
    if (pair_.net.events() < limit) pair_.net.RunTo(pair_.now() + time);
  }

  void SetLinks(const sim::LinkProfile& profile) {
    pair_.net.link(*pair_.a.node, *pair_.b.node).profile = profile;
    pair_.net.link(*pair_.b.node, *pair_.a.node).profile = profile;
  }

  void Step() {
    const uint8_t step = input_.Byte() % 16;
    switch (step) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        return StepForge();
      case 6:
      case 7:
      case 8:
        return StepPost();
      case 9:
        return StepReceive();
      case 10:
      case 11:
        return Advance(Time{1} << input_.Below(18));  // up to 131 us
      case 12:
        // Beyond time-outs, but shorter than the silence after which a port may
        // change.
        return Advance(options_.outsider ? 5 * transport::kMillisecond
                                         : Time{1} << input_.Below(31));
      case 13:
        return StepLink();
      case 14:
        if (!options_.outsider) StepModify();
        return;
      case 15:
        if (!options_.outsider) StepMemory();
        return;
    }
  }

  void StepForge() {
    const uint8_t who = input_.Byte();
    Pair::Side& victim = who & 1 ? pair_.b : pair_.a;
    Watch& watch = Watched(victim);
    Sender sender = static_cast<Sender>((who >> 1) % 3);
    if (options_.outsider && sender != Sender::kElsewhere) {
      sender = watch.PortIsPinned(pair_.now()) ? Sender::kOtherPort
                                               : Sender::kElsewhere;
    }
    const ForgedBatch forged =
        Forge(input_, sender, victim, Other(victim), Forbidden(victim));
    const bool stranger =
        sender == Sender::kElsewhere ||
        (sender == Sender::kOtherPort && watch.PortIsPinned(pair_.now()));
    const Snapshot before(victim);
    victim.node->endpoint().OnGroBatch(forged.batch, pair_.now(), nullptr);
    watch.NoteReceived(before, stranger, pair_.now());
    pair_.net.Touch(*victim.node);
  }

  void StepPost() {
    Pair::Side& side = AnySide();
    Watch& watch = Watched(side);
    const uint8_t what = input_.Byte();
    uint32_t length = input_.Take<uint16_t>() % kHalf;
    const uint32_t offset = input_.Take<uint16_t>() % (kHalf - length);
    const uint64_t id = watch.NextWrId();
    const bool reliable = options_.pair.type == transport::QpType::kRc;
    int error = 0;
    switch (what % 6) {
      case 0:
      case 1:
        error = side.Write(id, kHalf + offset, offset, length);
        if (error == 0) watch.NoteWritten(offset, length);
        break;
      case 2:
        error = side.Read(id, offset, kHalf + offset, length);
        if (error == 0) Watched(Other(side)).NoteReadBy(offset, length);
        break;
      case 3:
        length %= 512;
        error = side.Send(id, kHalf + offset, length);
        break;
      case 4:
        error = side.FetchAdd(id, kAtomics + 8, kAtomics, 1);
        break;
      case 5:
        if (options_.outsider) return;
        // Beyond the region, at either end.
        error = side.Write(id, what & 0x80 ? kBufferBytes - 4 : 0,
                           what & 0x40 ? kBufferBytes - 4 : 0, length);
        break;
    }
    watch.NotePosted(error);
    Require(error == 0 || !reliable || error == ENOMEM || error == EINVAL,
            "an error that posting does not have");
  }

  void StepReceive() {
    Pair::Side& side = AnySide();
    Watch& watch = Watched(side);
    const uint32_t length =
        options_.outsider ? 512 : input_.Take<uint16_t>() % 1024;
    if (side.srq != nullptr && side.srq->size() > 64) return;
    watch.NoteReceivePosted(
        side.Receive(watch.NextReceiveId(), kReceives, length));
  }

  void StepLink() {
    sim::LinkProfile link;
    const uint8_t bits = input_.Byte();
    // Undisturbed traffic survives losses that retries can repair.
    const uint32_t chance =
        bits & 0x80 && !options_.outsider ? 500'000 : 50'000;
    if (bits & 1) link.loss = chance;
    if (bits & 2) link.duplicate = chance;
    if (bits & 4) link.reorder = chance;
    if (bits & 8) link.jitter = 20 * transport::kMicrosecond;
    link.down = (bits & 0x30) == 0x30 && !options_.outsider;
    if (bits & 0x40) {
      link.bytes_per_us = 1000;
      link.ecn_threshold = 4000;
    }
    SetLinks(link);
  }

  void StepModify() {
    Pair::Side& side = AnySide();
    switch (input_.Below(6)) {
      case 0:
        side.Modify(QpState::kErr);
        break;
      case 1:
        side.Modify(QpState::kSqd);
        break;
      case 2:
      case 3:
        side.Modify(QpState::kRts);
        break;
      case 4:
      case 5:
        side.Modify(QpState::kReset);
        Watched(side).OnReset();
        side.attributes.sq_psn = input_.Take<uint16_t>();
        if (input_.Byte() & 1) {
          side.attributes.rq_psn = Other(side).qp->Report().send_psn;
        }
        pair_.ToInit(side);
        pair_.ToRtr(side);
        if (input_.Byte() & 1) pair_.ToRts(side);
        break;
    }
    pair_.net.Touch(*side.node);
  }

  void StepMemory() {
    Pair::Side& side = AnySide();
    sim::SimMemory& memory = side.node->memory();
    switch (input_.Below(3)) {
      case 0:
        memory.AddFault(side.buffer.get() + input_.Take<uint16_t>() % kHalf,
                        64);
        break;
      case 1:
        memory.ClearFaults();
        break;
      case 2:
        memory.set_span_bytes(8 << input_.Below(9));
        break;
    }
  }

  // All posted messages arrive although others have forged.
  void FinishUndisturbed() {
    SetLinks({});
    const auto receive_all = [&] {
      for (Pair::Side* side : {&pair_.a, &pair_.b}) {
        Watch& watch = Watched(*side);
        for (int i = 0; i < 40 && watch.receives_left() < 40; ++i) {
          watch.NoteReceivePosted(
              side->Receive(watch.NextReceiveId(), kReceives, 512));
        }
      }
    };
    receive_all();
    const bool done = pair_.net.RunUntil(
        [&] {
          for (Watch& watch : watches_) watch.Check(pair_.now());
          return Watched(pair_.a).AllCompleted() &&
                 Watched(pair_.b).AllCompleted();
        },
        pair_.now() + 30 * transport::kSecond);
    Check();
    Require(done, "traffic was stopped by others");
    for (Pair::Side* side : {&pair_.a, &pair_.b}) {
      Require(side->qp->state() == QpState::kRts, "a connection was ended");
      Require(Watched(*side).errors() == 0, "a request was made to fail");
      if (options_.pair.type == transport::QpType::kRc) {
        Watched(*side).RequireWritten(Other(*side));
      }
    }
  }

  void Check() {
    for (Watch& watch : watches_) watch.Check(pair_.now());
    for (const std::vector<uint8_t>& bytes : forbidden_bytes_) {
      Require(bytes == kForbiddenBytes,
              "memory of another protection domain was written");
    }
    if (pair_.checker.failed()) Require(false, pair_.checker.ToString());
  }

  FuzzInput& input_;
  const Options options_;
  std::vector<std::vector<uint8_t>> forbidden_bytes_;
  Pair pair_;
  std::vector<sim::Region> forbidden_;
  std::vector<Watch> watches_;
};

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  const auto run = std::make_unique<fuzz::Run>(input);
  run->Steps();
  run->Finish();
  return 0;
}
