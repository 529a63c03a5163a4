// Bounds the time for which a client can block the broker in the kernel.
#ifndef RXE_USER_BROKER_SHORT_WAITS_H_
#define RXE_USER_BROKER_SHORT_WAITS_H_

namespace rxe_user::broker {

// While an instance lives, a signal (the second real-time signal) interrupts
// the calling thread every tenth of a millisecond and does nothing else. It
// cuts short waits that others cause: the last close of a socket waits for its
// SO_LINGER, and the last reference may be in a message with descriptors
// (SCM_RIGHTS) that is dropped, or in a connection that is closed with unread
// messages. The broker has few other blocking calls, and these are restarted.
//
// May be nested. Without a timer (no memory) nothing is cut short.
class ShortWaits {
 public:
  explicit ShortWaits(bool wanted = true);
  ~ShortWaits();
  ShortWaits(const ShortWaits&) = delete;
  ShortWaits& operator=(const ShortWaits&) = delete;

 private:
  const bool wanted_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SHORT_WAITS_H_
