#include "rxe_user/ports/memory_port.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "absl/hash/hash.h"
#include "rxe_user/base/clock.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/ports/udp_socket.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::Burst;
using transport::Flow;
using transport::GroBatch;
using transport::Time;

// The buffer of one Receive. A burst that is dropped is filled in it, too.
constexpr size_t kBufferBytes = 2 * RingWriter::kMaxBytes;
constexpr size_t kMaxBatches = 64;
constexpr int kSegments = 256;
// While packets come by memory, the sockets are read after this many calls that
// did not read them. They are read every other call if one of their last kQuiet
// reads found something.
constexpr uint32_t kSocketInterval = 16;
constexpr uint32_t kQuiet = 64;
// Bursts by UDP between tries to get a ring: at first, and at most.
constexpr uint32_t kFirstRetry = 1024;
constexpr uint32_t kLastRetry = 64 << 10;
constexpr size_t kMaxPeers = 4096;
// Any datagram takes at least this much of a receive buffer: the kernel counts
// its own structures (SKB_TRUESIZE).
constexpr uint64_t kMinTrueSize = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> MemoryPort::Create(
    std::unique_ptr<Port> inner, MemoryLinks::SelfTraffic self_traffic) {
  return Create(std::move(inner), &MonotonicNs, self_traffic);
}

