// Ends of RDMA CM connections, using only librdmacm.
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

// Exchanges the passive end's address and port; both ends call it. The passive
// end uses its own `port`.
sockaddr_in6 ExchangeCmAddress(const Rig& rig, uint16_t port);

// An id with its own event channel and, after CreateQp, a queue pair, memory
// and a completion queue. Throws Failure.
class CmEnd {
 public:
  explicit CmEnd(rdma_port_space space);
  // Takes ownership of the id of a CONNECT_REQUEST.
  explicit CmEnd(rdma_cm_id* request);
  ~CmEnd();
  CmEnd(const CmEnd&) = delete;
  CmEnd& operator=(const CmEnd&) = delete;

  rdma_cm_id* id() const { return id_; }

  // Binds to this end's address. Returns the port (host order).
  uint16_t Listen(const Rig& rig);
  // Resolves address and route.
  void Resolve(const sockaddr_in6& to);
  void CreateQp();

  void Connect(const std::string& private_data);
  void Accept(const std::string& private_data);
  // Calls rdma_accept and returns whether it succeeded.
  bool TryAccept();
  void Disconnect();
  // Destroys the id in any state.
  void Destroy();

  // Takes the next event, which must have `type`.
  CmEvent Expect(rdma_cm_event_type type);
  // Takes the next event.
  CmEvent Next();

  // --- Messages over the queue pair.
  void PostRecv();
  // `qpn`, `qkey` and `ah`: for datagrams.
  void Send(uint32_t seed, ibv_ah* ah = nullptr, uint32_t qpn = 0,
            uint32_t qkey = 0);
  // Waits for the message of PostRecv and compares it. `skip`: bytes of a
  // datagram's GRH before it.
  void Receive(uint32_t seed, size_t skip = 0);

 private:
  void Poll(uint64_t id);

  static constexpr size_t kMessage = 1000;  // bytes

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::unique_ptr<uint8_t[]> memory_;
  unsigned completed_ = 0;  // bit mask of completed work request ids
};

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_CM_H_
