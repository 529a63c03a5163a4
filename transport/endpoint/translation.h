// Peers behind address translation: NAT of a network, a container host or a
// virtual machine (docs/nat.md).
//
// The ICRC covers the sender's IP addresses and UDP ports, and a translator
// does not correct it. So a translated packet has a wrong ICRC, which is right
// for the addresses by which the two queue pairs know each other. Only packets
// with a wrong ICRC are checked this way, and only if the queue pair would
// accept them: PSN or Q_Key fit. The number of fruitless checks per millisecond
// is limited, so garbage costs little.
//
// With RXE_USER_NAT such packets are accepted. All devices then send from UDP
// port 4791, so the port in the ICRC is known too, and the check is as strong
// as usual. A packet proves its peer's translated address and port if the queue
// pair accepts it as its peer's and its PSN is within the window. A UD packet
// needs a good Q_Key instead. Over IPv4 a UD sender's own address may be
// unknown: it is solved for, and accepted only if it is in a translated range
// (private, shared, link-local), since nothing else confirms it. The later
// packets from there are checked for that address.
//
// The ICRC also covers the IP identification. Our devices send bursts whose
// packets have identifications from 0 on. A receiver sees part of a burst, or
// each packet alone, so any of them may come first.
#ifndef TRANSPORT_ENDPOINT_TRANSLATION_H_
#define TRANSPORT_ENDPOINT_TRANSLATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "wire/icrc.h"

namespace transport {

// An observed translation of one peer.
struct Translation {
  wire::IpAddress local;     // our address, as the peer knows it
  wire::IpAddress peer;      // the peer's own
  uint32_t peer_qpn = 0;     // 0: unknown
  Via seen;                  // source of its packets
  uint16_t source_port = 0;  // source port in the ICRC
  bool taken = false;        // accepted; otherwise dropped
};

class TranslationSink {
 public:
  // A packet of `translation.peer` arrived. Called once per change; for dropped
  // packets and UD packets, once per checked packet.
  virtual void OnTranslation(const Translation& translation) = 0;
  // Addresses to try as the sender of a UD packet that came from `seen`.
  virtual std::vector<wire::IpAddress> KnownPeers(const Via& seen) = 0;

 protected:
  ~TranslationSink() = default;
};

// The sender for which a packet's ICRC is right.
struct TrueSource {
  wire::IpAddress address;
  uint16_t port = 0;
  uint16_t ip_id = 0;
  wire::IcrcFlow flow;
};

// Translation state of one endpoint. Thread: its lane's lock.
class Translations {
 public:
  void Watch(TranslationSink* sink, bool take) {
    sink_ = sink;
    take_ = take;
  }
  TranslationSink* sink() const { return sink_; }
  bool take() const { return take_; }

  // Whether another packet with a wrong ICRC may be checked. CheckWasUseful
  // gives the quota back for a check that found something.
  bool MayCheck(Time now) {
    return sink_ != nullptr &&
           checks_.Take(take_ ? kChecks : kChecksToReport, now);
  }
  void CheckWasUseful() { checks_.Return(); }
  // Whether another packet may be passed on to the owner of its queue pair. A
  // separate quota, so that packets to queue pairs that do not exist use up no
  // checks.
  bool MayPassOn(Time now) {
    return sink_ != nullptr && take_ && passed_on_.Take(kChecks, now);
  }

  // Matches the ICRC for a packet that `peer` sent from port 4791, as our
  // devices do, or from the port that it came from. `any_port`: or from any
  // source port of a device, which one damaged packet in 2^17 matches.
  static std::optional<TrueSource> Match(const Datagram& datagram,
                                         const wire::IpAddress& peer,
                                         bool any_port);
  // The same for an unknown IPv4 address and port 4791.
  static std::optional<TrueSource> SolveSource(const Datagram& datagram);

 private:
  // Checks per millisecond: with RXE_USER_NAT, and without.
  static constexpr int kChecks = 64;
  static constexpr int kChecksToReport = 1;

  class Quota {
   public:
    bool Take(int max, Time now) {
      if (now - since_ >= kMillisecond || now < since_) {
        since_ = now;
        taken_ = 0;
      }
      if (taken_ >= max) return false;
      ++taken_;
      return true;
    }
    void Return() { --taken_; }

   private:
    Time since_ = 0;
    int taken_ = 0;
  };

  TranslationSink* sink_ = nullptr;
  bool take_ = false;
  Quota checks_;
  Quota passed_on_;
};

// IPv4 ranges that are translated at the Internet's edge: 10/8, 172.16/12,
// 192.168/16 (RFC 1918), 100.64/10 (RFC 6598), 169.254/16.
bool IsPrivateV4(const wire::IpAddress& address);

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_TRANSLATION_H_
