// Peers whose addresses something between translates: NAT of a network, of a
// container's host, of a virtual machine's (docs/nat.md).
//
// The ICRC covers the IP addresses and UDP ports that the sender has, and a
// translator does not make it right again. So a packet comes with a wrong ICRC
// that is right for the addresses that both queue pairs know of each other.
// Only a packet with a wrong ICRC is looked at in this way. The number of looks
// in a millisecond that find nothing is limited, so that garbage costs little
// more than before.
//
// Where such packets are taken (RXE_USER_NAT), all devices send from UDP port
// 4791, so that the port that the ICRC is for is known as well: the check is as
// strong as for others. What is believed of a packet is that its peer is at the
// address and port that it came from, if the queue pair takes it for the peer's
// and its PSN is within the window. Datagrams have neither: their Q_Key has to
// be right. Over IPv4 their sender's own address need not be known: it is
// solved for, and believed if it is one of those that are translated (private,
// shared, link-local), since nothing else says that it is right.
#ifndef TRANSPORT_ENDPOINT_TRANSLATION_H_
#define TRANSPORT_ENDPOINT_TRANSLATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "wire/icrc.h"

namespace transport {

// What was seen of one peer.
struct Translation {
  wire::IpAddress local;     // ours, as the peer knows it
  wire::IpAddress peer;      // the peer's own
  uint32_t peer_qpn = 0;     // 0: not known
  Via seen;                  // where its packets come from
  uint16_t source_port = 0;  // that the ICRC is for
  bool taken = false;        // else dropped
};

class TranslationSink {
 public:
  // A packet of `translation.peer` came. Told once for each change, or, of
  // those that are dropped and of datagrams, for each packet that was looked
  // at.
  virtual void OnTranslation(const Translation& translation) = 0;
  // Addresses over IPv6 of which the sender of a datagram may be one: each is
  // tried.
  virtual std::vector<wire::IpAddress> KnownPeers() = 0;

 protected:
  ~TranslationSink() = default;
};

// What the ICRC of a packet was found to be right for.
struct TrueSource {
  wire::IpAddress address;
  uint16_t port = 0;
  uint16_t ip_id = 0;
  wire::IcrcFlow flow;
};

// Of one endpoint. Thread: its lane's lock.
class Translations {
 public:
  void Watch(TranslationSink* sink, bool take) {
    sink_ = sink;
    take_ = take;
  }
  TranslationSink* sink() const { return sink_; }
  bool take() const { return take_; }

  // Whether one more packet with a wrong ICRC may be looked at. A look that
  // finds something is taken back.
  bool MayLook(Time now);
  void LookWasUseful() { --looks_; }

  // Whether the ICRC is right for a packet from `peer`: of ours from port 4791,
  // or from the port that it came from. `any_port`: or from any that a device
  // sends from, of which one packet in 2^17 that is damaged has one.
  static std::optional<TrueSource> Match(const Datagram& datagram,
                                         const wire::IpAddress& peer,
                                         bool any_port);
  // The same for an IPv4 address that is not known, port 4791.
  static std::optional<TrueSource> SolveSource(const Datagram& datagram);

 private:
  // In each millisecond: of those that are taken, and of others.
  static constexpr int kLooks = 64;
  static constexpr int kLooksToTell = 1;

  TranslationSink* sink_ = nullptr;
  bool take_ = false;
  Time looks_since_ = 0;
  int looks_ = 0;
};

// Addresses that are translated where they meet the Internet: 10/8, 172.16/12,
// 192.168/16 (RFC 1918), 100.64/10 (RFC 6598), 169.254/16. IPv4.
bool IsPrivateV4(const wire::IpAddress& address);

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_TRANSLATION_H_
