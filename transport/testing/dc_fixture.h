// An initiator and a target of dynamic connections on two hosts (dc_hosts.h).
#ifndef TRANSPORT_TESTING_DC_FIXTURE_H_
#define TRANSPORT_TESTING_DC_FIXTURE_H_

#include <algorithm>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/dc_hosts.h"
#include "wire/dc.h"

namespace transport {

inline constexpr uint32_t kDci = 0x11;
inline constexpr uint32_t kDct = 0x22;
inline constexpr uint32_t kOtherDct = 0x23;

class DcTest : public ::testing::Test {
 protected:
  DcTest() {
    for (size_t i = 0; i < from.region->bytes.size(); ++i) {
      from.region->bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
    }
    dci = from.MakeDci(kDci, net.now);
    dct = to.MakeDct(kDct, net.now);
  }

  // A request of `opcode` to `target` of `host`. Data at `offset` in both
  // regions.
  SendRequest Request(SendOpcode opcode, uint64_t wr_id, uint32_t bytes,
                      uint64_t offset = 0) {
    sge_ = {from.region->va + offset, bytes, from.region->lkey};
    av_ = from.AddressOf(to);
    SendRequest request;
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.flags = kSendSignaled;
    request.sges = {&sge_, 1};
    request.remote_addr = to.region->va + offset;
    request.rkey = to.region->rkey;
    request.ah = &av_;
    request.remote_qpn = kDct;
    request.dc_access_key = DcHost::kKey;
    return request;
  }
  int Post(SendOpcode opcode, uint64_t wr_id, uint32_t bytes,
           uint64_t offset = 0, uint32_t target = kDct) {
    SendRequest request = Request(opcode, wr_id, bytes, offset);
    request.remote_qpn = target;
    return dci->PostSend(request, net.now);
  }
  int Send(uint64_t wr_id, uint32_t target = kDct) {
    to.PostReceive(wr_id, 0x80000);
    return Post(SendOpcode::kSend, wr_id, 16, 0, target);
  }
  void Restart() {
    QpAttributes reset;
    ASSERT_EQ(dci->Modify(reset, kQpState, net.now), 0);
    DcHost::BringUp(*dci, net.now);
  }
  // "wr_id status", joined by "; ".
  static std::string Take(RecordingCq& cq) {
    std::string text;
    for (const Completion& c : cq.Take()) {
      if (!text.empty()) text += "; ";
      text += std::to_string(c.wr_id) + " " +
              std::to_string(static_cast<int>(c.status));
    }
    return text;
  }
  const EndpointCounters& counters() { return to.endpoint.counters(); }
  bool SameAt(uint64_t offset, size_t bytes) {
    return std::equal(from.region->bytes.begin() + offset,
                      from.region->bytes.begin() + offset + bytes,
                      to.region->bytes.begin() + offset);
  }
  // A CONNECT from another sender.
  DcDatagram Connect(uint32_t session, uint32_t initiator = kDci,
                     const char* source = "10.0.0.1", uint16_t port = 0xd000,
                     uint64_t key = DcHost::kKey) {
    DcDatagram connect;
    connect.bytes.resize(wire::kDcConnectSize);
    wire::EmitDcConnect({.dest_qpn = wire::kNoDcQpn, .ack_req = true, .psn = 5},
                        {.from_initiator = true,
                         .src_qpn = initiator,
                         .initiator_session = session,
                         .responder_session = wire::kNoDcSession,
                         .dct = kDct},
                        {.access_key = key}, connect.bytes.data());
    connect.source = *wire::IpAddress::Parse(source);
    connect.destination = to.address;
    connect.source_port = port;
    return connect;
  }

  DcHosts net{3};
  DcHost& from = net[0];
  DcHost& to = net[1];
  std::unique_ptr<QueuePair> dci;
  std::unique_ptr<QueuePair> dct;

 private:
  Sge sge_;
  AddressVector av_;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_DC_FIXTURE_H_
