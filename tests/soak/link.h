// One end of a connection of the soak test and its traffic: as many operations
// of all kinds as fit, with verified contents.
//
// Messages (SEND, SEND with immediate, WRITE with immediate) of a direction are
// numbered. The receiver verifies each and writes the last number into a word
// of the sender (its credit), so at most kWindow are in flight. Over RC every
// number arrives in order; over UC some may be missing. READs and atomics are
// verified where they were posted, WRITEs by a later READ.
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
  int generation = 0;  // counts its connections, which are renewed after faults
  bool reliable = true;
  bool shared_receives = false;
  int timeout = 16;  // Local ACK Timeout
  ibv_mtu mtu = IBV_MTU_1024;
};

class Link {
 public:
  enum class State {
    kMade,       // not connected
    kConnected,  // receives, but does not send by itself
    kRunning,    // sends
    kQuieting,   // completes outstanding operations
    kQuiet,      // nothing is outstanding
    kBroken,     // a completion had an error
    kDropping,   // waits for outstanding completions
    kDropped,    // all requests have completed
  };
  using Report = std::function<void(nlohmann::json)>;

  // Creates a queue pair and memory. `report` is called for events.
  Link(const LinkOptions& options, Device* device, int gid_index, uint64_t key,
       Report report);
  ~Link();

  // The parameters that the other end needs.
  nlohmann::json Introduction() const;
  // Connects to the end at `remote` with these parameters. Returns an errno
  // value.
  int Connect(const std::string& remote, const nlohmann::json& peer,
              uint64_t peer_key);
  void Start();
  void BeQuiet();
  // Ends the connection. After outstanding requests have completed: kDropped.
  void Drop();

  // Posts as much as fits. Returns whether anything was posted.
  bool Pump();
  void OnCompletion(const ibv_wc& wc);
  // The queue pair has completed its last shared receive.
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
  // An operation in progress. The first two have space for a megabyte.
  static constexpr size_t kOps = 6;
  static constexpr size_t kLargeOps = 2;
  static constexpr size_t kSmallBytes = 64 << 10;
  struct Op {
    int requests = 0;  // outstanding requests; 0: free
    Kind kind = Kind::kSend;
    size_t size = 0;
    uint64_t key = 0;    // of the expected pattern
    uint64_t first = 0;  // the first word of the pattern
    uint64_t value = 0;  // the expected result of an atomic
    int64_t posted_ms = 0;
  };

  // Offsets in the memory that the peer writes.
  static constexpr size_t kCreditAt = 0;
  static constexpr size_t kAddAt = 64;
  static constexpr size_t kSwapAt = 128;
  static constexpr size_t kWriteAt = 4096;
  static constexpr size_t kSlotAt = kWriteAt + kMaxBytes;
  static constexpr uint64_t kWindow = 8;
  static constexpr size_t kSlotBytes = kMaxBytes / kWindow;
  static constexpr size_t kTargetBytes = kSlotAt + kWindow * kSlotBytes;
  // Its own receives: fewer than the window, so that RNR NAKs occur.
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
  // Posts one request with `size` bytes at `offset` of the local memory.
  bool PostRequest(size_t op, ibv_send_wr* wr, size_t offset, size_t size);
  // The last message number that the peer has verified.
  uint64_t Credit() const;
  bool MayNumber() const { return sent_ - Credit() < kWindow; }

  void OnError(const ibv_wc& wc);
  void OnSent(const ibv_wc& wc);
  void OnReceived(const ibv_wc& wc);
  void CheckMessage(const ibv_wc& wc, const uint8_t* bytes);
  // UC WRITEs without message: each word has the expected or the old value.
  void CheckWrites();
  void CheckQuiet();
  void CheckDropped();
  void Mismatch(const std::string& what);
  void Say(const char* what, nlohmann::json more = nlohmann::json::object());

  const LinkOptions options_;
  Device* const device_;
  const int gid_index_;
  const uint64_t key_;  // of the messages that this end sends
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
  uint64_t seen_ = 0;     // number of the last received message
  uint64_t told_ = 0;     // the last number reported to the peer
  int64_t told_ms_ = 0;
  uint64_t last_credit_ = 0;  // the value at its last change
  int64_t credit_ms_ = 0;
  uint64_t added_ = 0;
  uint64_t swapped_ = 0;
  uint64_t completed_ = 0;
  uint64_t received_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace soak

#endif  // TESTS_SOAK_LINK_H_
