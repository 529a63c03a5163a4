#include "transport/sim/pair.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "transport/testing/bring_up.h"

namespace sim {

using transport::QpState;
using transport::SendOpcode;

namespace {
constexpr transport::PdId kPd = 7;
}  // namespace

int Pair::Side::Post(const transport::SendRequest& request) {
  const int error = qp->PostSend(request, network_->now());
  network_->Touch(*node);
  return error;
}

int Pair::Side::PostOne(SendOpcode opcode, uint64_t wr_id, uint64_t local,
                        uint64_t remote, uint32_t length, uint32_t flags,
                        uint32_t imm_be, uint64_t compare_add, uint64_t swap) {
  const transport::Sge sge = this->sge(local, length);
  transport::SendRequest request;
  request.wr_id = wr_id;
  request.opcode = opcode;
  request.flags = flags;
  request.sges = {&sge, 1};
  request.imm_be = imm_be;
  request.remote_addr = peer_->region.va + remote;
  request.rkey = peer_->region.rkey;
  request.compare_add = compare_add;
  request.swap = swap;
  return Post(request);
}

int Pair::Side::Send(uint64_t wr_id, uint64_t local, uint32_t length,
                     uint32_t flags) {
  return PostOne(SendOpcode::kSend, wr_id, local, 0, length, flags, 0, 0, 0);
}
int Pair::Side::Write(uint64_t wr_id, uint64_t local, uint64_t remote,
                      uint32_t length, uint32_t flags) {
  return PostOne(SendOpcode::kRdmaWrite, wr_id, local, remote, length, flags, 0,
                 0, 0);
}
int Pair::Side::WriteWithImm(uint64_t wr_id, uint64_t local, uint64_t remote,
                             uint32_t length, uint32_t imm_be, uint32_t flags) {
  return PostOne(SendOpcode::kRdmaWriteWithImm, wr_id, local, remote, length,
                 flags, imm_be, 0, 0);
}
int Pair::Side::Read(uint64_t wr_id, uint64_t local, uint64_t remote,
                     uint32_t length, uint32_t flags) {
  return PostOne(SendOpcode::kRdmaRead, wr_id, local, remote, length, flags, 0,
                 0, 0);
}
int Pair::Side::FetchAdd(uint64_t wr_id, uint64_t local, uint64_t remote,
                         uint64_t add, uint32_t flags) {
  return PostOne(SendOpcode::kFetchAdd, wr_id, local, remote, 8, flags, 0, add,
                 0);
}
int Pair::Side::CompareSwap(uint64_t wr_id, uint64_t local, uint64_t remote,
                            uint64_t compare, uint64_t swap, uint32_t flags) {
  return PostOne(SendOpcode::kCompareSwap, wr_id, local, remote, 8, flags, 0,
                 compare, swap);
}

int Pair::Side::Receive(uint64_t wr_id, uint64_t local, uint32_t length) {
  const transport::Sge sge = this->sge(local, length);
  if (srq != nullptr) {
    srq->Post(wr_id, {sge});
    return 0;
  }
  const transport::ReceiveRequest request = {.wr_id = wr_id, .sges = {&sge, 1}};
  const int error = qp->PostReceive(request, network_->now());
  network_->Touch(*node);
  return error;
}

int Pair::Side::Modify(QpState state) {
  transport::QpAttributes to;
  to.state = state;
  const int error = qp->Modify(to, transport::kQpState, network_->now());
  network_->Touch(*node);
  return error;
}

uint64_t Pair::Side::Word(uint64_t local) const {
  uint64_t word;
  std::memcpy(&word, buffer.get() + local, 8);
  return word;
}

Pair::Pair(const PairOptions& options)
    : net(options.seed, &checker), type_(options.type) {
  net.SetAllLinks(options.link);
  Create(a, options, 0x0a0001);
  Create(b, options, 0x0b0002);
  a.peer_ = &b;
  b.peer_ = &a;
  for (Side* side : {&a, &b}) {
    Side& other = side == &a ? b : a;
    transport::QpAttributes& to = side->attributes;
    to.path_mtu = options.path_mtu;
    to.access_flags = options.access_flags;
    to.dest_qpn = other.qp->qpn();
    to.sq_psn = side == &a ? options.psn_a : options.psn_b;
    to.rq_psn = side == &a ? options.psn_b : options.psn_a;
    to.av.source = side->node->address();
    to.av.destination = other.node->address();
    to.av.source_port = side == &a ? 0xc001 : 0xc002;
    to.max_rd_atomic = to.max_dest_rd_atomic = options.max_rd_atomic;
    to.min_rnr_timer = options.min_rnr_timer;
    to.timeout = options.timeout;
    to.retry_cnt = options.retry_cnt;
    to.rnr_retry = options.rnr_retry;
  }
}

Pair::~Pair() = default;

void Pair::Create(Side& side, const PairOptions& options, uint32_t qpn) {
  side.network_ = &net;
  side.node = &net.AddNode();
  side.node->profile() = options.node;
  // Aligned for atomics: 8-byte words.
  side.buffer.reset(new uint8_t[options.buffer_bytes]);
  net.random().Fill(side.buffer.get(), options.buffer_bytes);
  side.region = side.node->memory().Register(
      kPd, side.buffer.get(),
      0x700000000000 + (static_cast<uint64_t>(qpn) << 20), options.buffer_bytes,
      kAllAccess);
  transport::QpConfig config;
  config.type = options.type;
  config.qpn = qpn;
  config.pd = kPd;
  config.capacity = options.capacity;
  config.signal_all = options.signal_all;
  config.memory = &side.node->memory();
  config.send_cq = &side.send_cq;
  config.recv_cq = &side.recv_cq;
  if (options.srq) {
    side.srq = std::make_unique<SimSrq>(kPd);
    config.srq = side.srq.get();
  }
  config.events = &side.events;
  side.qp = transport::MakeQueuePair(side.node->endpoint(), config);
}

void Pair::Modify(Side& side, QpState state) {
  transport::QpAttributes to = side.attributes;
  to.state = state;
  const int error = side.qp->Modify(
      to, transport::RequiredAttributes(type_, state), net.now());
  if (error != 0) {
    checker.Fail(absl::StrCat("modify to state ", static_cast<int>(state), ": ",
                              std::strerror(error)));
  }
}

void Pair::ToInit(Side& side) { Modify(side, QpState::kInit); }

void Pair::ToRtr(Side& side) { Modify(side, QpState::kRtr); }

void Pair::ToRts(Side& side) {
  Modify(side, QpState::kRts);
  net.Touch(*side.node);
}

void Pair::Connect() {
  for (Side* side : {&a, &b}) {
    ToInit(*side);
    ToRtr(*side);
  }
  ToRts(a);
  ToRts(b);
}

void Pair::Run() {
  if (!net.RunUntilIdle(net.now() + 60 * transport::kSecond) &&
      !checker.failed()) {
    checker.Fail("still busy after a minute");
  }
}

bool Pair::RunUntilSent(Side& side, size_t count, Time limit) {
  return net.RunUntil([&] { return side.send_cq.size() >= count; },
                      net.now() + limit);
}

}  // namespace sim
