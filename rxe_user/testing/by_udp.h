// Lets processes of one host use UDP, for tests of what the network does.
#ifndef RXE_USER_TESTING_BY_UDP_H_
#define RXE_USER_TESTING_BY_UDP_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace rxe_user {

// While this object exists, devices that this process or a new child opens send
// all packets by UDP. Thread: one, while no other thread reads the environment.
class ByUdp {
 public:
  ByUdp() {
    if (const char* medium = std::getenv(kMedium)) medium_ = medium;
    ::setenv(kMedium, "udp", 1);
  }
  ~ByUdp() {
    if (medium_) {
      ::setenv(kMedium, medium_->c_str(), 1);
    } else {
      ::unsetenv(kMedium);
    }
  }
  ByUdp(const ByUdp&) = delete;
  ByUdp& operator=(const ByUdp&) = delete;

 private:
  static constexpr char kMedium[] = "RXE_USER_SAME_HOST";
  std::optional<std::string> medium_;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_BY_UDP_H_
