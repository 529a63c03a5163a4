// What a responder owes its peer besides responses to READs and atomics: ACKs
// and NAKs (IBA vol. 1, 9.7.5.1). At most one of each is owed: the last one
// covers those before it.
#ifndef TRANSPORT_RC_OWED_ACKS_H_
#define TRANSPORT_RC_OWED_ACKS_H_

#include <cstdint>

namespace transport {

// PSNs are those of the responder, 64 bits wide, and never 0.
struct OwedAcks {
  struct Nak {
    uint64_t psn = 0;  // 0: there is none
    uint8_t syndrome = 0;
    // The queue pair is in error, and this is the last packet that it sends.
    bool fatal = false;
  };

  bool any() const { return nak.psn != 0 || due || repeated_psn != 0; }
  // An ACK or a NAK of everything that has been executed has been sent.
  void OnSent() {
    due = unacknowledged = false;
    repeated_psn = 0;
  }
  // A response acknowledges all that has been executed.
  void OnAcknowledgedByResponse() { due = unacknowledged = false; }

  Nak nak;
  bool due = false;             // an ACK of all that has been executed
  bool unacknowledged = false;  // a message that did not ask has been executed
  uint32_t repeated_msn = 0;
  uint64_t repeated_psn = 0;  // an ACK of a duplicate, up to here; 0: none
};

}  // namespace transport

#endif  // TRANSPORT_RC_OWED_ACKS_H_
