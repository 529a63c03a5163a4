// A libFuzzer target: an XRC target, and requests of its peer for SRQs of two
// protection domains. The input is a list of steps.
//
// Whatever arrives, and whatever the application does:
// - a request only reaches memory of the protection domain of its SRQ, and
//   receives of that SRQ;
// - receives complete once, in order, and none succeeds after an error;
// - a removed SRQ is not accessed any more.

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/wire_peer.h"

namespace fuzz {
namespace {

using transport::FakeMemory;
using transport::PdId;
using transport::QpState;
using transport::WirePeer;

constexpr int kMaxSteps = 120;
constexpr size_t kBytes = 8 * 1024;  // of each region
constexpr uint32_t kNoSrq = 0x77;

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// An SRQ with its user's objects. `here`: it is in the domain.
struct User {
  User(uint32_t srqn, PdId pd) : srqn(srqn), pd(pd) {}

  const uint32_t srqn;
  const PdId pd;
  FakeMemory::Region* region = nullptr;
  transport::FakeSrq srq;
  transport::RecordingCq cq;
  uint64_t posted = 0;
  uint64_t completed = 0;
  bool here = true;
};

class Run final : private transport::XrcDomain {
 public:
  explicit Run(FuzzInput& input) : input_(input) {
    for (User* user : {&first_, &second_}) {
      user->region = &peer_.memory.Add(0x100000 * user->pd, kBytes, user->pd,
                                       WirePeer::kAllAccess);
    }
    transport::QpConfig config = peer_.qp->config();
    config.type = transport::QpType::kXrcTarget;
    config.pd = 0;
    config.send_cq = config.recv_cq = nullptr;
    config.xrc = this;
    peer_.qp.reset();
    peer_.qp = transport::MakeQueuePair(peer_.endpoint, config);
    BringUp();
  }
  ~Run() { peer_.qp.reset(); }

  void Steps() {
    for (int i = 0; i < kMaxSteps && !input_.empty(); ++i) {
      Step();
      for (User* user : {&first_, &second_}) TakeCompletions(*user);
    }
  }

 private:
  bool FindSrq(uint32_t srqn, transport::XrcSrq* out) override {
    for (User* user : {&first_, &second_}) {
      if (user->srqn != srqn || !user->here) continue;
      *out = {user->pd, &user->srq, &user->cq};
      return true;
    }
    return false;
  }

  void BringUp() {
    Require(transport::BringUp(*peer_.qp, peer_.attributes, peer_.now) == 0,
            "the target was not brought up");
  }
  User& AnyUser() { return input_.Byte() & 1 ? second_ : first_; }
  User& Other(const User& user) { return &user == &first_ ? second_ : first_; }

  void Step() {
    if (peer_.qp->state() == QpState::kErr && input_.Byte() & 3) {
      Modify(QpState::kReset);
    }
    switch (input_.Below(10)) {
      case 0:
        return StepPost();
      case 1:
        peer_.Transmit();
        return;
      case 2:
        peer_.now += transport::Time{1} << input_.Below(31);
        peer_.endpoint.OnTimer(peer_.now);
        return;
      case 3:
        return StepSrq();
      case 4:
        return StepModify();
      default:
        return StepRequest();
    }
  }

  void StepPost() {
    User& user = AnyUser();
    if (user.srq.queue.size() > 16) return;
    const uint32_t length = input_.Take<uint16_t>() % 1024;
    user.srq.queue.push_back(
        {user.posted++,
         user.pd,
         {{user.region->va + kBytes / 2, length, user.region->lkey}}});
  }

  // Adds or removes an SRQ. Its receives stay its user's.
  void StepSrq() {
    User& user = AnyUser();
    user.here = !user.here;
    if (user.here) return;
    peer_.qp->ForgetSrq(&user.srq);
    // A taken receive may be lost with the SRQ; the count continues after it.
    TakeCompletions(user);
    user.completed = user.posted - user.srq.queue.size();
  }

  void StepModify() {
    Modify(input_.Byte() & 3 ? QpState::kReset : QpState::kErr);
  }
  void Modify(QpState to) {
    transport::QpAttributes attributes = peer_.attributes;
    attributes.state = to;
    (void)peer_.qp->Modify(attributes, transport::kQpState, peer_.now);
    // A receive in use is lost.
    for (User* user : {&first_, &second_}) {
      TakeCompletions(*user);
      user->completed = user->posted - user->srq.queue.size();
    }
    if (to == QpState::kReset) BringUp();
  }

  void StepRequest() {
    User& named = AnyUser();
    User& other = Other(named);
    const uint8_t bits = input_.Byte();
    wire::Headers headers;
    headers.bth.opcode = static_cast<uint8_t>(
        wire::MakeOpcode(wire::Transport::kXrc, {}) | (input_.Byte() & 0x1f));
    headers.bth.dest_qpn = WirePeer::kQpn;
    headers.bth.ack_req = bits & 1;
    // Mostly the next PSN; otherwise an earlier one or one beyond a gap.
    uint32_t psn = peer_.qp->Report().expected_psn;
    if (bits & 2) psn += input_.Below(8) - 3;
    headers.bth.psn = psn & 0xffffff;
    headers.xrc_srqn = (bits & 0x0c) == 0x0c ? kNoSrq : named.srqn;
    const FakeMemory::Region& region =
        (bits & 0x30) == 0x30 ? *other.region : *named.region;
    const uint64_t va =
        region.va + (bits & 0x40 ? input_.Take<uint16_t>() : 8 * input_.Byte());
    // Mostly the length that the headers say.
    const wire::OpcodeInfo& info = wire::GetOpcodeInfo(headers.bth.opcode);
    uint32_t length = bits & 0x80 ? input_.Take<uint16_t>() % 2048u
                                  : input_.Byte() % WirePeer::kMtu;
    const bool last = info.ends_message || (bits & 0x80) != 0;
    const size_t payload = last ? length % 600 : WirePeer::kMtu;
    if (!last) length += WirePeer::kMtu;
    headers.reth = {va, region.rkey, length};
    headers.atomic = {va, region.rkey, 1, input_.Byte()};
    headers.invalidate_rkey = region.rkey;
    headers.bth.pad_count = wire::PadCount(payload);

    // Packets beyond a gap may be for the other SRQ, and a message continues on
    // the SRQ where it began.
    const bool alone =
        info.starts_message && peer_.endpoint.arena_pool()->in_use() == 0;
    const std::vector<uint8_t> before = other.region->bytes;
    const size_t receives = other.srq.queue.size();
    peer_.Deliver(headers, payload);
    if (!alone) return;
    Require(other.region->bytes == before,
            "memory of another protection domain was written");
    Require(other.srq.queue.size() == receives,
            "a receive of another SRQ was taken");
  }

  void TakeCompletions(User& user) {
    for (const transport::Completion& completion : user.cq.Take()) {
      Require(completion.wr_id < user.posted, "a receive that nobody posted");
      Require(completion.wr_id >= user.completed, "completed twice");
      user.completed = completion.wr_id + 1;
      Require(completion.qpn == WirePeer::kQpn, "of another queue pair");
      Require(completion.status != transport::WcStatus::kSuccess ||
                  completion.byte_len <= kBytes,
              "longer than any receive");
    }
  }

  FuzzInput& input_;
  User first_{0x11, 21};
  User second_{0x123456, 22};
  WirePeer peer_;
};

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  std::make_unique<fuzz::Run>(input)->Steps();
  return 0;
}
