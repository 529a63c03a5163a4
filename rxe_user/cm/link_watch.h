// What rtnetlink says of interfaces.
#ifndef RXE_USER_CM_LINK_WATCH_H_
#define RXE_USER_CM_LINK_WATCH_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace rxe_user {

enum class InterfaceChange : uint8_t {
  kGone,     // the interface is no more
  kAddress,  // it has another hardware address
};

// Remembers the hardware addresses of interfaces. No I/O but in ReadAll; one
// thread at a time.
class LinkWatch {
 public:
  struct News {
    uint32_t interface = 0;
    InterfaceChange change = InterfaceChange::kGone;

    bool operator==(const News&) const = default;
  };

  // Learns those that there are, from the system. Adds to `*news` what is not
  // as it is remembered. False if the system cannot be asked. Without memory
  // (std::bad_alloc) all is as it was.
  bool ReadAll(std::vector<News>* news);
  // Of what one recvmsg brought: whole messages, of any kinds. Adds to `*news`.
  // What it has no memory for (std::bad_alloc), and what is behind it, ReadAll
  // finds out.
  void Read(std::span<const uint8_t> bytes, std::vector<News>* news);

 private:
  // Of each interface; empty where it has none of Ethernet.
  std::map<uint32_t, std::vector<uint8_t>> addresses_;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_LINK_WATCH_H_
