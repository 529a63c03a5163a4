// The connection manager service (cm_service.h).
//
// Locks: `opening_` serialises the start and new addresses, and is held while
// the port broker is waited for; `mutex_` guards the rest, is held for moments,
// also by fork(), and is taken after `opening_`. Handlers are called with
// neither.
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
#include "rxe_user/cm/translated_mads.h"
#include "rxe_user/engine/control_thread.h"
#include "rxe_user/observe/stat_socket.h"
#include "transport/cm/connection_manager.h"

namespace rxe_user {

class CmServiceImpl final : public CmService, private ForkGuard {
 public:
  CmServiceImpl(AcquireSlot acquire_slot,
                const transport::cm::Config& config = {});
  ~CmServiceImpl() override;

  // In a child of fork(): it was made before.
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
  int Seen(transport::cm::CmId id) override;
  int Accept(transport::cm::CmId id, const wire::CmRep& rep,
             uint32_t ece_options = 0) override;
  int Reject(transport::cm::CmId id,
             const transport::cm::RejectOptions& options) override;
  int Delay(transport::cm::CmId id, uint8_t service_timeout) override;
  int Establish(transport::cm::CmId id,
                std::span<const uint8_t> private_data) override;
  int NotifyEstablished(transport::cm::CmId id) override;
  int Disconnect(transport::cm::CmId id,
                 std::span<const uint8_t> private_data) override;
  int Destroy(transport::cm::CmId id) override;
  int Resolve(const transport::cm::ResolveOptions& options,
              std::shared_ptr<CmEventHandler> handler,
              transport::cm::CmId* id) override;
  int AnswerService(transport::cm::CmId id, const wire::CmSidrRep& rep,
                    uint32_t ece_options = 0) override;
  std::optional<transport::cm::State> state(
      transport::cm::CmId id) const override;
  size_t size() const override;
  transport::cm::Counters counters() const override;

 private:
  using Handler = std::shared_ptr<CmEventHandler>;
  using Manager = transport::cm::ConnectionManager;
  using Time = transport::Time;

  class Random final : public transport::cm::RandomSource {
   public:
    uint32_t Next32() override;
  };
  struct ServiceEntry {
    Service service;
    transport::cm::ListenerId listener = 0;  // 0: does not listen
    Handler handler;
  };

  static Time Now();
  // DestroyAll, with mutex_ held.
  void DestroyAllLocked();

  // --- Start (cm_service_open.cc). These hold opening_.
  int Open();
  absl::Status Start();
  int OpenLocked(const LocalAddress& local);
  // All addresses of all devices: those that cannot be had are left out. False:
  // there is no memory to know, or to open one.
  bool OpenAll();
  // Those that have gone from their interfaces and that nobody uses, while many
  // are open. The control thread's, which does not wait for them then.
  void CloseGone();
  bool IsUsed(const LocalAddress& local) const;
  void Watch();
  // For the next port broker, which asks with locks of the slot held: so the
  // slot is not to be called with mutex_ held.
  std::vector<OpenConnection> OpenConnections() const;
  static OpenConnection OpenOf(const transport::cm::ConnectedPeer& peer);

  // --- Calls.
  // Runs `call` on the manager, and does what it wants done.
  template <typename F>
  int Call(F&& call);
  int ReserveOne(ServiceHandle handle, const Service& service);
  // Until the handler of no event that `matches` is being called.
  void WaitForHandler(std::unique_lock<std::mutex>& lock,
                      const std::function<bool()>& matches);
  // Keeps the handler of an id that `make` begins, and sends.
  template <typename F>
  int Begin(const wire::IpAddress& local, Handler handler,
            transport::cm::CmId* id, F&& make);

  // --- Control thread (cm_service_events.cc).
  void OnBell();
  void OnBroker();
  void OnAddresses();
  void OnSocket(const CmSockets::Opened& opened);
  void ReadSocket(const CmSockets::Opened& opened);
  // The RTUs that have come to the address before what the broker hands on: a
  // connection is not disconnected before it is established.
  void ReadSteered(const wire::IpAddress& local);
  void OnUndelivered(const CmSockets::Opened& opened);
  // The MAD of a datagram to queue pair 1, with who has sent it; absent if it
  // is none, or its ICRC is wrong.
  std::optional<transport::cm::IncomingMad> Verify(
      const transport::cm::MadFlow& flow, std::span<const uint8_t> bytes);
  void OnDatagram(const transport::cm::MadFlow& flow,
                  std::span<const uint8_t> bytes);
  // What comes to the slot's socket where a broker has queue pair 1: an RTU,
  // and it is this process that tells the broker.
  void OnSteered(const transport::cm::MadFlow& flow,
                 std::span<const uint8_t> bytes);
  // Sends, and takes events, of the manager. Holds mutex_.
  void Drain();
  void Dispatch();
  // Whether somebody is to be told of next_: `*handler`. Else that is who no
  // longer needs to be, and goes without the lock held.
  bool FindHandler(Handler* handler);

  // --- ForkGuard.
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override;

  const AcquireSlot acquire_slot_;
  transport::cm::Config config_;
  std::atomic<bool> dead_ = false;
  Random random_;

  std::mutex opening_;
  bool watching_ = false;     // interfaces and addresses; under opening_
  bool listens_all_ = false;  // on addresses that come; under opening_
  OnLinkChange on_link_;      // under opening_, set before the start
  // What is made by Start stays until the end, and may be used without a lock
  // from then on.
  std::atomic<bool> open_ = false;
  CmSockets sockets_;
  NeighborWaits neighbors_;
  std::unique_ptr<Slot> slot_;
  std::unique_ptr<StatServer> stat_server_;  // null where it is refused
  std::unique_ptr<ControlThread> owned_control_;
  // The same, also while its end is waited for.
  ControlThread* control_ = nullptr;

  mutable std::mutex mutex_;
  // All that follows is under mutex_.
  std::optional<Manager> manager_;
  std::map<transport::cm::CmId, Handler> handlers_;
  ServiceTable own_services_;  // all of holder 0
  std::map<ServiceHandle, ServiceEntry> services_;
  std::map<transport::cm::ListenerId, ServiceHandle> listening_;
  ServiceHandle last_handle_ = 0;
  // The event of which a handler is being told, if `running_`, or is to be told
  // again, since there was no memory.
  std::optional<transport::cm::Event> next_;
  bool running_ = false;
  std::thread::id dispatcher_;
  // running_ has become false.
  std::unique_ptr<std::condition_variable> done_ =
      std::make_unique<std::condition_variable>();

  TranslatedMads translated_;  // of the control thread
  // Of the control thread: what is to be told of, and when that is tried again,
  // since there was no memory.
  std::vector<LinkWatch::News> news_;
  ControlThread::Clock::time_point news_retry_ =
      ControlThread::Clock::time_point::max();

  // When the control thread is to look at the manager. Read without a lock.
  std::atomic<Time> deadline_{transport::kNever};
  // There may be addresses to close.
  std::atomic<bool> close_gone_ = false;
  // What the slot, or neighbors_, waits for has changed.
  std::atomic<bool> refresh_ = false;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_SERVICE_IMPL_H_
