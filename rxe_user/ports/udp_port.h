// The port of UDP sockets and plain system calls: recvmsg(2), recvmmsg(2),
// sendmmsg(2). docs/performance.md says why io_uring is not used.
#ifndef RXE_USER_PORTS_UDP_PORT_H_
#define RXE_USER_PORTS_UDP_PORT_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/udp_receiver.h"
#include "rxe_user/ports/udp_transmitter.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

class UdpPort final : public Port {
 public:
  static absl::StatusOr<std::unique_ptr<Port>> Create();

  absl::Status AddReceiver(const LocalAddress& local, int fd) override {
    return receiver_.Add(local, fd);
  }
  bool HasReceiver(const wire::IpAddress& address) const override {
    return receiver_.Has(address);
  }
  void RemoveReceiver(const wire::IpAddress& address) override {
    receiver_.Remove(address);
  }
  std::vector<int> ReceiveDescriptors() const override {
    return receiver_.Descriptors();
  }
  std::span<const transport::GroBatch> Receive(bool thorough) override {
    return receiver_.Receive(thorough);
  }
  bool more() const override { return receiver_.more(); }
  uint64_t TakeOverflow() override { return receiver_.TakeOverflow(); }

  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice) override {
    return transmitter_.SourcePort(
        local, choice, NatMode() ? receiver_.DescriptorOf(local.address) : -1);
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
                                   Recorder* recorder) override;
  void AbandonInChild() override;

 private:
  // Adds the kernel's time to received packets.
  class Timed final : public transport::PacketObserver {
   public:
    Timed(const UdpReceiver& receiver, transport::PacketObserver& observer)
        : receiver_(receiver), observer_(observer) {}
    void OnPacket(const transport::ObservedPacket& packet) override;
    uint64_t OnHeld(const transport::ObservedPacket& packet) override {
      return observer_.OnHeld(packet);
    }
    void OnOverflow(uint64_t packets) override {
      observer_.OnOverflow(packets);
    }

   private:
    const UdpReceiver& receiver_;
    transport::PacketObserver& observer_;
  };

  PortCounters counters_;
  UdpReceiver receiver_{&counters_};
  UdpTransmitter transmitter_{&counters_};
  std::unique_ptr<Timed> timed_;  // null: nobody wants the kernel's times
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_PORT_H_
