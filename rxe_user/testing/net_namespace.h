// A network namespace for a test, so that it neither finds nor leaves sockets
// on port 4791 of the machine.
#ifndef RXE_USER_TESTING_NET_NAMESPACE_H_
#define RXE_USER_TESTING_NET_NAMESPACE_H_

#include <cstdint>

namespace rxe_user {

// Moves the calling thread (and threads that it starts) into a new namespace
// with loopback up, inside a new user namespace if necessary. False if neither
// is allowed: the test then uses the current one.
bool EnterFreshNetNamespace();

// Sets the loopback interface up or down. False if not allowed.
bool SetLoopback(bool up);

// Sets the MTU of the loopback interface, in bytes. False if not allowed.
bool SetLoopbackMtu(int mtu);

// Adds an IPv4 address (as text) to the loopback interface, or removes it.
// False if not allowed. One at a time.
bool SetLoopbackAddress(const char* address, bool there);

// How packets to an address are routed.
enum class Route : uint8_t {
  kLocal,        // delivered, as with SetLoopbackAddress
  kUnreachable,  // sends fail with EHOSTUNREACH
  kProhibited,   // with EACCES
  kBlackhole,    // with EINVAL
};
// Sets the route to an address of the loopback interface in table `local`, as
// `ip route` would. False if not allowed.
bool SetRouteTo(const char* address, Route route);

// Whether sockets can be bound to ::1.
bool HaveIpv6();

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_NET_NAMESPACE_H_
