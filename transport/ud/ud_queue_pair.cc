#include "transport/ud/ud_queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "wire/bytes.h"
#include "wire/ethernet.h"
#include "wire/grh.h"
#include "wire/psn.h"

namespace transport {

namespace {

// Header of IP over InfiniBand: an EtherType and 16 zero bits (RFC 4391, 6).
constexpr size_t kEncapsulationSize = 4;

constexpr WcResult kTooLong(WcStatus::kLocalLengthError,
                            Reason::kMessageTooLong);

// Parses IP over InfiniBand that ends with a TCP header. False: not that.
bool ParseIpoibTcp(std::span<const uint8_t> header, wire::EthernetFrame* out) {
  *out = {};
  return header.size() > kEncapsulationSize &&
         wire::LoadBe16(header.data() + 2) == 0 &&
         wire::ParseIp(header, kEncapsulationSize,
                       wire::LoadBe16(header.data()), out) &&
         wire::IsTcpHeader(*out, header);
}

}  // namespace

UdQueuePair::UdQueuePair(Endpoint& endpoint, const QpConfig& config,
                         uint32_t max_tso_header)
    : QueuePair(endpoint, config, wire::Transport::kUd),
      mask_(std::bit_ceil(std::max(config.capacity.max_send_wr, 1u)) - 1),
      addresses_(std::make_unique_for_overwrite<Address[]>(mask_ + 1)),
      headers_(max_tso_header == 0
                   ? nullptr
                   : std::make_unique<TsoHeaders>(config.capacity.max_send_wr,
                                                  max_tso_header)),
      destinations_(endpoint) {}

UdQueuePair::~UdQueuePair() { EnterReset(); }

// --- States.

void UdQueuePair::StartReceiving() {
  core().attributes.path_mtu = config().port_mtu;
}

void UdQueuePair::StartSending(Time /*now*/) {
  next_psn_ = core().attributes.sq_psn;
  sending_ = true;
}

// Only a segmented request can be partly sent.
void UdQueuePair::Drain(Time /*now*/) {
  draining_ = true;
  if (Drained()) core().NoteDrained();
}

void UdQueuePair::Resume(Time /*now*/) {
  draining_ = false;
  sending_ = true;
}

void UdQueuePair::StopSending() {
  sending_ = draining_ = false;
  segment_ = 0;
}

void UdQueuePair::OnReset() {
  StopSending();
  endpoint().Direct(this, nullptr);
  core().path = nullptr;
  current_ = nullptr;
  destinations_.Clear();
}

void UdQueuePair::ReportService(QpReport* report) const {
  report->send_psn = report->unacked_psn = next_psn_;
  if (current_ == nullptr) return;
  report->source = current_->flow.av.source;
  report->destination = current_->flow.av.destination;
  report->source_port = current_->flow.av.source_port;
}

// --- Sending (IBA vol. 1, 9.8.3.1).

int UdQueuePair::CheckServiceFields(const SendRequest& request) const {
  const bool addressed =
      request.ah != nullptr && request.remote_qpn <= wire::kQpnMask;
  if (!addressed || (request.flags & kSendIpChecksum) != 0) return EINVAL;
  if (request.opcode != SendOpcode::kTso) return 0;
  return headers_ != nullptr ? headers_->Check(request) : EINVAL;
}

int UdQueuePair::PrepareServiceFields(const SendRequest& request) {
  if (destinations_.full()) {
    const SendQueue& queue = core().send_queue;
    for (uint64_t i = queue.head(); i < queue.tail(); ++i) {
      AddressOf(i).to->in_use = true;
    }
    if (current_ != nullptr) current_->in_use = true;
    destinations_.DeleteUnused();
  }
  next_to_ = destinations_.Find(*request.ah, request.via);
  return next_to_ != nullptr ? 0 : ENOMEM;
}

void UdQueuePair::StoreServiceFields(const SendRequest& request) {
  const uint64_t index = core().send_queue.tail() - 1;
  AddressOf(index) = {
      .to = next_to_, .qpn = request.remote_qpn, .qkey = request.remote_qkey};
  if (request.opcode == SendOpcode::kTso) headers_->Put(index, request);
}

void UdQueuePair::ForEachAddress(const VisitAddress& visit) const {
  const SendQueue& queue = core().send_queue;
  for (uint64_t i = queue.head(); i < queue.tail(); ++i) {
    visit(AddressOf(i).to->flow.av);
  }
}

void UdQueuePair::Direct() {
  Destination* const to = AddressOf(core().send_queue.head()).to;
  if (to == current_) return;
  current_ = to;
  core().path = to->path;
  endpoint().Direct(this, &to->flow);
}

Interests UdQueuePair::TakeServiceInterests(Time now) {
  Interests want;
  if (!HasPackets()) return want;
  Direct();
  if (core().path->MaySendUnacknowledged(now)) {
    want.wants = Interests::kData;
  } else {
    want.deadline = core().path->paced_until();
  }
  return want;
}

Interests UdQueuePair::TransmitService(Time now, const TransmitTurn& turn,
                                       Burst* burst) {
  if (!turn.acks_only && core().path->MaySendUnacknowledged(now)) {
    Packetizer packetizer(core(), burst);
    // A burst has one destination.
    while (HasPackets() && AddressOf(core().send_queue.head()).to == current_ &&
           burst->bytes().size() < turn.bytes && SendNext(now, &packetizer)) {
    }
    core().path->OnSentUnacknowledged(
        burst->bytes().size() + burst->segments() * Path::kPacketOverhead, now);
  }
  return TakeServiceInterests(now);
}

bool UdQueuePair::SendNext(Time now, Packetizer* packetizer) {
  const uint64_t index = core().send_queue.head();
  const Address& address = AddressOf(index);
  packetizer->SetDestination(address.qpn, (address.qkey & kOwnQkey) != 0
                                              ? core().attributes.qkey
                                              : address.qkey);
  return core().send_queue.at(index).opcode == SendOpcode::kTso
             ? SendSegment(index, now, packetizer)
             : SendMessage(index, now, packetizer);
}

bool UdQueuePair::SendMessage(uint64_t index, Time now,
                              Packetizer* packetizer) {
  SendWqe& wqe = core().send_queue.at(index);
  if (wqe.length > config().port_mtu) {
    FailSend(kTooLong, now);
    return false;
  }
  wqe.packets = 1;
  if (!packetizer->Begin(index, 0, 1, next_psn_)) return false;
  const MemoryStatus status = packetizer->Fill(1, true);
  if (status != MemoryStatus::kOk) {
    FailSend({WcStatus::kLocalProtectionError, LocalReason(status)}, now);
    return false;
  }
  packetizer->Commit();
  next_psn_ = wire::PsnAdd(next_psn_, 1);
  return Complete(now);
}

// Manual page ibv_wr_post(3), ibv_wr_send_tso: each segment is a datagram that
// starts with the header. A header of IP over InfiniBand and TCP is adjusted to
// its segment; any other is repeated unchanged.
bool UdQueuePair::SendSegment(uint64_t index, Time now,
                              Packetizer* packetizer) {
  const uint32_t length = core().send_queue.at(index).length;
  const uint32_t mss = headers_->mss(index);
  const std::span<const uint8_t> header = headers_->header(index);
  if (header.size() + std::min(mss, length) > config().port_mtu) {
    FailSend(kTooLong, now);
    return false;
  }
  const bool is_last = segment_ + 1 == headers_->CountSegments(index, length);
  const uint32_t offset = segment_ * mss;
  const size_t bytes = header.size() + std::min(mss, length - offset);
  if (!packetizer->BeginSegment(index, bytes, is_last, next_psn_)) return false;
  const MemoryStatus status = packetizer->FillSegment(header, offset);
  if (status != MemoryStatus::kOk) {
    FailSend({WcStatus::kLocalProtectionError, LocalReason(status)}, now);
    return false;
  }
  wire::EthernetFrame tcp;
  if (ParseIpoibTcp(header, &tcp)) {
    wire::FinishTcpSegment(tcp, packetizer->segment(), offset,
                           static_cast<uint16_t>(segment_), is_last);
  }
  packetizer->Commit();
  next_psn_ = wire::PsnAdd(next_psn_, 1);
  ++segment_;
  if (!is_last) return true;
  segment_ = 0;
  if (!Complete(now)) return false;
  if (draining_) core().NoteDrained();
  return true;
}

bool UdQueuePair::Complete(Time now) {
  core().CompleteSend({}, now);
  if (!core().send_cq_lost) return true;
  StopSending();
  core().Fail(Reason::kCqOverrun);
  return false;
}

void UdQueuePair::FailSend(WcResult result, Time now) {
  StopSending();
  core().CompleteSend(result, now);
  core().FailSends(result.reason);
}

// --- Receiving (9.8.3.2).

bool UdQueuePair::OnRequest(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  QpCounters& counters = core().counters;
  if (packet.deth().qkey != core().attributes.qkey) {
    ++counters.dropped_qkey;
    return false;
  }
  if (packet.payload().size() > config().port_mtu) {
    ++counters.dropped_message;
    return false;
  }
  const Datagram& datagram = *received.datagram;
  // A sender attached to the group gets no copy of its own datagrams.
  if (packet.deth().src_qpn == qpn() && datagram.destination.is_multicast() &&
      destinations_.SendsFrom(datagram.source)) {
    return false;
  }
  uint8_t header[wire::kGrhSize];
  wire::EmitGrh({.source = datagram.source,
                 .destination = datagram.destination,
                 .traffic_class = datagram.traffic_class,
                 .hop_limit = datagram.hop_limit},
                datagram.bytes.size(), header);
  const RoceHeader kind =
      datagram.source.is_v4() ? RoceHeader::kIpv4 : RoceHeader::kIpv6;
  switch (receiver().ReceiveDatagram(packet, kind, header, now)) {
    case ReceiveOutcome::kNoReceive:
      ++counters.out_of_buffer;
      break;
    case ReceiveOutcome::kReceiveTooShort:
      ++counters.dropped_message;
      // Its own receive goes to the next packet; one of an SRQ completes.
      if (config().srq != nullptr) {
        receiver().FailReceive(WcStatus::kLocalLengthError, now);
      }
      break;
    case ReceiveOutcome::kReceiveNotWritable:
      receiver().FailReceive(WcStatus::kLocalProtectionError, now);
      core().Fail(core().refusal);
      break;
    default:
      break;
  }
  return false;  // there is no peer whose state could be updated
}

}  // namespace transport
