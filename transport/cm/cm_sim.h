// One seed: a few hosts whose applications connect, accept, reject, disconnect,
// resolve services, and die, over a network that loses, duplicates and
// reorders, on a virtual clock. Checks:
// - The events of each id come once and in a valid order.
// - A REQ gives one kRequest, whatever the network does to it.
// - Once the network is good and all retries are over, both ends of a
//   connection agree. Exception: all last messages to one end were lost, which
//   is accepted only with high loss.
// - With little loss, no live peer is given up.
// - A queue pair is in one connection at most.
// - After the applications have destroyed everything, nothing is left.
#ifndef TRANSPORT_CM_CM_SIM_H_
#define TRANSPORT_CM_CM_SIM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/cm/connection_manager.h"
#include "transport/sim/random.h"

namespace transport::cm {

struct SimStatistics {
  uint64_t mads = 0;
  uint64_t lost = 0;
  uint64_t retransmitted = 0;
  uint64_t connects = 0;
  uint64_t established = 0;  // both ends
  uint64_t rejected = 0;
  uint64_t unreachable = 0;
  uint64_t disconnected = 0;
  uint64_t resolved = 0;
  uint64_t deaths = 0;
  uint64_t disagreed = 0;  // with an accepted reason
  uint64_t stale = 0;
  uint64_t no_memory = 0;
};

class CmSim {
 public:
  explicit CmSim(uint64_t seed, bool trace = false);
  ~CmSim();

  // From now on one input of five finds no memory; `refuse` is called with true
  // before it and with false after it. A dropped input counts as lost on the
  // network.
  void Starve(void (*refuse)(bool)) { refuse_ = refuse; }
  // False on any violation: see failure().
  bool Run();
  const std::string& failure() const { return failure_; }
  void AddTo(SimStatistics* sum) const;

 private:
  struct Host;
  // An id's state as the application knows it.
  enum class Phase : uint8_t {
    kAsked,      // after Connect
    kRequested,  // after kRequest
    kReplied,    // after kReply
    kAccepted,   // after Accept
    kEstablished,
    kDisconnected,
    kFailed,   // after kRejected or kUnreachable; kTimeWaitExit may follow
    kRefused,  // rejected by this application
    kOver,     // after kTimeWaitExit
    kResolving,
    kServing,  // after kServiceRequest
  };
  struct Id {
    Phase phase;
    bool active = false;
    uint32_t qpn = 0;
    uint64_t pair = 0;  // number of its connection
  };
  // Outcome of each end of a connection.
  struct End {
    bool exists = false;
    bool established = false;  // now
    bool was_established = false;
    // It ended without a message from the other end: no answer came, it was
    // destroyed, or its host died.
    bool unheard = false;
  };
  struct Pair {
    End active;
    End passive;
    int passive_host = -1;
    CmId passive_id = 0;
    int requests = 0;
    bool may_request_again = false;
    // The loss of one or few messages may leave one end uninformed, or an
    // application does not answer.
    bool fragile = false;
  };
  struct ScheduledCall {
    Time time;
    uint64_t order;
    std::function<void()> what;
    bool operator>(const ScheduledCall& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void At(Time when, std::function<void()> what);
  // Calls `what` unless the host dies first.
  void Later(Host& host, Time delay, std::function<void(Host&)> what);
  void RunUntil(Time limit);
  void Fail(const std::string& what);
  void Trace(const Host& host, const std::string& what);

  void AddHost();
  void Boot(Host& host);
  void Die(Host& host);
  void Pump(Host& host);
  void Transmit(Host& from, const OutgoingMad& mad);
  void Arm(Host& host);
  // Runs an input of a manager.
  template <typename Call>
  void Input(Call call);
  // --- Applications.
  void ConnectOrResolve(Host& host);
  void Connect(Host& host);
  void Resolve(Host& host);
  void OnEvent(Host& host, const Event& event);
  void OnRequest(Host& host, const Event& event);
  void Answer(Host& host, CmId id);
  void OnReply(Host& host, const Event& event, Id& id);
  void AnswerReply(Host& host, CmId id);
  // Data of the active end arrived before its RTU.
  void NotifyEstablished(uint64_t pair);
  void Disconnect(Host& host, CmId id);
  void Destroy(Host& host, CmId id);
  void DestroyLater(Host& host, CmId id);
  uint32_t PickQpn();
  void TakeQpn(Host& host, Id& id, uint32_t qpn);
  void ReturnQpn(Host& host, Id& id);
  End& EndOf(const Id& id);

  // Whether sixteen tries certainly succeed.
  bool IsReliable() const;
  void CompareEnds();
  void CheckNothingLeft();

  sim::Random random_;
  const bool trace_;
  std::string failure_;
  Time now_ = 0;
  uint64_t order_ = 0;
  std::vector<ScheduledCall> heap_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<uint64_t, Pair> pairs_;
  // Pairs by the active side's incarnation and communication ID.
  std::map<std::pair<uint64_t, CmId>, uint64_t> pair_of_;
  uint64_t incarnations_ = 0;
  SimStatistics statistics_;
  // Parameters of this seed; probabilities in percent.
  uint32_t loss_ = 0;
  bool little_loss_ = false;
  uint32_t duplicate_ = 0;
  Time jitter_ = 0;
  bool small_caps_ = false;
  void (*refuse_)(bool) = nullptr;
  bool closing_ = false;  // applications start nothing new
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CM_SIM_H_
