// The sizes of a new socket.
#ifndef VERBS_API_RSOCKETS_SETTINGS_H_
#define VERBS_API_RSOCKETS_SETTINGS_H_

#include <cstdint>
#include <string>

namespace rsockets {

// The values that rsocket(7) lists, with the same defaults.
struct Settings {
  static constexpr uint32_t kMinQueue = 16;
  static constexpr uint32_t kMaxQueue = 0xfffe;

  uint32_t send_buffer = 1 << 17;     // bytes
  uint32_t receive_buffer = 1 << 17;  // bytes; filled one half at a time
  uint32_t send_queue = 384;          // work requests
  uint32_t receive_queue = 384;
  uint32_t inline_data = 64;   // bytes
  uint32_t iomap_entries = 0;  // mappings that the peer may write here
  uint32_t polling_us = 10;    // time to poll before blocking

  // Reads the administrator's values from files in `folder`, one number each.
  // An unreadable or invalid value leaves the default.
  static Settings Read(const std::string& folder);
  // The values of this machine (/etc/rdma/rsocket), read once.
  static const Settings& Default();

  // Rounds to the nearest valid size.
  void SetSendBuffer(uint64_t bytes);
  void SetReceiveBuffer(uint64_t bytes);
  static uint32_t QueueSize(uint64_t entries);
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_SETTINGS_H_