absl::StatusOr<std::unique_ptr<Port>> MemoryPort::Create(
    std::unique_ptr<Port> inner, Clock clock,
    MemoryLinks::SelfTraffic self_traffic) {
  auto port = std::unique_ptr<MemoryPort>(
      new MemoryPort(std::move(inner), clock, self_traffic));
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

MemoryPort::MemoryPort(std::unique_ptr<Port> inner, Clock clock,
                       MemoryLinks::SelfTraffic self_traffic)
    : inner_(std::move(inner)), clock_(clock), self_traffic_(self_traffic) {}

MemoryPort::~MemoryPort() = default;

absl::Status MemoryPort::Open() {
  wake_ = UniqueFd(MoveHigh(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!wake_.valid()) return ErrnoStatus(errno, "eventfd");
  absl::StatusOr<MappedMemory> doorbell =
      MappedMemory::CreateShared(kDoorbellBytes, &doorbell_file_);
  if (!doorbell.ok()) return doorbell.status();
  doorbell_memory_ = *std::move(doorbell);
  doorbell_ = Doorbell::In(doorbell_memory_.bytes());
  buffer_ = MappedMemory::Prefaulted(kBufferBytes);
  if (buffer_.bytes().empty()) {
    return absl::ResourceExhaustedError("no memory for packet buffers");
  }
  batches_.reserve(kMaxBatches);
  waiting_.reserve(MemoryLinks::kMax);
  auto links = MemoryLinks::Create(this, doorbell_file_.get(), wake_.get(),
                                   self_traffic_);
  if (!links.ok()) return links.status();
  links_ = *std::move(links);
  return absl::OkStatus();
}

absl::Status MemoryPort::AddReceiver(const LocalAddress& local, int fd) {
  absl::Status status = inner_->AddReceiver(local, fd);
  if (status.ok() && !local.address.is_multicast()) links_->AddAddress(local);
  return status;
}

void MemoryPort::RemoveReceiver(const wire::IpAddress& address) {
  links_->RemoveAddress(address);
  inner_->RemoveReceiver(address);
}

std::vector<int> MemoryPort::ReceiveDescriptors() const {
  std::vector<int> descriptors = inner_->ReceiveDescriptors();
  descriptors.push_back(wake_.get());
  return descriptors;
}

void MemoryPort::AbandonInChild() {
  inner_->AbandonInChild();
  wake_.Reset();
  doorbell_file_.Reset();
  doorbell_memory_.Release();
  buffer_.Release();
}

const PortCounters& MemoryPort::counters() const {
  total_ = inner_->counters();
  total_.memory_rx_batches = own_.memory_rx_batches;
  total_.memory_rx_bytes = own_.memory_rx_bytes;
  total_.memory_tx_bursts = own_.memory_tx_bursts;
  total_.memory_tx_bytes = own_.memory_tx_bytes;
  total_.memory_tx_full = own_.memory_tx_full;
  total_.memory_tx_dropped = own_.memory_tx_dropped;
  total_.memory_wakes = own_.memory_wakes;
  total_.memory_broken = own_.memory_broken;
  return total_;
}

bool MemoryPort::UsesMemory(const wire::IpAddress& source,
                            const wire::IpAddress& destination,
                            uint32_t peer_qpn) const {
  const auto found = peers_.find({source, destination, SlotOf(peer_qpn)});
  return found != peers_.end() && found->second.state == Peer::State::kOpen;
}

// By syscall(2): write() is a cancellation point.
void MemoryPort::Signal(int fd) {
  const uint64_t one = 1;
  (void)!::syscall(SYS_write, fd, &one, sizeof(one));
}

// --- Receive.

std::span<const GroBatch> MemoryPort::Receive(bool thorough) {
  if (!waiting_.empty() || room_) CheckRoom();
  if (reader_count_ == 0) return ReceiveSockets(thorough);
  unread_ |= doorbell_->Take();
  const bool turn = skipped_ >= (quiet_ < kQuiet ? 1 : kSocketInterval);
  if (unread_ != 0 && !turn) {
    ++skipped_;
    const std::span<const GroBatch> batches = ReceiveMemory();
    more_ = thorough || unread_ != 0;
    if (!batches.empty()) return batches;
  }
  if (!thorough && !turn && quiet_ >= kQuiet) {
    ++skipped_;
    more_ = false;
    return {};
  }
  const std::span<const GroBatch> batches = ReceiveSockets(thorough);
  more_ = more_ || unread_ != 0;
  if (!batches.empty() || unread_ == 0) return batches;
  return ReceiveMemory();
}

std::span<const GroBatch> MemoryPort::ReceiveSockets(bool thorough) {
  skipped_ = 0;
  const std::span<const GroBatch> batches = inner_->Receive(thorough);
  more_ = inner_->more();
  for (const GroBatch& batch : batches) {
    sockets_read_ += std::max<uint64_t>(batch.bytes.size(), kMinTrueSize);
  }
  quiet_ = !batches.empty() ? 0 : std::min(quiet_ + 1, kQuiet);
  return batches;
}

std::span<const GroBatch> MemoryPort::ReceiveMemory() {
  batches_.clear();
  size_t used = 0;
  for (uint64_t left = unread_; left != 0;) {
    const int bit =
        (std::countr_zero(std::rotr(left, next_)) + next_) % Doorbell::kRings;
    left &= ~(uint64_t{1} << bit);
    Reader& reader = readers_[static_cast<size_t>(bit)];
    if (reader.sockets_first != 0) {
      if (used != 0) break;  // read by the next call
      const std::span<const GroBatch> before = ReceiveBefore(reader);
      if (!before.empty()) return before;
    }
    ReadRing(bit, &used);
    if (used >= RingWriter::kMaxBytes || batches_.size() == kMaxBatches) {
      next_ = (bit + 1) % Doorbell::kRings;
      break;
    }
  }
  return batches_;
}

std::span<const GroBatch> MemoryPort::ReceiveBefore(Reader& reader) {
  const std::span<const GroBatch> before = ReceiveSockets(true);
  if (before.empty() || sockets_read_ >= reader.sockets_first) {
    reader.sockets_first = 0;
  }
  return before;
}

void MemoryPort::ReadRing(int bit, size_t* used) {
  Reader& reader = readers_[static_cast<size_t>(bit)];
  const std::span<uint8_t> buffer = buffer_.bytes();
  while (reader.ring && batches_.size() < kMaxBatches) {
    RecordHeader header;
    const size_t bytes = reader.ring->Read(buffer.subspan(*used), &header);
    if (bytes == 0) break;
    batches_.push_back({.bytes = buffer.subspan(*used, bytes),
                        .segment_size = header.segment_size,
                        .source = reader.source,
                        .destination = reader.destination,
                        .source_port = header.source_port,
                        .traffic_class = header.traffic_class,
                        .hop_limit = header.hop_limit,
                        .has_icrc = false});
    *used += bytes;
    ++own_.memory_rx_batches;
    own_.memory_rx_bytes += bytes;
  }
  if (reader.ring && reader.ring->broken()) {
    ++own_.memory_broken;
    reader.ring.reset();
    links_->DisconnectIncoming(bit);
  }
  if (!reader.ring || !reader.ring->HasRecord()) {
    unread_ &= ~(uint64_t{1} << bit);
  }
}

void MemoryPort::PrepareWait() {
  if (!had_readers_) return;
  // Empty the eventfd. A writer may have signaled after the lane was awake for
  // another reason, and may have ended since.
  uint64_t ignored;
  (void)!::syscall(SYS_read, wake_.get(), &ignored, sizeof(ignored));
  if (reader_count_ == 0) return;
  if (!doorbell_->Sleep(++sleeps_) || unread_ != 0) Signal(wake_.get());
}

void MemoryPort::OnIncoming(int bit, const wire::IpAddress& source,
                            const wire::IpAddress& destination,
                            RingMemory* ring) {
  uint64_t sockets_first = sockets_read_ + 1;
  for (const int fd : inner_->ReceiveDescriptors()) {
    sockets_first += ReceiveBufferOf(fd);
  }
  Reader& reader = readers_[static_cast<size_t>(bit)];
  reader.ring.emplace(ring);
  reader.source = source;
  reader.destination = destination;
  reader.sockets_first = sockets_first;
  ++reader_count_;
  had_readers_ = true;
  // The peer may have written already, and the lane may have taken its bit.
  if (reader.ring->HasRecord()) unread_ |= uint64_t{1} << bit;
  // The lane's threads may be waiting already.
  PrepareWait();
}

void MemoryPort::OnIncomingEnd(int bit) {
  Reader& reader = readers_[static_cast<size_t>(bit)];
  reader = {};
  unread_ &= ~(uint64_t{1} << bit);
  --reader_count_;
}

// --- Transmit.

size_t MemoryPort::Hash::operator()(const MemoryRoute& route) const {
  return absl::HashOf(route.source, route.destination, route.slot);
}

MemoryPort::Peer* MemoryPort::Find(const Flow& flow) {
  if (flow.peer_qpn == 0 || flow.destination_port != wire::kRoceUdpPort) {
    return nullptr;
  }
  const uint16_t slot = SlotOf(flow.peer_qpn);
  if (last_ != nullptr && last_->first.slot == slot &&
      last_->first.destination == flow.av.destination &&
      last_->first.source == flow.av.source) {
    return &last_->second;
  }
  if (slot == 0 || slot >= kSlots) return nullptr;
  const MemoryRoute route = {flow.av.source, flow.av.destination, slot};
  auto found = peers_.find(route);
  if (found == peers_.end()) {
    if (peers_.size() >= kMaxPeers) {
      if (++unknown_ < kLastRetry) return nullptr;
      ForgetPeers();
    }
    try {
      found = peers_.try_emplace(route).first;
      if (waits_for_answer()) found->second.left = 0;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  last_ = &*found;
  return &last_->second;
}

void MemoryPort::ForgetPeers() {
  last_ = nullptr;
  unknown_ = 0;
  std::erase_if(peers_, [](const Peers::value_type& peer) {
    return peer.second.state == Peer::State::kUdp && !peer.second.waits;
  });
}

Burst* MemoryPort::Begin(const Flow& flow) {
  to_ = nullptr;
  drops_ = only_that_flow_ = false;
  Peer* const peer = Find(flow);
  if (peer == nullptr) return inner_->Begin(flow);
  switch (peer->state) {
    case Peer::State::kUdp:
    case Peer::State::kAsked:
      return BeginUdp(*peer, flow);
    case Peer::State::kPausing:
      if (HasPaused(*peer)) break;
      Refuse(*peer);
      return nullptr;
    case Peer::State::kOpen:
      break;
  }
  const std::span<uint8_t> space = peer->ring->Reserve();
  if (space.empty()) return BeginFull(*peer, flow);
  to_ = peer;
  burst_ = Burst::WithoutIcrc(space, kSegments);
  burst_.Begin(&flow);
  return &burst_;
}

Burst* MemoryPort::BeginUdp(Peer& peer, const Flow& flow) {
  if (peer.state == Peer::State::kUdp) {
    if (peer.left != 0) {
      --peer.left;
    } else if (links_->Connect(last_->first)) {
      peer.state = Peer::State::kAsked;
    }
  }
  if (!MaySend(peer)) {
    Refuse(peer);
    return nullptr;
  }
  return inner_->Begin(flow);
}

bool MemoryPort::HasPaused(Peer& peer) {
  const Time now = clock_();
  // The bursts that the system refused may be for this peer, so wait for them.
  // Not for ever: a packet that arrives late costs only a NAK.
  if (inner_->blocked()) peer.opens_at = std::min(now + kPause, peer.opens_by);
  if (now < peer.opens_at) return false;
  peer.state = Peer::State::kOpen;
  return true;
}

Burst* MemoryPort::BeginFull(Peer& peer, const Flow& flow) {
  if (peer.ring->broken()) {
    ++own_.memory_broken;
    links_->DisconnectOutgoing(peer.link.number);
    End(peer);
    return inner_->Begin(flow);
  }
  const Time now = clock_();
  if (peer.full_at != peer.ring->head()) {
    peer.full_at = peer.ring->head();
    peer.full_since = now;
  }
  if (now - peer.full_since < kPatience) {
    ++own_.memory_tx_full;
    Refuse(peer);
    return nullptr;
  }
  drops_ = true;
  // The receive buffer is free: the packets of the last Receive were processed.
  burst_ = Burst::WithoutIcrc(buffer_.bytes().first(RingWriter::kMaxBytes),
                              kSegments);
  burst_.Begin(&flow);
  return &burst_;
}

void MemoryPort::Refuse(Peer& peer) {
  only_that_flow_ = true;
  if (!peer.waits) waiting_.push_back(&peer);
  peer.waits = true;
}

void MemoryPort::Queue() {
  if (drops_) {
    ++own_.memory_tx_dropped;
    return;
  }
  if (to_ == nullptr) {
    inner_->Queue();
    return;
  }
  const transport::AddressVector& av = burst_.flow()->av;
  ++own_.memory_tx_bursts;
  own_.memory_tx_bytes += burst_.bytes().size();
  to_->ring->Commit({
      .bytes = static_cast<uint32_t>(burst_.bytes().size()),
      .segment_size = static_cast<uint16_t>(burst_.segment_size()),
      .source_port = av.source_port,
      .traffic_class = av.traffic_class,
      .hop_limit = av.hop_limit,
  });
  to_->link.doorbell->Ring(to_->link.bit, [this] {
    ++own_.memory_wakes;
    Signal(to_->link.wake);
  });
}

bool MemoryPort::MaySend(Peer& peer) {
  switch (peer.state) {
    case Peer::State::kUdp:
      return true;
    case Peer::State::kAsked:
      return !waits_for_answer();
    case Peer::State::kPausing:
      return HasPaused(peer);
    case Peer::State::kOpen:
      break;
  }
  return peer.ring->HasRoom() || clock_() - peer.full_since >= kPatience;
}

// If on_room_ throws, it is called again.
void MemoryPort::CheckRoom() {
  std::erase_if(waiting_, [this](Peer* peer) {
    peer->waits = !MaySend(*peer);
    room_ = room_ || !peer->waits;
    return !peer->waits;
  });
  if (room_) on_room_();
  room_ = false;
}

void MemoryPort::OnOutgoing(const MemoryRoute& route, const Outgoing& link) {
  const auto found = peers_.find(route);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  peer.state = Peer::State::kPausing;
  const Time now = clock_();
  peer.opens_at = now + kPause;
  peer.opens_by = now + kPatience;
  peer.link = link;
  peer.ring.emplace(link.ring);
  peer.interval = 0;
  peer.full_at = ~uint64_t{0};
  peer.used_to = 0;
  peer.used_at = now;
}

// Waiting flows learn of it from CheckRoom.
void MemoryPort::OnOutgoingEnd(const MemoryRoute& route, int number) {
  const auto found = peers_.find(route);
  if (found != peers_.end() && found->second.link.number == number) {
    End(found->second);
  }
}

bool MemoryPort::GivesUp(const MemoryRoute& route, int number) {
  const auto found = peers_.find(route);
  if (found == peers_.end() || found->second.link.number != number) {
    return false;
  }
  Peer& peer = found->second;
  const Time now = clock_();
  if (peer.used_to != peer.ring->tail()) {
    peer.used_to = peer.ring->tail();
    peer.used_at = now;
  }
  // Unread packets would be lost with the ring.
  if (now - peer.used_at < kUnused || peer.waits || !peer.ring->IsRead()) {
    return false;
  }
  End(peer);
  peer.interval = 0;
  peer.left = kFirstTry;
  return true;
}

void MemoryPort::End(Peer& peer) {
  peer.state = Peer::State::kUdp;
  peer.ring.reset();
  peer.link = {};
  peer.interval = std::clamp(2 * peer.interval, kFirstRetry, kLastRetry);
  peer.left = peer.interval;
}

}  // namespace rxe_user
