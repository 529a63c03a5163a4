// Datagram sockets: rsocket(7) with SOCK_DGRAM.
#ifndef VERBS_API_RSOCKETS_DATAGRAM_H_
#define VERBS_API_RSOCKETS_DATAGRAM_H_

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "verbs_api/rsockets/datagram_protocol.h"
#include "verbs_api/rsockets/datagram_qp.h"
#include "verbs_api/rsockets/socket.h"

namespace rsockets {

// A UDP socket of the kernel, which owns the port, and a queue pair for each
// local address that datagrams were sent from. There is no thread: the UDP
// socket is read when the program sends, receives or waits.
class Datagram final : public Socket {
 public:
  static int Create(int domain, std::shared_ptr<Socket>* out);
  ~Datagram() override;

  int type() const override { return SOCK_DGRAM; }
  int Bind(const sockaddr* address, socklen_t length) override;
  int Listen(int) override { return -EOPNOTSUPP; }
  int Accept(std::shared_ptr<Socket>*, sockaddr_storage*) override {
    return -EOPNOTSUPP;
  }
  int Connect(const sockaddr* address, socklen_t length) override;
  int Shutdown(int how) override;
  void Close(Clock::time_point begin) override;
  ssize_t Send(IovCursor data, int flags, const sockaddr* to,
               socklen_t to_length) override;
  ssize_t Receive(IovCursor data, int flags, sockaddr* from,
                  socklen_t* from_length) override;
  int LocalAddress(sockaddr_storage* out) override;
  int PeerAddress(sockaddr_storage* out) override;

 protected:
  bool Progress() override;
  void Arm() override;
  bool Drain() override;
  short Ready() override;
  int Apply(int level, int name, int value) override;
  bool HasBuffers() const override { return !qps_.empty(); }

 private:
  using Key = decltype(std::declval<DatagramAddress>().Key());
  struct Destination {
    DatagramAddress address;
    DatagramQp* qp = nullptr;  // null: no RDMA from this address
    ibv_ah* path = nullptr;    // null: the peer's queue pair is unknown
    uint32_t qpn = 0;
  };
  // A received datagram: in a slot of `qp`, or in `bytes`.
  struct Waiting {
    DatagramQp* qp;
    uint32_t slot;
    uint32_t offset;
    uint32_t length;
    std::vector<uint8_t> bytes;
    DatagramAddress from;
  };

  Datagram(int domain, const Settings& settings) : Socket(domain, settings) {}
  // Null, with `*error`, if nothing can be sent there.
  Destination* FindDestination(const DatagramAddress& to, int* error);
  int LocalFor(const DatagramAddress& to, DatagramAddress* local);
  uint32_t BoundScope();
  DatagramQp* QpFor(const DatagramAddress& local);
  void Learn(Destination& destination, uint32_t qpn);
  void ForgetDestinations();

  // Reads the UDP socket. Returns true if anything was there.
  bool ReadUdp();
  void OnUdp(std::span<const uint8_t> packet, const DatagramAddress& from);
  void OnMessage(DatagramQp& qp, const DatagramQp::Received& received);
  ssize_t SendUdp(const Destination& to, UdpOp op, IovCursor data, int flags);
  // Waits for space in the UDP socket. Returns 0 or a negative errno value.
  int AwaitUdpSpace(std::unique_lock<std::mutex>& lock,
                    const Deadline& deadline);
  bool IsWanted(const DatagramAddress& from) const;

  rxe_user::UniqueFd udp_;
  std::vector<std::unique_ptr<DatagramQp>> qps_;
  std::map<Key, Destination> destinations_;
  std::optional<DatagramAddress> peer_;  // set by rconnect
  std::deque<Waiting> waiting_;
  std::vector<DatagramQp::Received> received_;  // scratch
  std::vector<uint8_t> packet_;                 // scratch
  bool read_shut_ = false;
  bool write_shut_ = false;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_DATAGRAM_H_
