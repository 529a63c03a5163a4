// A libFuzzer target: a DC target and an initiator, whose packets are lost,
// repeated and changed, and connects that others send. The input is a list of
// steps.
//
// Whatever arrives, and whatever the applications do:
// - memory of another protection domain is neither written nor read;
// - a receive completes at most once;
// - work requests of the initiator complete in order, none with success after a
//   failure;
// - the connection of another initiator continues;
// - the number of every connection is given back.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "transport/testing/dc_hosts.h"
#include "wire/dc.h"

namespace fuzz {
namespace {

using transport::Completion;
using transport::DcDatagram;
using transport::DcHost;
using transport::QpState;
using transport::SendOpcode;
using transport::WcStatus;

constexpr int kMaxSteps = 150;
constexpr uint32_t kDct = 0x22;
constexpr uint32_t kDci = 0x11;
constexpr uint32_t kOtherDci = 0x12;
constexpr uint64_t kArea = 64 * 1024;  // bytes of the regions that are used

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

class Run {
 public:
  explicit Run(FuzzInput& input)
      : input_(input),
        forbidden_(&to_.memory.Add(0x4000000, 4096, DcHost::kPd + 1,
                                   transport::kAccessLocalWrite |
                                       transport::kAccessRemoteWrite |
                                       transport::kAccessRemoteRead)),
        dct_(to_.MakeDct(kDct, net_.now)),
        dci_(from_.MakeDci(kDci, net_.now)),
        other_(bystander_.MakeDci(kOtherDci, net_.now)) {
    forbidden_->bytes.assign(4096, kSecret);
    // Packets of the attacked initiator are lost at random.
    net_.lose = [this](const DcDatagram& packet) {
      const bool attacked =
          packet.source == from_.address || packet.destination == from_.address;
      return attacked && lossy_ && (input_.Byte() & 3) == 0;
    };
  }
  ~Run() {
    other_.reset();
    dci_.reset();
    dct_.reset();
    Require(to_.numbers.empty(), "a number was not given back");
    for (const uint8_t byte : forbidden_->bytes) {
      Require(byte == kSecret, "another protection domain was written");
    }
  }

  void Steps() {
    for (int i = 0; i < kMaxSteps && !input_.empty(); ++i) {
      Step();
      TakeCompletions();
    }
    lossy_ = false;
    UseOther();
  }

 private:
  static constexpr uint8_t kSecret = 0xee;

  void Step() {
    if (dci_->state() == QpState::kErr && input_.Byte() & 1) Restart();
    switch (input_.Below(12)) {
      case 0:
        to_.PostReceive(next_receive_++, kArea, 2048);
        return;
      case 1:
        net_.now += transport::Time{1} << input_.Below(32);
        for (size_t i = 0; i < 3; ++i) net_[i].endpoint.OnTimer(net_.now);
        Exchange();
        return;
      case 2:
        lossy_ = !lossy_;
        return;
      case 3:
        if (input_.Byte() & 1) Restart();
        return;
      case 4:
        return UseOther();
      case 5:
        return ForgeConnect();
      case 6:
      case 7:
        return Post();
      case 8:
        return Exchange();
      default:
        return ChangePacket();
    }
  }

  void Exchange() {
    net_.Exchange();
    if (net_.sent.size() > 64) {
      net_.sent.erase(net_.sent.begin(), net_.sent.end() - 32);
    }
  }

  void Post() {
    const uint8_t bits = input_.Byte();
    constexpr SendOpcode kOpcodes[] = {SendOpcode::kSend,
                                       SendOpcode::kRdmaWrite,
                                       SendOpcode::kRdmaRead,
                                       SendOpcode::kFetchAdd,
                                       SendOpcode::kCompareSwap,
                                       SendOpcode::kSendWithImm,
                                       SendOpcode::kRdmaWriteWithImm,
                                       SendOpcode::kSendWithInvalidate};
    transport::SendRequest request;
    request.opcode = kOpcodes[bits & 7];
    request.wr_id = posted_;
    request.flags = transport::kSendSignaled;
    const bool atomic = request.opcode == SendOpcode::kFetchAdd ||
                        request.opcode == SendOpcode::kCompareSwap;
    const uint32_t length = atomic ? 8 : input_.Take<uint16_t>() % 2048u;
    const transport::Sge sge = {from_.region->va, length, from_.region->lkey};
    request.sges = {&sge, 1};
    const bool wrong = (bits & 0x18) == 0x18;
    request.remote_addr = wrong ? forbidden_->va : to_.region->va;
    request.rkey = wrong ? forbidden_->rkey : to_.region->rkey;
    const transport::AddressVector av = from_.AddressOf(to_);
    request.ah = &av;
    request.remote_qpn = (bits & 0x60) == 0x60 ? input_.Byte() : kDct;
    request.dc_access_key =
        DcHost::kKey + ((bits & 0x80) != 0 && (input_.Byte() & 7) == 0);
    if (dci_->PostSend(request, net_.now) == 0) ++posted_;
    Exchange();
  }

