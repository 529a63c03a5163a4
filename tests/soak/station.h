// The devices of a process of the soak test, each with the objects that all its
// links share: completion queue and channel, shared receive queue, a region
// that peers read.
#ifndef TESTS_SOAK_STATION_H_
#define TESTS_SOAK_STATION_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace soak {

// The longest message.
inline constexpr size_t kMaxBytes = 1 << 20;

// wr_id of receives, shared ones included: this plus their index. Those of
// sends are smaller.
inline constexpr uint64_t kReceiveId = 1000;

// Milliseconds of CLOCK_MONOTONIC.
int64_t NowMs();

// Prints a line on stderr and ends the process. For errors that no fault
// explains.
[[noreturn]] void Die(const std::string& what, int error);

// Memory on separate pages, all resident from the start, so that the resident
// size of a process does not depend on its history.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data() const { return data_; }
  uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(data_) + offset;
  }
  size_t size() const { return size_; }

 private:
  uint8_t* data_;
  size_t size_;
};

// An open device. A failed call ends the process.
class Device {
 public:
  // Owns `context`. `key`: of the pattern in the region that peers read.
  Device(ibv_context* context, uint64_t key);
  ~Device();

  // The index of `gid`; -1 if the device does not have it now.
  int FindGid(const ibv_gid& gid) const;
  void PostShared(size_t index);
  uint8_t* shared(size_t index) const {
    return shared_memory_.data() + index * kMaxBytes;
  }

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_cq* cq() const { return cq_; }
  ibv_comp_channel* channel() const { return channel_; }
  ibv_srq* srq() const { return srq_; }
  ibv_mr* readable() const { return readable_mr_; }

  static constexpr size_t kShared = 16;  // receives in the shared queue

 private:
  ibv_context* const context_;
  Memory readable_{kMaxBytes};
  Memory shared_memory_{kShared * kMaxBytes};
  ibv_pd* pd_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  ibv_srq* srq_;
  ibv_mr* readable_mr_;
  ibv_mr* shared_mr_;
};

class Station {
 public:
  explicit Station(uint64_t key) : key_(key) {}
  // An open device that has `address` now, and the index of its GID. Opens the
  // device if needed. Null if there is none.
  Device* Find(const std::string& address, int* gid_index);
  const std::vector<std::unique_ptr<Device>>& devices() const {
    return devices_;
  }
  uint64_t key() const { return key_; }

 private:
  const uint64_t key_;
  std::vector<std::unique_ptr<Device>> devices_;
};

// The GID of an address given as text.
ibv_gid GidOf(const std::string& address);

}  // namespace soak

#endif  // TESTS_SOAK_STATION_H_
