// Stream sockets: rsocket(7) with SOCK_STREAM.
#ifndef VERBS_API_RSOCKETS_STREAM_H_
#define VERBS_API_RSOCKETS_STREAM_H_

#include <rdma/rdma_cma.h>

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "verbs_api/rsockets/endpoint.h"
#include "verbs_api/rsockets/socket.h"

namespace rsockets {

enum class StreamState : uint8_t {
  kIdle,
  kBound,
  kListening,
  kResolvingAddress,
  kResolvingRoute,
  kConnecting,
  kAccepting,  // the REP is sent
  kConnected,
  kDisconnected,  // by either end; what has come can still be read
  kFailed,        // never connected, or the connection broke
};

class Stream final : public Socket {
 public:
  static int Create(int domain, std::shared_ptr<Socket>* out);
  ~Stream() override;

  int type() const override { return SOCK_STREAM; }
  int Bind(const sockaddr* address, socklen_t length) override;
  int Listen(int backlog) override;
  int Accept(std::shared_ptr<Socket>* out) override;
  int Connect(const sockaddr* address, socklen_t length) override;
  int Shutdown(int how) override;
  void Close(Clock::time_point begin) override;
  void SayGoodbye() override;
  ssize_t Send(IovCursor data, int flags, const sockaddr* to,
               socklen_t to_length) override;
  ssize_t Receive(IovCursor data, int flags, sockaddr* from,
                  socklen_t* from_length) override;
  int LocalAddress(sockaddr_storage* out) override;
  int PeerAddress(sockaddr_storage* out) override;
  off_t MapMemory(void* memory, size_t length, int protection,
                  off_t offset) override;
  int UnmapMemory(void* memory, size_t length) override;
  ssize_t WriteMapped(IovCursor data, off_t offset, int flags) override;

 protected:
  bool Progress() override;
  void Arm() override;
  bool Drain() override;
  short Ready() override;
  int Apply(int level, int name, int value) override;
  int MaxSegment() override;
  bool HasBuffers() const override { return endpoint_ != nullptr; }

 private:
  // The turn of a thread that sends, until this ends. With `mutex_`.
  class Turn {
   public:
    Turn() = default;
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // As Await: not before the turn of another thread has ended.
    int Take(Stream* stream, std::unique_lock<std::mutex>& lock,
             bool nonblocking, const Deadline& deadline);

   private:
    Stream* stream_ = nullptr;
  };
  // A connection that somebody asks for.
  struct Request {
    rdma_cm_id* id;
    ConnectionData peer;
  };
  // Memory of this host that the peer may write (index >= 0), or only this one.
  struct Mapping {
    ibv_mr* mr;
    uint64_t offset;
    int64_t index;
    bool told;  // the peer knows of it
  };

  Stream(int domain, const Settings& settings) : Socket(domain, settings) {}
  int OpenChannel();
  // Takes a request over: 0, -ECONNABORTED if its peer has gone, or another
  // negative errno value, of this end.
  int Serve(const Request& request);
  void DropRequests();
  // As TCP does: it is bound again, to the same address, and who wants to
  // connect is refused.
  int StopListening();
  // The options that `id_` has to know.
  int SetIdOptions();

  // --- Events of the connection manager: stream_connect.cc.
  bool TakeEvents();
  void OnEvent(const rdma_cm_event& event);
  void OnRequest(const rdma_cm_event& event);
  void OnAddressResolved();
  void OnRouteResolved();
  void OnEstablished(const rdma_cm_event& event);
  int OpenEndpoint();

  // --- States.
  bool opening() const {
    return state_ >= StreamState::kResolvingAddress &&
           state_ <= StreamState::kAccepting;
  }
  bool connected() const { return state_ == StreamState::kConnected; }
  void Fail(int error);
  void SetConnected();
  void SetDisconnected();
  // 0 once it is connected, or why not.
  int AwaitConnected(std::unique_lock<std::mutex>& lock, bool nonblocking,
                     const Deadline& deadline);
  bool PollEndpoint();
  void OnControl(Control control);
  // Says `control` to the peer, when it can be said.
  int SendControl(std::unique_lock<std::mutex>& lock, Control control,
                  const Deadline& deadline);
  int SetKeepalive();

  // --- Data.
  int SendSome(std::unique_lock<std::mutex>& lock, IovCursor& data,
               bool nonblocking, const Deadline& deadline);
  size_t Read(IovCursor& data, bool peek);
  bool can_read() const;
  bool can_write();
  // Why nothing can be sent.
  int WriteError() const;
  int TellMappings(std::unique_lock<std::mutex>& lock, bool nonblocking,
                   const Deadline& deadline);
  int64_t FreeMappingIndex() const;
  // Until the peer of what was accepted is known to be connected, or has
  // failed.
  void AwaitEstablished(std::unique_lock<std::mutex>& lock,
                        const Deadline& deadline);
  // As Close.
  void CloseConnection(std::unique_lock<std::mutex>& lock,
                       Clock::time_point begin);

  // One thread sends at a time, so that what it sends stays together.
  bool sending_ = false;
  int turns_wanted_ = 0;  // threads that wait until it ends

  StreamState state_ = StreamState::kIdle;
  // What is left of the connection: the peer's half and ours.
  bool readable_ = false;
  bool writable_ = false;
  bool said_goodbye_ = false;
  // A failure that a call for data has to report yet.
  int data_error_ = 0;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::unique_ptr<Endpoint> endpoint_;
  std::deque<Request> requests_;
  std::vector<rdma_cm_id*> refused_;  // requests that are no rsocket's
  std::list<Mapping> mappings_;
  bool mappings_pending_ = false;
  rxe_user::UniqueFd keepalive_timer_;
  std::vector<Message> messages_;  // scratch
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_STREAM_H_
