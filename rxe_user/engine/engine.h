// The engine of one device in this process: its lanes, each with a helper
// thread, sockets and a slot of the shared UDP port. All contexts that the
// program opens on the device share it.
#ifndef RXE_USER_ENGINE_ENGINE_H_
#define RXE_USER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/lane_set.h"
#include "rxe_user/devices/device.h"
#include "rxe_user/engine/lane.h"
#include "transport/base/frames.h"
#include "transport/dc/dc_connections.h"
#include "transport/raw/flow_table.h"
#include "wire/address.h"

namespace rxe_user {

// Queue pairs of an engine: half of a lane's numbers, so that numbers stay
// sparse and are not reused soon.
inline constexpr uint32_t kMaxOpenQueuePairs = 32768;

// An engine keeps the sockets of addresses that its interface no longer has
// while it has fewer addresses than this, since addresses may return.
inline constexpr size_t kKeptAddresses = 32;

// Multicast groups of an engine. Each takes one socket in each lane that joined
// it.
inline constexpr size_t kMaxGroups = 64;

class Engine {
 public:
  // The engine of `device`, created if there is none. Cheap: sockets, slots and
  // threads start with the first queue pair (AllocateQpn).
  static std::shared_ptr<Engine> For(std::shared_ptr<const Device> device);
  virtual ~Engine() = default;

  // False in a child of fork: the engine belongs to the parent. The child's
  // copies of its sockets are closed. Every call below then fails
  // (kFailedPrecondition, ENODEV) or does nothing, and none blocks.
  virtual bool alive() const = 0;

  // Called when a context of the program is opened and closed. Closing the last
  // one frees slots, sockets and threads, unless a queue pair number is in use
  // or a thread is in WaitReadable. Objects that the program did not destroy
  // can still be polled and destroyed. The next context's first queue pair
  // opens everything again.
  virtual void EnterContext() = 0;
  virtual void LeaveContext() = 0;

  // Returns an unused queue pair number. Bits 23..16 are the slot of a lane,
  // the one with the fewest queue pairs. The low bits are sparse and random,
  // and not recently released. The first call takes the slots, opens the
  // sockets of every address of the device and starts the helper threads.
  // Errors: kUnavailable (port 4791 is taken and there is no broker),
  // kPermissionDenied, kResourceExhausted (kMaxOpenQueuePairs), and what the
  // system refused (errno_status.h). The message names cause and remedy.
  virtual absl::StatusOr<uint32_t> AllocateQpn() = 0;
  // The same for types whose queue pairs are all in one lane (one_lane in
  // transport/qp/qp_type.h). XRC: each end has two queue pairs, and the ACK of
  // a message must not be later than the program's answer by the other one,
  // which only a common lane ensures. DC: targets share the connections of a
  // lane.
  virtual absl::StatusOr<uint32_t> AllocateOneLaneQpn() = 0;
  virtual void ReleaseQpn(uint32_t qpn) = 0;

  // The index of the lane that owns `qpn`; kNoLane if this engine does not.
  virtual int LaneOf(uint32_t qpn) = 0;
  virtual int lane_count() const = 0;
  virtual Lane& lane(int index) = 0;
  // The connections of the DC targets of a lane. That lane must be locked.
  virtual transport::DcConnections& dc_connections(int lane) = 0;

  // Makes sure that `local`, an address of the device, has a socket in each
  // lane; it may be newer than the first queue pair. May block for the port
  // broker's reply, so no lane may be locked.
  virtual absl::Status OpenAddress(const wire::IpAddress& local) = 0;
  // Keeps the sockets of an address open until ReleaseAddress has been called
  // as often. Other sockets are closed once the interface has lost the address
  // and kKeptAddresses are open, unless a queue pair is connected from it. An
  // address that is not open is allowed. No lane may be locked.
  virtual void HoldAddress(const wire::IpAddress& local) = 0;
  virtual void ReleaseAddress(const wire::IpAddress& local) = 0;

  // The interface joins the multicast group, and the lane of `qpn` receives its
  // datagrams, until LeaveGroup has been called as often. Errors:
  // kResourceExhausted (kMaxGroups), what the system refused. No lane may be
  // locked.
  virtual absl::Status JoinGroup(uint32_t qpn,
                                 const wire::IpAddress& group) = 0;
  virtual void LeaveGroup(uint32_t qpn, const wire::IpAddress& group) = 0;

