// The connection manager service (cm_service.h).
//
// Locks: `opening_` serializes the start and new addresses, and is held while
// waiting for the port broker. `mutex_` guards the rest, is held briefly, also
// by fork(), and is taken after `opening_`. Handlers are called with neither.
#ifndef RXE_USER_CM_CM_SERVICE_IMPL_H_
#define RXE_USER_CM_CM_SERVICE_IMPL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/broker/service_table.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/cm/cm_service.h"
#include "rxe_user/cm/cm_sockets.h"
#include "rxe_user/devices/device.h"
#include "rxe_user/engine/control_thread.h"
#include "rxe_user/observe/stat_socket.h"
#include "transport/cm/connection_manager.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

class CmServiceImpl final : public CmService, private ForkGuard {
 public:
  // `observer`, `faults`: as Get.
  CmServiceImpl(AcquireSlot acquire_slot,
                const transport::cm::Config& config = {},
                transport::PacketObserver* observer = nullptr,
                CmFaults* faults = nullptr);
  ~CmServiceImpl() override;

  // True in a child of fork(), where the service belongs to the parent.
  bool dead() const { return dead_; }

  void DestroyAll() override;
  int OpenAddress(const LocalAddress& local) override;
  void WatchLinks(OnLinkChange on_change) override;
  int AwaitNeighbor(const LocalAddress& local, const wire::IpAddress& remote,
                    int timeout_ms, std::shared_ptr<NeighborHandler> handler,
                    NeighborWait* wait) override;
  void CancelNeighbor(NeighborWait wait) override;
  int Reserve(const ServiceOptions& options, ServiceHandle* handle,
              uint64_t* service_id) override;
  int Share(ServiceHandle handle, bool ipv6_only, bool reuse) override;
  int Listen(ServiceHandle handle, size_t backlog,
             std::shared_ptr<CmEventHandler> handler) override;
  int Release(ServiceHandle handle) override;
  int Connect(const transport::cm::ConnectOptions& options,
              std::shared_ptr<CmEventHandler> handler,
              transport::cm::CmId* id) override;
  int SetHandler(transport::cm::CmId id,
                 std::shared_ptr<CmEventHandler> handler) override;
  int Destroy(transport::cm::CmId id) override;
  int Resolve(const transport::cm::ResolveOptions& options,
              std::shared_ptr<CmEventHandler> handler,
              transport::cm::CmId* id) override;
  std::optional<transport::cm::State> state(
      transport::cm::CmId id) const override;
  size_t size() const override;
  transport::cm::Counters counters() const override;

 private:
  using Handler = std::shared_ptr<CmEventHandler>;

  class Random final : public transport::cm::RandomSource {
   public:
    uint32_t Next32() override;
  };
  struct ServiceEntry {
    Service service;
    transport::cm::ListenerId listener = 0;  // 0: does not listen
    Handler handler;
  };

  static constexpr size_t kMaxHeld = 4096;
  // A MAD that a fault holds: `in` or `out`.
  struct HeldMad {
    std::optional<transport::cm::OutgoingMad> out;
    transport::cm::IncomingMad in;                  // its bytes are `bytes`
    std::optional<transport::cm::CmId> steered_to;  // as for Take
    std::vector<uint8_t> bytes;
  };

  static Time Now();
  // mutex_ held.
  void DestroyAllLocked();

  // --- Start (cm_service_open.cc). opening_ held.
  int Open();
  absl::Status Start();
  int OpenLocked(const LocalAddress& local);
  // Opens all addresses of `devices`, except those that fail. 0, ENOMEM: no
  // memory to list or open them all, or ETIMEDOUT: the broker does not answer.
  int OpenAll(const absl::StatusOr<Devices>& devices);
  // Closes unused addresses that their interfaces no longer have, if many are
  // open. For the control thread only, which then does not wait on them.
  void CloseGoneAddresses();
  bool IsUsed(const LocalAddress& local) const;
  void Watch();
  // The connections for the next port broker. Called with the slot's locks
  // held, so the slot must not be called with mutex_ held.
  std::vector<OpenConnection> OpenConnections() const;
  static OpenConnection OpenOf(const transport::cm::ConnectedPeer& peer);

  // --- Calls.
  int Call(
      absl::FunctionRef<transport::cm::Result(Manager&, Time)> call) override;
  int ReserveOne(ServiceHandle handle, const Service& service);
  // Waits until no handler is running for an event that `matches`.
  void WaitForHandler(std::unique_lock<std::mutex>& lock,
                      const std::function<bool()>& matches);
  // `make` creates an id. Stores its handler, and sends the MADs.
  template <typename F>
  int Begin(const wire::IpAddress& local, Handler handler,
            transport::cm::CmId* id, F&& make);

