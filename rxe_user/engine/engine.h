// The engine of one device within this process: its lanes, each with a helper
// thread, sockets and a slot of the shared UDP port. Contexts that the program
// opens on the same device share it.
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
#include "transport/raw/flow_table.h"
#include "wire/address.h"

namespace rxe_user {

// Queue pairs of an engine at once: half of the numbers that a lane has, so
// that they stay sparse and rest before they are used again.
inline constexpr uint32_t kMaxOpenQueuePairs = 32768;

// Sockets of addresses that the interface has no more are kept for so many of
// them, since addresses come back.
inline constexpr size_t kKeptAddresses = 32;

// Multicast groups of an engine at once: each has a socket for each lane that
// is in it.
inline constexpr size_t kMaxGroups = 64;

class Engine {
 public:
  // The engine of `device`, made when new. Cheap: sockets, slot and threads
  // come with the first queue pair (AllocateQpn).
  static std::shared_ptr<Engine> For(std::shared_ptr<const Device> device);
  virtual ~Engine() = default;

  // False in a child of fork: the engine stayed with the parent. Its sockets
  // are closed here, and every call below fails (kFailedPrecondition, ENODEV)
  // or does nothing; none hangs.
  virtual bool alive() const = 0;

  // A context of the program begins, and ends: with the last one go slots,
  // sockets and threads, though objects that it has left are still good for
  // polling and destroying. They come again with the first queue pair of a
  // context to come. Not while a number is in use, or a thread waits
  // (WaitReadable): then they stay.
  virtual void EnterContext() = 0;
  virtual void LeaveContext() = 0;

  // A queue pair number nobody uses: the slot bits of a lane on top (bits
  // 23..16), sparse and random below, not one given back recently. The lane is
  // the one with the fewest queue pairs. The first call takes the slots, opens
  // the sockets of every address of the device and starts the helpers.
  // Errors: kUnavailable (port 4791 taken, no broker), kPermissionDenied,
  // kResourceExhausted (kMaxOpenQueuePairs are there), and what the system
  // refused (errno_status.h); the message names cause and remedy.
  virtual absl::StatusOr<uint32_t> AllocateQpn() = 0;
  // The same for an XRC queue pair: all of them are of one lane. A connection
  // has two at each end, of which one sends the answers to what the other
  // receives. An ACK leaves with the answer or before it, and is taken in
  // before it, within a lane only.
  virtual absl::StatusOr<uint32_t> AllocateXrcQpn() = 0;
  virtual void ReleaseQpn(uint32_t qpn) = 0;

  // The index of the lane that `qpn` is of; kNoLane if it is none of ours.
  virtual int LaneOf(uint32_t qpn) = 0;
  virtual int lane_count() const = 0;
  virtual Lane& lane(int index) = 0;

  // Makes sure that `local`, an address of the device, has its sockets, one for
  // each lane (an address may have come up after the first queue pair). May
  // block for the port broker's answer: not to be called with a lane locked.
  virtual absl::Status OpenAddress(const wire::IpAddress& local) = 0;
  // The sockets of an address that has gone are closed when many others have
  // come (kKeptAddresses), unless a queue pair is connected from there, or
  // between Hold and as many calls of Release. Harmless if it is not open. Not
  // to be called with a lane locked.
  virtual void HoldAddress(const wire::IpAddress& local) = 0;
  virtual void ReleaseAddress(const wire::IpAddress& local) = 0;

  // The lane of `qpn` receives what comes to the multicast group on the
  // device's interface, which joins it; until as many calls of Leave. Errors:
  // kResourceExhausted (kMaxGroups are there), what the system refused. Not to
  // be called with a lane locked.
  virtual absl::Status JoinGroup(uint32_t qpn,
                                 const wire::IpAddress& group) = 0;
  virtual void LeaveGroup(uint32_t qpn, const wire::IpAddress& group) = 0;

  // --- Raw packets. All raw packet queue pairs are of one lane, which has the
  // rules that share the interface's frames out among them.

  // As AllocateQpn, of that lane. EPERM: the process may not send frames
  // (CAP_NET_RAW).
  virtual absl::StatusOr<uint32_t> AllocateRawQpn() = 0;
  // Where they send; null before the first AllocateRawQpn.
  virtual transport::FrameSink* frames() = 0;
  // `rule` is in force until RemoveFlow. Errors: what the system refused. Not
  // to be called with a lane locked, nor before the first AllocateRawQpn.
  virtual absl::Status AddFlow(transport::FlowRule* rule) = 0;
  virtual void RemoveFlow(transport::FlowRule* rule) = 0;

  // The UDP source port for a flow of `local_qpn`, one of ours: that of its
  // lane's transmit sockets which is chosen by `flow_label` when it is not 0,
  // else by the queue pair numbers (their product, folded, as peers do). Good
  // for a queue pair that is connected by it, and for datagrams that are
  // queued, before the lane is unlocked. That lane is locked. Fails when the
  // socket cannot be had: kResourceExhausted, when too many are in use.
  virtual absl::StatusOr<uint16_t> SourcePort(const wire::IpAddress& local,
                                              uint32_t flow_label,
                                              uint32_t local_qpn,
                                              uint32_t remote_qpn) = 0;
  // What SourcePort has said for the lane of `local_qpn` holds as long as this
  // stays the same. Locked as there.
  virtual uint64_t SourcePortEpoch(uint32_t local_qpn) = 0;

  // Progress for empty polls of completion queues: `lanes` are those of their
  // queue pairs (one lane is locked at a time).
  virtual bool Progress(LaneSet lanes) = 0;
  // The application is at what polls have brought it before, and makes no
  // progress meanwhile: it has not stopped polling.
  virtual void RenewLease(LaneSet lanes) = 0;
  virtual void DropLease(LaneSet lanes) = 0;

  // Blocks until `fd` (a completion or asynchronous channel's descriptor) is
  // readable, making progress meanwhile on the sockets of `lanes` and `fd`
  // together: one wake-up, not two. Returns 0, or EINTR when a signal handler
  // ran. A cancellation point, left by unwinding (so callers must not be
  // noexcept).
  virtual int WaitReadable(int fd, LaneSet lanes) = 0;
  // The same, but leaves progress to others: for a thread that waits for what
  // seldom comes, which packets meant for others should not wake.
  virtual int WaitPassive(int fd) = 0;

  // `listener` is told of changes of the device's interface, by a thread of
  // the engine, from the first queue pair or the first WaitPassive on: then, by
  // the thread of that call, of kUnseen first. It must not call the engine.
  // Remove returns when it is not running and will not be called again.
  using LinkListener = std::function<void(LinkChange)>;
  virtual uint64_t AddLinkListener(LinkListener listener) = 0;
  virtual void RemoveLinkListener(uint64_t id) = 0;
  // Whether they are told. Until then (or for ever, where the system refuses
  // it) who wants to know of changes has to look.
  virtual bool tells_of_links() const = 0;

  // `ring` is called by a thread of the engine, once for each time that it is
  // set and has not rung since, `delay` after that or a little later. It may
  // set alarms and must call nothing else of the engine. Set may be called with
  // a lane locked, Remove as Alarms::Remove. Ids are never 0. Errors of Add:
  // what the system refused.
  virtual absl::StatusOr<uint64_t> AddAlarm(std::function<void()> ring) = 0;
  virtual void SetAlarm(uint64_t id, transport::Time delay) = 0;
  virtual void RemoveAlarm(uint64_t id) = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_H_
