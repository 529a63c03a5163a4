// Stream sockets: rsocket(7) with SOCK_STREAM.
#ifndef VERBS_API_RSOCKETS_STREAM_H_
#define VERBS_API_RSOCKETS_STREAM_H_

#include <rdma/rdma_cma.h>

#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "verbs_api/rsockets/connection_thread.h"
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
  kAccepting,  // the REP is sent; only the listener knows the stream
  kConnected,
  kDisconnected,  // by either end; received data can still be read
  kFailed,        // not connected, or the connection broke
};

class Stream final : public Socket {
 public:
  static int Create(int domain, std::shared_ptr<Socket>* out);
  ~Stream() override;

  int type() const override { return SOCK_STREAM; }
  int Bind(const sockaddr* address, socklen_t length) override;
  int Listen(int backlog) override;
  int Accept(std::shared_ptr<Socket>* out, sockaddr_storage* peer) override;
  int Connect(const sockaddr* address, socklen_t length) override;
  int Shutdown(int how) override;
  void Close(Clock::time_point begin) override;
  void AnnounceClose() override;
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
  // Makes one thread at a time send, until it is destroyed. `mutex_` is held.
  class Turn {
   public:
    Turn() = default;
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // Waits, like Await, until no other thread holds the turn.
    int Take(Stream* stream, std::unique_lock<std::mutex>& lock,
             bool nonblocking, const Deadline& deadline);

   private:
    Stream* stream_ = nullptr;
  };
  // A connection request of a peer.
  struct Request {
    rdma_cm_id* id;
    std::optional<ConnectionData> peer;  // absent: the peer is not an rsocket
  };
  // An answered request whose peer has not confirmed yet.
  struct Answered {
    std::shared_ptr<Stream> stream;
    Clock::time_point since;
    ConnectionThread::Watch watch;
    std::array<uint8_t, 16> source;  // the peer's GID
    bool overdue = false;            // its slot is free for others
  };
  // A connection that can be accepted, or a negative errno value for accept(2)
  // to return: why this end could not create one.
  struct Waiting {
    std::shared_ptr<Stream> stream;
    int error;
  };
  // The connections of a listener that are not accepted yet.
  struct Backlog {
    // The number of slots in use.
    size_t size() const { return answered.size() - overdue + waiting.size(); }

    std::map<const Stream*, Answered> answered;
    size_t overdue = 0;  // of `answered`
    std::deque<Waiting> waiting;
  };
  // Memory of this host that the peer may write (index >= 0), or memory that
  // only this host has mapped.
  struct Mapping {
    ibv_mr* mr;
    uint64_t offset;
    int64_t index;
    bool sent;  // to the peer
  };

  Stream(int domain, const Settings& settings) : Socket(domain, settings) {}
  int OpenChannel();
  // Sets the options on `id_`.
  int SetIdOptions();

  // --- Listening: stream_listen.cc. `dropped` receives streams for the caller
  // to destroy without the lock.
  // On the connection thread: answers a request if the backlog has space, and
  // has itself called again for the next one.
  void ServeRequests();
  // On the connection thread: processes an answered request.
  void ServeAnswered(const Stream* stream);
  // Whether the backlog has a slot for one more request, or an overdue peer
  // whose slot can be taken. If not, sets the timer for the next slot that
  // becomes overdue.
  bool HasBacklogSlot(Backlog* dropped);
  void DropOverdue(Backlog* dropped);
  // `error`: the result of Answer.
  void Admit(std::shared_ptr<Stream> stream, int error, Backlog* dropped);
  void UpdateAnswered(const Stream* stream, Backlog* dropped);
  // As in TCP: binds again to the same address, resets connections that were
  // not accepted, and refuses requests. Unlocks.
  int StopListening(std::unique_lock<std::mutex>& lock);
  // Unlocks.
  void DropBacklog(std::unique_lock<std::mutex>& lock);

  // --- For a stream in a backlog. Takes its lock.
  // Answers a request. Returns 0, -ECONNABORTED if the peer is gone or is not
  // an rsocket, or another negative errno value for an error at this end.
  int Answer(const Request& request);
  // Whether the peer has confirmed, even if it has ended since. False: it never
  // will. Absent: not yet.
  std::optional<bool> TakeAnswer();
  // The stream is accepted, whatever its state. Returns the address like
  // PeerAddress.
  void OnAccepted(sockaddr_storage* peer);

  // --- Events of the connection manager: stream_connect.cc.
  // On the connection thread: continues a connect(2).
  void ServeConnecting();
  bool TakeEvent();
  bool TakeEvents();
  void OnEvent(const rdma_cm_event& event);
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
  // Waits until it is connected. Returns 0 or the error.
  int AwaitConnected(std::unique_lock<std::mutex>& lock, bool nonblocking,
                     const Deadline& deadline);
  // Returns 0 or the error of a failed connection, which is reported once.
  int Outcome();
  bool PollEndpoint();
  void OnControl(Control control);
  // Await for functions that neither a signal nor a lack of descriptors ends.
  template <typename Done>
  int AwaitPatiently(std::unique_lock<std::mutex>& lock,
                     const Deadline& deadline, Done done);
  // Sends `control` to the peer as soon as that is possible.
  int SendControl(std::unique_lock<std::mutex>& lock, Control control,
                  const Deadline& deadline);
  int SetKeepalive();

  // --- Data.
  // Waits, like Await, until the stream is connected, `turn` is taken, and the
  // peer knows all earlier mappings.
  int BeginWrite(std::unique_lock<std::mutex>& lock, bool nonblocking,
                 const Deadline& deadline, Turn& turn);
  int SendSome(std::unique_lock<std::mutex>& lock, IovCursor& data,
               bool nonblocking, const Deadline& deadline);
  size_t Read(IovCursor& data, bool peek);
  bool can_read() const;
  bool can_write();
  // The error for sending.
  int WriteError() const;
  int SendMappings(std::unique_lock<std::mutex>& lock, bool nonblocking,
                   const Deadline& deadline);
  int64_t FreeMappingIndex() const;
  // Part of Close.
  void CloseConnection(std::unique_lock<std::mutex>& lock,
                       Clock::time_point begin);

  // One thread sends at a time, so that its bytes stay together.
  bool sending_ = false;
  int turns_wanted_ = 0;  // threads that wait for the turn

  StreamState state_ = StreamState::kIdle;
  // The halves of the connection that are still open: the peer's and ours.
  bool readable_ = false;
  bool writable_ = false;
  bool announced_close_ = false;
  // Whether it was ever connected.
  bool established_ = false;
  // Whether it waits to be accepted.
  bool in_backlog_ = false;
  // Whether a request was sent to the peer.
  bool request_sent_ = false;
  // A connect(2) returned before the result was known.
  bool connect_result_pending_ = false;
  // A failure that the next data call must report.
  int data_error_ = 0;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::unique_ptr<Endpoint> endpoint_;
  // Watches `channel_` on the connection thread.
  ConnectionThread::Watch watch_;
  std::deque<Request> requests_;  // received and not answered yet
  Backlog backlog_;
  size_t backlog_capacity_ = 0;
  size_t max_overdue_ = 0;  // limit of Backlog::overdue
  // Set while requests wait for a slot: when the next slot becomes overdue.
  rxe_user::UniqueFd overdue_timer_;
  ConnectionThread::Watch overdue_watch_;
  std::list<Mapping> mappings_;
  bool mappings_pending_ = false;
  rxe_user::UniqueFd keepalive_timer_;
  std::vector<Message> messages_;  // scratch
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_STREAM_H_