  // --- Control thread (cm_service_events.cc).
  void OnBell();
  void OnBroker();
  void OnAddresses();
  void OnSocket(const CmSockets::Opened& opened);
  void ReadSocket(const CmSockets::Opened& opened);
  // Processes the RTUs that arrived at the address's socket before a MAD from
  // the broker, so that a connection is established before it is disconnected.
  void ReadSteered(const wire::IpAddress& local);
  void OnUndelivered(const CmSockets::Opened& opened);
  // The MAD of a datagram to queue pair 1, with its sender. Absent if the
  // datagram is not a MAD, or its ICRC is wrong.
  std::optional<transport::cm::IncomingMad> Verify(
      const transport::cm::MadFlow& flow, std::span<const uint8_t> bytes);
  void OnDatagram(const transport::cm::MadFlow& flow,
                  std::span<const uint8_t> bytes);
  // A datagram at the slot's socket while a broker owns queue pair 1: an RTU.
  // Reports it to the broker.
  void OnSteered(const transport::cm::MadFlow& flow,
                 std::span<const uint8_t> bytes);
  // --- Faults on command. mutex_ held.
  CmFaults::Fate FateOf(bool sent, std::span<const uint8_t> mad,
                        const wire::IpAddress& peer);
  // Gives the MAD to the manager (Send: sends it), as often and as late as its
  // fate says. `steered_to`: the connection of an RTU that did not come through
  // the broker. If the MAD establishes a connection, returns the peer, of which
  // the broker must be told.
  std::optional<transport::cm::ConnectedPeer> Take(
      const transport::cm::IncomingMad& in,
      std::optional<transport::cm::CmId> steered_to = std::nullopt);
  std::optional<transport::cm::ConnectedPeer> PassToManager(
      const transport::cm::IncomingMad& in,
      std::optional<transport::cm::CmId> steered_to, int copies = 1);
  void Send(const transport::cm::OutgoingMad& mad);
  // Whether one more MAD may be held. If not, it is lost.
  bool HasRoomToHold();
  // Gives the manager, or sends, the MADs that a fault held until now. Returns
  // the peers of which the broker must be told.
  std::vector<transport::cm::ConnectedPeer> ReleaseHeld();

  // Sends the manager's MADs, and rings the bell if the next deadline is
  // earlier than before. mutex_ held.
  void Drain();
  void Dispatch();
  // True: `*handler` gets next_. False: no handler gets it; `*handler` is then
  // an old handler that must be destroyed without the lock held.
  bool FindHandler(Handler* handler);

  // --- ForkGuard.
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override;

  const AcquireSlot acquire_slot_;
  transport::PacketObserver* const observer_;
  CmFaults* const faults_;
  transport::cm::Config config_;
  std::atomic<bool> dead_ = false;
  Random random_;

  std::mutex opening_;
  bool watching_ = false;     // interfaces and addresses; under opening_
  bool listens_all_ = false;  // on new addresses too; under opening_
  OnLinkChange on_link_;      // under opening_; set before the start
  // Created by Start; valid until the end and used without a lock.
  std::atomic<bool> open_ = false;
  CmSockets sockets_;
  NeighborWaits neighbors_;
  std::unique_ptr<Slot> slot_;
  std::unique_ptr<StatServer> stat_server_;  // null where it is refused
  std::unique_ptr<ControlThread> owned_control_;
  // owned_control_.get(); also valid while the thread is being joined.
  ControlThread* control_ = nullptr;

  mutable std::mutex mutex_;
  // mutex_ guards all that follows.
  std::optional<Manager> manager_;
  std::map<transport::cm::CmId, Handler> handlers_;
  std::multimap<Time, HeldMad> held_;
  ServiceTable own_services_;  // holder 0 has all
  std::map<ServiceHandle, ServiceEntry> services_;
  std::map<transport::cm::ListenerId, ServiceHandle> listening_;
  ServiceHandle last_handle_ = 0;
  // The event that a handler is processing (`running_`), or must process again
  // because there was no memory.
  std::optional<transport::cm::Event> next_;
  bool running_ = false;
  std::thread::id dispatcher_;
  // Signaled when running_ becomes false.
  std::unique_ptr<std::condition_variable> done_ =
      std::make_unique<std::condition_variable>();

  // Control thread only: changes that on_link_ has not been told yet, and when
  // to retry after a lack of memory.
  std::vector<LinkWatch::Change> changes_;
  ControlThread::Clock::time_point changes_retry_ =
      ControlThread::Clock::time_point::max();

  // When the control thread must run the manager. Read without a lock.
  std::atomic<Time> deadline_{transport::kNever};
  // Set when there may be addresses for CloseGoneAddresses to close.
  std::atomic<bool> close_gone_addresses_ = false;
  // Set when the slot or neighbors_ waits for something else.
  std::atomic<bool> refresh_ = false;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_SERVICE_IMPL_H_
