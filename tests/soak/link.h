// One end of a connection of the soak test, and its traffic: operations of all
// kinds, as many as there is room for, whose contents are verified.
//
// Messages (SEND, SEND with immediate, WRITE with immediate) of a direction are
// numbered. The receiver verifies each and writes the number of the last one
// into a word of the sender's (its credit), so at most kWindow are on their
// way. Over RC every number comes, in order; over UC some may be missing. READs
// and atomics are verified where they were posted, WRITEs by a READ after them.
#ifndef TESTS_SOAK_LINK_H_
#define TESTS_SOAK_LINK_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/soak/station.h"

namespace soak {

struct LinkOptions {
  int id = 0;
  int generation = 0;  // of its connections, which are made anew after faults
  bool reliable = true;
  bool shared_receives = false;
  int timeout = 16;  // Local ACK Timeout
  ibv_mtu mtu = IBV_MTU_1024;
};

class Link {
 public:
  enum class State {
    kMade,       // not connected
    kConnected,  // receives, sends nothing of its own accord
    kRunning,    // sends
    kQuieting,   // completes what it has begun
    kQuiet,      // has done so
    kBroken,     // an error has completed
    kDropping,   // is on its way out
    kDropped,    // everything posted has completed
  };
  using Report = std::function<void(nlohmann::json)>;

  // Makes a queue pair and memory. `report` hears of what happens.
  Link(const LinkOptions& options, Device* device, int gid_index, uint64_t key,
       Report report);
  ~Link();

  // What the other end needs to know.
  nlohmann::json Introduction() const;
  // Connects to the end that has introduced itself so at `remote`. An errno
  // value.
  int Connect(const std::string& remote, const nlohmann::json& peer,
              uint64_t peer_key);
  void Start();
  void BeQuiet();
  // Ends the connection. What is outstanding completes; then: kDropped.
  void Drop();

  // Posts what there is room for. Whether anything was.
  bool Pump();
  void OnCompletion(const ibv_wc& wc);
  // Of the queue pair: no shared receive is its own any more.
  void OnLastReceive();

  State state() const { return state_; }
  uint32_t qpn() const { return qp_->qp_num; }
  const LinkOptions& options() const { return options_; }
  nlohmann::json Statistics() const;

 private:
  enum class Kind {
    kSend,
    kSendImm,
    kWriteImm,
    kWriteRead,
    kWrite,
    kRead,
    kFetchAdd,
    kCompareSwap
  };
  static constexpr size_t kKinds = 8;
  // An operation under way. The first two have room for a megabyte.
  static constexpr size_t kOps = 6;
  static constexpr size_t kLargeOps = 2;
  static constexpr size_t kSmallBytes = 64 << 10;
  struct Op {
    int requests = 0;  // not complete; 0: free
    Kind kind = Kind::kSend;
    size_t size = 0;
    uint64_t key = 0;    // of the pattern that is expected in the end
    uint64_t first = 0;  // its first word
    uint64_t value = 0;  // what an atomic is to return
    int64_t posted_ms = 0;
  };

  // The memory that the peer writes.
  static constexpr size_t kCreditAt = 0;
  static constexpr size_t kAddAt = 64;
  static constexpr size_t kSwapAt = 128;
  static constexpr size_t kWriteAt = 4096;
  static constexpr size_t kSlotAt = kWriteAt + kMaxBytes;
  static constexpr uint64_t kWindow = 8;
  static constexpr size_t kSlotBytes = kMaxBytes / kWindow;
  static constexpr size_t kTargetBytes = kSlotAt + kWindow * kSlotBytes;
  // Receives of its own: fewer than the window, so that there are RNR NAKs.
  static constexpr uint32_t kReceives = 4;
  static constexpr size_t kReceiveBytes = 64 << 10;
  // wr_id: the index of the Op, or one of these.
  static constexpr uint64_t kCreditId = 100;

  size_t Room(size_t op) const {
    return op < kLargeOps ? kMaxBytes : kSmallBytes;
  }
  size_t OffsetOf(size_t op) const;
  uint8_t* BufferOf(size_t op) const { return local_.data() + OffsetOf(op); }
  size_t RandomSize(size_t most);
  uint64_t Random(uint64_t below) { return random_() % below; }
  void PostReceive(size_t index);

  bool PostCredit();
  bool PostSome();
  Kind ChooseKind();
  bool Post(size_t op, Kind kind);
  bool PostMessage(size_t op, Kind kind);
  bool PostWrite(size_t op, Kind kind);
  bool PostRead(size_t op);
  bool PostAtomic(size_t op, Kind kind);
  // Posts one request with `size` bytes from `offset` of the local memory.
  bool PostRequest(size_t op, ibv_send_wr* wr, size_t offset, size_t size);
  // Whether the peer has said that it has verified enough.
  uint64_t Credit() const;
  bool MayNumber() const { return sent_ - Credit() < kWindow; }

  void OnError(const ibv_wc& wc);
  void OnSent(const ibv_wc& wc);
  void OnReceived(const ibv_wc& wc);
  void CheckMessage(const ibv_wc& wc, const uint8_t* bytes);
  // UC writes of no message: a word holds what it should, or nothing.
  void CheckWrites();
  void CheckQuiet();
  void CheckDropped();
  void Mismatch(const std::string& what);
  void Say(const char* what, nlohmann::json more = nlohmann::json::object());

  const LinkOptions options_;
  Device* const device_;
  const int gid_index_;
  const uint64_t key_;  // of the messages that it sends
  const Report report_;
  std::mt19937_64 random_;

  Memory target_{kTargetBytes};
  Memory local_;
  Memory receives_;
  ibv_mr* target_mr_ = nullptr;
  ibv_mr* local_mr_ = nullptr;
  ibv_mr* receives_mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
  State state_ = State::kMade;

  uint64_t peer_key_ = 0;
  uint64_t peer_target_ = 0;
  uint32_t peer_target_rkey_ = 0;
  uint64_t peer_readable_ = 0;
  uint32_t peer_readable_rkey_ = 0;
  uint64_t peer_readable_key_ = 0;

  std::array<Op, kOps> ops_;
  int sends_out_ = 0;
  int receives_out_ = 0;
  bool last_receive_ = false;
  bool credit_out_ = false;
  bool writing_ = false;  // the peer's memory for WRITEs is in use
  uint64_t sent_ = 0;     // number of the last message
  uint64_t seen_ = 0;     // number of the last that came
  uint64_t told_ = 0;     // ... and that the peer has been told
  int64_t told_ms_ = 0;
  uint64_t last_credit_ = 0;  // what there was when it last changed
  int64_t credit_ms_ = 0;
  uint64_t added_ = 0;
  uint64_t swapped_ = 0;
  uint64_t completed_ = 0;
  uint64_t received_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace soak

#endif  // TESTS_SOAK_LINK_H_
