// Changes of interfaces, from rtnetlink.
#ifndef RXE_USER_CM_LINK_WATCH_H_
#define RXE_USER_CM_LINK_WATCH_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace rxe_user {

enum class InterfaceChange : uint8_t {
  kGone,     // the interface has disappeared
  kAddress,  // its hardware address has changed
};

// Remembers the hardware addresses of interfaces. No I/O except in ReadAll. One
// thread at a time.
class LinkWatch {
 public:
  struct Change {
    uint32_t interface = 0;
    InterfaceChange change = InterfaceChange::kGone;

    bool operator==(const Change&) const = default;
  };

  // Reads all interfaces from the system, and adds the differences from the
  // known ones to `*changes`. False if the system cannot be asked. Has no
  // effect if it throws std::bad_alloc.
  bool ReadAll(std::vector<Change>* changes);
  // Processes the result of one recvmsg, which is whole messages of any kind.
  // Adds to `*changes`. If it throws std::bad_alloc, ReadAll finds what is
  // missing.
  void Read(std::span<const uint8_t> bytes, std::vector<Change>* changes);

 private:
  // By interface; empty if it has no Ethernet address.
  std::map<uint32_t, std::vector<uint8_t>> addresses_;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_LINK_WATCH_H_
