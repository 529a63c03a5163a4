// A port of UDP sockets, apart from the system calls that receive.
#ifndef RXE_USER_PORTS_SOCKET_PORT_H_
#define RXE_USER_PORTS_SOCKET_PORT_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/udp_transmitter.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

// `Receiver`: UdpReceiver, or a class with the same functions.
template <typename Receiver>
class SocketPort : public Port {
 public:
  absl::Status AddReceiver(const LocalAddress& local, int fd) override {
    return receiver_.sockets().Add(local, fd);
  }
  bool HasReceiver(const wire::IpAddress& address) const override {
    return receiver_.sockets().Has(address);
  }
  void RemoveReceiver(const wire::IpAddress& address) override {
    receiver_.sockets().Remove(address);
  }
  std::vector<int> ReceiveDescriptors() const override {
    return receiver_.Descriptors();
  }
  std::span<const transport::GroBatch> Receive(bool thorough) override {
    return receiver_.Receive(thorough);
  }
  bool more() const override { return receiver_.more(); }
  uint64_t TakeOverflow() override {
    return receiver_.sockets().TakeOverflow();
  }

  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice) override {
    return transmitter_.SourcePort(
        local, choice,
        NatMode() ? receiver_.sockets().DescriptorOf(local.address) : -1);
  }
  absl::Status OpenSourcePort(const LocalAddress& local,
                              uint16_t port) override {
    if (NatMode()) {
      return absl::UnimplementedError(
          "with RXE_USER_NAT=1 the UDP source port is always 4791");
    }
    return transmitter_.OpenSourcePort(local, port);
  }
  size_t CloseUnusedSenders(const ForEachUsed& for_each_used) override {
    return transmitter_.CloseUnused(for_each_used);
  }
  transport::Burst* Begin(const transport::Flow& flow) override {
    return transmitter_.Begin(flow);
  }
  void Queue() override { transmitter_.Queue(); }
  void Flush() override { transmitter_.Flush(); }
  bool blocked() const override { return transmitter_.blocked(); }
  bool must_retry() const override { return transmitter_.blocked(); }

  const PortCounters& counters() const override { return counters_; }
  transport::PacketObserver* Watch(transport::PacketObserver* observer,
                                   Recorder*) override {
    if (observer == nullptr || !observer->WantsKernelTime()) return observer;
    receiver_.sockets().NoteKernelTimes();
    transmitter_.MarkBursts();
    timed_ = std::make_unique<Timed>(receiver_, *observer);
    return timed_.get();
  }
  void AbandonInChild() override {
    receiver_.AbandonInChild();
    transmitter_.AbandonInChild();
  }

 protected:
  // `how`: the arguments of Receiver::Open.
  template <typename... How>
  absl::Status Open(How... how) {
    absl::Status status = receiver_.Open(how...);
    if (!status.ok()) return status;
    return transmitter_.Open();
  }

  PortCounters counters_;
  Receiver receiver_{&counters_};
  UdpTransmitter transmitter_{&counters_};

 private:
  // Adds the kernel's time to received packets.
  class Timed final : public transport::PacketObserver {
   public:
    Timed(const Receiver& receiver, transport::PacketObserver& observer)
        : receiver_(receiver), observer_(observer) {}
    void OnPacket(const transport::ObservedPacket& packet) override {
      if (packet.direction != transport::Direction::kReceived) {
        observer_.OnPacket(packet);
        return;
      }
      transport::ObservedPacket timed = packet;
      timed.kernel_time = receiver_.KernelTimeOf(packet.bytes);
      observer_.OnPacket(timed);
    }
    uint64_t OnHeld(const transport::ObservedPacket& packet) override {
      return observer_.OnHeld(packet);
    }
    void OnOverflow(uint64_t packets) override {
      observer_.OnOverflow(packets);
    }

   private:
    const Receiver& receiver_;
    transport::PacketObserver& observer_;
  };

  std::unique_ptr<Timed> timed_;  // null: the kernel's times are not needed
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_SOCKET_PORT_H_
