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
  kAccepting,  // the REP is sent; its listener alone knows of it
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
  int Accept(std::shared_ptr<Socket>* out, sockaddr_storage* peer) override;
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
    std::optional<ConnectionData> peer;  // nothing: it is no rsocket
  };
  // One that was answered, and whose peer has not said yet that it knows.
  struct Answered {
    std::shared_ptr<Stream> stream;
    Clock::time_point since;
    ConnectionThread::Watch watch;
    std::array<uint8_t, 16> source;  // the peer's address
    bool overdue = false;            // it has no place any more
  };
  // One that waits to be accepted; or why one could not be made here, a
  // negative errno value, which accept(2) tells.
  struct Waiting {
    std::shared_ptr<Stream> stream;
    int error;
  };
  // What a listener has for those who accept.
  struct Backlog {
    // Places that are taken.
    size_t size() const { return answered.size() - overdue + waiting.size(); }

    std::map<const Stream*, Answered> answered;
    size_t overdue = 0;  // of `answered`
    std::deque<Waiting> waiting;
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
  // The options that `id_` has to know.
  int SetIdOptions();

  // --- Listening: stream_listen.cc. What `dropped` gets ends without the lock.
  // The connection thread's: answers requests while there are places.
  void ServeRequests();
  // The same for one that was answered.
  void ServeAnswered(const Stream* stream);
  // Whether there is a place for one more request, or the place of one whose
  // peer is overdue. If not, the thread looks again when that may change.
  bool HasPlace(Backlog* dropped);
  void DropOverdue(Backlog* dropped);
  // `error`: of Answer.
  void Admit(std::shared_ptr<Stream> stream, int error, Backlog* dropped);
  void TakeNewsOf(const Stream* stream, Backlog* dropped);
  // As TCP does: it is bound again, to the same address, who waits to be
  // accepted is reset, and who wants to connect is refused. Unlocks.
  int StopListening(std::unique_lock<std::mutex>& lock);
  // Unlocks.
  void DropBacklog(std::unique_lock<std::mutex>& lock);

  // --- Of a stream that is in a backlog. Takes its lock.
  // Takes a request over: 0, -ECONNABORTED if its peer has gone or is no
  // rsocket, or another negative errno value, of this end.
  int Answer(const Request& request);
  // Whether the peer has said that it knows, even if it has ended since; false:
  // it never will. Nothing: it may yet.
  std::optional<bool> TakeAnswer();
  // Somebody accepts it: as PeerAddress, whatever has become of it.
  void LeaveBacklog(sockaddr_storage* peer);

  // --- Events of the connection manager: stream_connect.cc.
  // The connection thread's: goes on with what connect(2) has begun.
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
  // 0 once it is connected, or why not.
  int AwaitConnected(std::unique_lock<std::mutex>& lock, bool nonblocking,
                     const Deadline& deadline);
  // 0, or why it has failed, which is told once.
  int Outcome();
  bool PollEndpoint();
  void OnControl(Control control);
  // Says `control` to the peer, when it can be said.
  int SendControl(std::unique_lock<std::mutex>& lock, Control control,
                  const Deadline& deadline);
  int SetKeepalive();

  // --- Data.
  // As Await: until it is connected, `turn` is had, and the peer knows of the
  // mappings that were made before.
  int BeginWrite(std::unique_lock<std::mutex>& lock, bool nonblocking,
                 const Deadline& deadline, Turn& turn);
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
  // It was connected.
  bool established_ = false;
  // Nobody has accepted it yet.
  bool in_backlog_ = false;
  // The peer was asked for it.
  bool asked_ = false;
  // A call of connect(2) has left without a word of how it has gone.
  bool connect_untold_ = false;
  // A failure that a call for data has to report yet.
  int data_error_ = 0;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::unique_ptr<Endpoint> endpoint_;
  // Of `channel_`, while the connection thread has it.
  ConnectionThread::Watch watch_;
  std::deque<Request> requests_;  // taken, and not answered yet
  Backlog backlog_;
  size_t places_ = 0;        // of `backlog_`
  size_t most_overdue_ = 0;  // the same
  // When the next one is overdue, while requests wait for its place.
  rxe_user::UniqueFd overdue_timer_;
  ConnectionThread::Watch overdue_watch_;
  std::list<Mapping> mappings_;
  bool mappings_pending_ = false;
  rxe_user::UniqueFd keepalive_timer_;
  std::vector<Message> messages_;  // scratch
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_STREAM_H_
