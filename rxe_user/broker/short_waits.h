// Nobody keeps the broker waiting.
#ifndef RXE_USER_BROKER_SHORT_WAITS_H_
#define RXE_USER_BROKER_SHORT_WAITS_H_

namespace rxe_user::broker {

// While one lives, what the calling thread waits for in the kernel is cut short
// after a tenth of a millisecond, by a signal that does nothing else (the first
// but one of the real-time signals). For what others sent us: the last close of
// a socket waits as long as its SO_LINGER says, and it is the last one also
// where a message is dropped with the descriptors in it (SCM_RIGHTS), or a
// connection with messages that were not read. Calls that wait are few here,
// and are restarted.
//
// They may be nested. Without the timer (no memory) nothing is cut short.
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
