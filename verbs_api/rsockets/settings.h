// Sizes that a socket is made with.
#ifndef VERBS_API_RSOCKETS_SETTINGS_H_
#define VERBS_API_RSOCKETS_SETTINGS_H_

#include <cstdint>
#include <string>

namespace rsockets {

// What rsocket(7) lists, with the same defaults.
struct Settings {
  static constexpr uint32_t kMinQueue = 16;
  static constexpr uint32_t kMaxQueue = 0xfffe;

  uint32_t send_buffer = 1 << 17;     // bytes
  uint32_t receive_buffer = 1 << 17;  // bytes; half of it is filled at a time
  uint32_t send_queue = 384;          // work requests
  uint32_t receive_queue = 384;
  uint32_t inline_data = 64;   // bytes
  uint32_t iomap_entries = 0;  // mappings that the peer may have here
  uint32_t polling_us = 10;    // before one waits

  // As an administrator has set them in files of `folder`, each with a number;
  // what cannot be read, or makes no sense, is as above.
  static Settings Read(const std::string& folder);
  // Those of this machine (/etc/rdma/rsocket), read once.
  static const Settings& Default();

  // Takes the next size that is possible.
  void SetSendBuffer(uint64_t bytes);
  void SetReceiveBuffer(uint64_t bytes);
  static uint32_t QueueSize(uint64_t entries);
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_SETTINGS_H_