  void Restart() {
    TakeCompletions();
    transport::QpAttributes reset;
    Require(dci_->Modify(reset, transport::kQpState, net_.now) == 0,
            "the initiator was not reset");
    TakeCompletions();
    DcHost::BringUp(*dci_, net_.now);
    completed_ = posted_;
    failed_ = false;
  }

  // Another initiator's message, which nothing may hinder.
  void UseOther() {
    const transport::Sge sge = {bystander_.region->va, 16,
                                bystander_.region->lkey};
    transport::SendRequest request;
    request.opcode = SendOpcode::kRdmaWrite;
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = to_.region->va + 2 * kArea;
    request.rkey = to_.region->rkey;
    const transport::AddressVector av = bystander_.AddressOf(to_);
    request.ah = &av;
    request.remote_qpn = kDct;
    request.dc_access_key = DcHost::kKey;
    Require(other_->PostSend(request, net_.now) == 0, "not posted");
    Exchange();
    const std::vector<Completion> done = bystander_.send_cq.Take();
    Require(done.size() == 1 && done[0].status == WcStatus::kSuccess,
            "another initiator was hindered");
  }

  void ForgeConnect() {
    const uint8_t bits = input_.Byte();
    DcDatagram connect;
    connect.bytes.resize(wire::kDcConnectSize);
    wire::EmitDcConnect(
        {.dest_qpn = (bits & 1) != 0 ? wire::kNoDcQpn : kDct,
         .psn = input_.Byte()},
        {.from_initiator = (bits & 2) == 0 || (input_.Byte() & 1) != 0,
         .src_qpn = (bits & 4) != 0 ? kDci : kOtherDci,
         .initiator_session = input_.Byte(),
         .responder_session = wire::kNoDcSession,
         .dct = kDct},
        {.access_key = DcHost::kKey + ((bits & 0x18) == 0x18)},
        connect.bytes.data());
    connect.source = (bits & 0x20) != 0 ? from_.address : bystander_.address;
    connect.destination = to_.address;
    connect.source_port = static_cast<uint16_t>(0xd000 + input_.Byte());
    net_.Deliver(connect);
    Exchange();
  }

  // A packet of the attacked initiator or of its target, changed or not.
  void ChangePacket() {
    if (net_.sent.empty()) return;
    DcDatagram packet =
        net_.sent[net_.sent.size() - 1 - input_.Byte() % net_.sent.size()];
    if (packet.source == bystander_.address ||
        packet.destination == bystander_.address) {
      return;
    }
    const uint8_t bits = input_.Byte();
    for (int i = bits & 3; i > 0; --i) {
      const size_t at = input_.Byte() % (packet.bytes.size() - wire::kIcrcSize);
      packet.bytes[at] =
          (bits & 4) != 0
              ? input_.Byte()
              : static_cast<uint8_t>(packet.bytes[at] + input_.Signed() % 4);
    }
    if ((bits & 0x18) == 0x18) {
      const size_t size = 16 + 4 * (input_.Byte() % 64u);
      packet.bytes.resize(size);
    }
    if ((bits & 0x60) == 0x60) packet.source_port ^= input_.Byte();
    net_.Deliver(packet);
    Exchange();
  }

  void TakeCompletions() {
    for (const Completion& completion : from_.send_cq.Take()) {
      Require(completion.wr_id >= completed_ && completion.wr_id < posted_,
              "a work request completed twice, or out of order");
      completed_ = completion.wr_id + 1;
      const bool succeeded = completion.status == WcStatus::kSuccess;
      Require(!failed_ || !succeeded, "a success after a failure");
      failed_ = failed_ || !succeeded;
    }
    for (const Completion& completion : to_.recv_cq.Take()) {
      Require(completion.wr_id < next_receive_, "a receive that nobody posted");
      Require(received_.insert(completion.wr_id).second,
              "a receive completed twice");
      Require(completion.qpn == kDct, "of another queue pair");
    }
    // A READ would place several of these bytes in a row.
    const auto& bytes = from_.region->bytes;
    for (size_t i = 0; i + 8 <= 2048; i += 8) {
      Require(!std::all_of(bytes.begin() + static_cast<ptrdiff_t>(i),
                           bytes.begin() + static_cast<ptrdiff_t>(i) + 8,
                           [](uint8_t byte) { return byte == kSecret; }),
              "another protection domain was read");
    }
  }

  FuzzInput& input_;
  transport::DcHosts net_{3};
  DcHost& from_ = net_[0];
  DcHost& to_ = net_[1];
  DcHost& bystander_ = net_[2];
  transport::FakeMemory::Region* const forbidden_;
  std::unique_ptr<transport::QueuePair> dct_;
  std::unique_ptr<transport::QueuePair> dci_;
  std::unique_ptr<transport::QueuePair> other_;
  bool lossy_ = false;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  bool failed_ = false;
  uint64_t next_receive_ = 0;
  std::set<uint64_t> received_;
};

}  // namespace
}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  std::make_unique<fuzz::Run>(input)->Steps();
  return 0;
}
