// Handlers of signals that leave by longjmp(3), or end the process.
#ifndef VERBS_API_RSOCKETS_PRELOAD_SIGNALS_H_
#define VERBS_API_RSOCKETS_PRELOAD_SIGNALS_H_

namespace rspreload {

// A call of the program that goes to rsockets. The functions of POSIX that it
// stands for may be left by longjmp(3) from a handler (signal-safety(7)), and
// ours hold locks; so a signal for which there is a handler ends what the call
// waits for, and the handler runs at the end of the call.
//
// The outermost object of a function, but for a WaitMask. Thread: the one that
// calls; calls may be nested.
class RsocketCall {
 public:
  RsocketCall();
  ~RsocketCall();
  RsocketCall(const RsocketCall&) = delete;
  RsocketCall& operator=(const RsocketCall&) = delete;
};

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_SIGNALS_H_
