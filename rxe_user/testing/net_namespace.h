// A network namespace of the test's own, so that tests neither find nor leave
// sockets on port 4791 of the machine.
#ifndef RXE_USER_TESTING_NET_NAMESPACE_H_
#define RXE_USER_TESTING_NET_NAMESPACE_H_

#include <cstdint>

namespace rxe_user {

// Moves the calling thread (and those that it starts) into a fresh namespace
// whose loopback interface is up. Asks for a user namespace where it has to.
// False where neither is allowed: the test then uses what is there.
bool EnterFreshNetNamespace();

// Sets the loopback interface up or down. Whether that was allowed.
bool SetLoopback(bool up);

// Gives the loopback interface another MTU, in bytes. Whether that was allowed.
bool SetLoopbackMtu(int mtu);

// Gives the loopback interface an IPv4 address more (in text), or takes it
// away. Whether that was allowed. One at a time.
bool SetLoopbackAddress(const char* address, bool there);

// What is done with what is sent to an address.
enum class Route : uint8_t {
  kLocal,        // it arrives, as with SetLoopbackAddress
  kUnreachable,  // sends say EHOSTUNREACH
  kProhibited,   // EACCES
  kBlackhole,    // EINVAL
};
// For an address that the loopback interface has, as `ip route` would, in the
// table `local`. Whether that was allowed.
bool SetRouteTo(const char* address, Route route);

// Whether sockets can be bound to ::1.
bool HaveIpv6();

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_NET_NAMESPACE_H_
