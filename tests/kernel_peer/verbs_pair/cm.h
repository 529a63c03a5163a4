// Ends of connections that the RDMA CM makes, by librdmacm alone.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_CM_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_CM_H_

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/kernel_peer/verbs_pair/rig.h"

namespace verbs_pair {

// An event that has been acknowledged.
struct CmEvent {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
  std::string private_data;
  rdma_ud_param datagram;
};

// The address of this end's GID, with a port of 0.
sockaddr_in6 CmAddressOf(const ibv_gid& gid);

// Address and port that the passive end tells the active one; both call it. The
// passive end's port is taken from `mine`.
sockaddr_in6 ExchangeCmAddress(const Rig& rig, uint16_t port);

// An id with an event channel of its own, and from CreateQp on with a queue
// pair, memory and a completion queue. Throws Failure.
class CmEnd {
 public:
  explicit CmEnd(rdma_port_space space);
  // Takes over the id of a CONNECT_REQUEST.
  explicit CmEnd(rdma_cm_id* request);
  ~CmEnd();
  CmEnd(const CmEnd&) = delete;
  CmEnd& operator=(const CmEnd&) = delete;

  rdma_cm_id* id() const { return id_; }

  // Binds to this end's address; the port (host order) that it has got.
  uint16_t Listen(const Rig& rig);
  // Until the route is there.
  void Resolve(const sockaddr_in6& to);
  void CreateQp();

  void Connect(const std::string& private_data);
  void Accept(const std::string& private_data);
  // Whether rdma_accept has taken it.
  bool TryAccept();
  void Disconnect();
  // Destroys the id, whatever state it is in.
  void Destroy();

  // The next event, which must be `type`.
  CmEvent Expect(rdma_cm_event_type type);
  // The next event, whatever it is.
  CmEvent Next();

  // Messages over the queue pair.
  void PostRecv();
  // `qpn`, `qkey` and `ah` for datagrams.
  void Send(uint32_t seed, ibv_ah* ah = nullptr, uint32_t qpn = 0,
            uint32_t qkey = 0);
  // Waits for the message that PostRecv was for, and compares it; `skip` bytes
  // before it are a datagram's GRH.
  void Receive(uint32_t seed, size_t skip = 0);

 private:
  void Poll(uint64_t id);

  static constexpr size_t kMessage = 1000;  // bytes

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::unique_ptr<uint8_t[]> memory_;
  unsigned completed_ = 0;  // bits of work requests, by id
};

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_CM_H_
