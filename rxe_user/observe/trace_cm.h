// What a recording knows about connection management: the messages in packets
// of queue pair 1, and which of them caused which. No I/O, no clock, no lock.
#ifndef RXE_USER_OBSERVE_TRACE_CM_H_
#define RXE_USER_OBSERVE_TRACE_CM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "rxe_user/observe/trace_events.h"
#include "transport/endpoint/packet_observer.h"
#include "wire/address.h"

namespace rxe_user::trace {

class TraceCm {
 public:
  // The message of a packet, without id, cause and queue pair. nullopt: the
  // packet has none, or was dropped.
  static std::optional<CmMessageEvent> MessageIn(
      const transport::ObservedPacket& packet);

  // Set id, cause and queue pair. `packet`: the id of the packet that contained
  // the message.
  void OnReceived(uint64_t id, uint64_t packet, CmMessageEvent* message);
  void OnSent(uint64_t id, CmMessageEvent* message);

 private:
  // Values of the latest keys. The oldest keys are forgotten.
  template <typename Key, typename Value>
  class Latest {
   public:
    Value& operator[](const Key& key) {
      const auto [at, is_new] = values_.try_emplace(key);
      if (is_new) {
        order_.push_back(key);
        if (order_.size() > kMax) {
          values_.erase(order_.front());
          order_.pop_front();
        }
      }
      return at->second;
    }
    Value Find(const Key& key) const {
      const auto found = values_.find(key);
      return found == values_.end() ? Value() : found->second;
    }

   private:
    static constexpr size_t kMax = 1 << 14;
    std::map<Key, Value> values_;
    std::deque<Key> order_;
  };

  struct Own {
    uint32_t qpn = 0;
    uint16_t attribute = 0;  // that of the last message that was sent
    uint64_t sent = 0;       // its id
  };
  Latest<uint32_t, Own> own_;  // by own communication ID
  // The id of the last message of a peer, by its address and communication ID.
  Latest<std::pair<wire::IpAddress, uint32_t>, uint64_t> received_;
};

}  // namespace rxe_user::trace

#endif  // RXE_USER_OBSERVE_TRACE_CM_H_