  // --- Raw packets. All raw packet queue pairs are in one lane, whose flow
  // rules distribute the interface's frames among them.

  // As AllocateQpn, in that lane. EPERM: the process lacks CAP_NET_RAW.
  virtual absl::StatusOr<uint32_t> AllocateRawQpn() = 0;
  // Where these queue pairs send. Null before the first AllocateRawQpn.
  virtual transport::FrameSink* frames() = 0;
  // Adds `rule` until RemoveFlow. Errors: what the system refused. Call after
  // the first AllocateRawQpn, with no lane locked.
  virtual absl::Status AddFlow(transport::FlowRule* rule) = 0;
  virtual void RemoveFlow(transport::FlowRule* rule) = 0;

  // The UDP source port for a flow of `local_qpn`, a queue pair of this engine.
  // It is the port of one of the lane's transmit sockets, chosen by
  // `flow_label`, or, if that is 0, by the queue pair numbers (their product,
  // folded, as other implementations do). The port stays open while a queue
  // pair is connected with it; a datagram must be queued before the lane is
  // unlocked. The lane must be locked. Error: kResourceExhausted when too many
  // sockets are in use.
  virtual absl::StatusOr<uint16_t> SourcePort(const wire::IpAddress& local,
                                              uint32_t flow_label,
                                              uint32_t local_qpn,
                                              uint32_t remote_qpn) = 0;
  // Makes sure that the lane of `local_qpn` has a transmit socket with UDP port
  // `port`. Otherwise as SourcePort. Errors: as Port::OpenSourcePort.
  virtual absl::Status OpenSourcePort(const wire::IpAddress& local,
                                      uint16_t port, uint32_t local_qpn) = 0;
  // A result of SourcePort for the lane of `local_qpn` is valid while this
  // value does not change. The lane must be locked.
  virtual uint64_t SourcePortEpoch(uint32_t local_qpn) = 0;

  // Makes progress for an empty poll of a completion queue. `lanes` are those
  // of its queue pairs; one lane is locked at a time. True if it found
  // something to do.
  virtual bool Progress(LaneSet lanes) = 0;
  // The application is still consuming completions of earlier polls, without
  // polling: it counts as polling.
  virtual void RenewLease(LaneSet lanes) = 0;
  virtual void DropLease(LaneSet lanes) = 0;

  // Blocks until `fd` (the descriptor of a completion or asynchronous event
  // channel) is readable. Meanwhile makes progress: it waits on `fd` and the
  // sockets of `lanes` together, so that one wake-up suffices. Returns 0, or
  // EINTR when a signal handler ran. A cancellation point, left by unwinding:
  // callers must not be noexcept.
  virtual int WaitReadable(int fd, LaneSet lanes) = 0;
  // The same without progress. For a thread that waits for rare events and
  // should not be woken by packets.
  virtual int WaitPassive(int fd) = 0;

  // `listener` is called on changes of the device's interface, by a thread of
  // the engine. Calls begin with the first queue pair or the first WaitPassive,
  // whose thread first reports kUnknown. The listener must not call the engine.
  // When Remove returns it is not running and will not be called again.
  using LinkListener = std::function<void(LinkChange)>;
  virtual uint64_t AddLinkListener(LinkListener listener) = 0;
  virtual void RemoveLinkListener(uint64_t id) = 0;
  // Whether listeners are called. Until then callers must poll. Stays false
  // where the system refuses to report changes.
  virtual bool reports_link_changes() const = 0;

  // `ring` is called by a thread of the engine, `delay` after SetAlarm or a
  // little later, once however often it was set meanwhile. It may set alarms
  // and must call nothing else of the engine. Set may be called with a lane
  // locked; Remove as Alarms::Remove. Ids are never 0. Errors of Add: what the
  // system refused.
  virtual absl::StatusOr<uint64_t> AddAlarm(std::function<void()> ring) = 0;
  virtual void SetAlarm(uint64_t id, transport::Time delay) = 0;
  virtual void RemoveAlarm(uint64_t id) = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_H_
