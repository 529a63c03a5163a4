// The burst contract: how a lane speaks to the network
// (docs/design/progress.md, "I/O"). Behind it stand UDP sockets; a fault stage,
// or a medium that is chosen by destination, can stand there too.
//
// Nothing here blocks. All calls are made with the lane's lock held, unless
// they say otherwise.
#ifndef RXE_USER_PORTS_PORT_H_
#define RXE_USER_PORTS_PORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/ports/port_counters.h"
#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "wire/address.h"

namespace rxe_user {

class Port : public transport::BurstSink {
 public:
  virtual ~Port() = default;

  // --- Sockets.

  // Receives what comes to `fd`, a UDP socket bound to `local` on port 4791.
  // Owns it from now on, also on error. `local` may be a multicast group.
  virtual absl::Status AddReceiver(const LocalAddress& local, int fd) = 0;
  virtual bool HasReceiver(const wire::IpAddress& address) const = 0;
  // Closes the socket of `address`; AddReceiver may add another one. Not to be
  // called at the same time as AddReceiver and HasReceiver.
  virtual void RemoveReceiver(const wire::IpAddress& address) = 0;
  // The port of one of the sockets that send from `local`: equal `choice`,
  // equal port, for as long as that socket is not closed. Errors:
  // kResourceExhausted (there are as many as may be), what the system refused.
  virtual absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                              uint32_t choice) = 0;
  // Closes the sockets that send, but for those of the address vectors with
  // which `for_each_used` calls its argument. Returns how many.
  using ForEachUsed = std::function<void(
      const std::function<void(const transport::AddressVector&)>&)>;
  virtual size_t CloseUnusedSenders(const ForEachUsed& for_each_used) = 0;
  // The descriptors that become readable when there is something to receive,
  // in the order in which they came. To be waited on themselves rather than
  // through an epoll set of their own: that loses the kernel's hint that the
  // waker is about to sleep, and wakes on another core (18 us against 4). May
  // be called without the lane's lock.
  virtual std::vector<int> ReceiveDescriptors() const = 0;

  // --- Receive.

  // Brings up to as many GRO batches as it thinks are waiting, one for each
  // receive call. They stay valid until the next call of this. Empty: nothing
  // there. `thorough`: every socket is asked, else those that seem quiet are
  // only asked now and then.
  virtual std::span<const transport::GroBatch> Receive(bool thorough) = 0;
  // Whether the last Receive left things behind, as far as it knows.
  virtual bool more() const = 0;
  // Datagrams that full receive buffers dropped since the last call of this.
  virtual uint64_t TakeOverflow() = 0;

  // --- Transmit.

  // As BurstSink::Begin; null while sends are blocked.
  transport::Burst* Begin(const transport::Flow& flow) override = 0;
  // The burst of the last Begin is to be sent. It need not have been when this
  // returns, but its flow may go away.
  virtual void Queue() = 0;
  // Sends what is queued, and tries again what is blocked.
  virtual void Flush() = 0;
  // The system took no more; Flush() is to be called again a little later.
  virtual bool blocked() const = 0;

  virtual const PortCounters& counters() const = 0;

  // In the child of fork: gives up all descriptors without a word to the
  // kernel objects behind them, which are the parent's. No lock needed;
  // nothing but the destructor may be called afterwards.
  virtual void AbandonInChild() = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_PORT_H_
