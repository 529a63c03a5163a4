// Writes packets to a pcapng file with virtual timestamps in nanoseconds and a
// comment each. Wireshark, tshark and libpcap read it.
#ifndef TRANSPORT_SIM_PCAP_WRITER_H_
#define TRANSPORT_SIM_PCAP_WRITER_H_

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "wire/address.h"

namespace sim {

class PcapWriter {
 public:
  explicit PcapWriter(const std::string& file);
  ~PcapWriter();
  PcapWriter(const PcapWriter&) = delete;
  PcapWriter& operator=(const PcapWriter&) = delete;

  bool ok() const { return file_ != nullptr; }

  struct Packet {
    int64_t time = 0;  // ns
    wire::IpAddress source;
    wire::IpAddress destination;
    uint16_t source_port = 0;
    uint8_t traffic_class = 0;
    uint16_t ip_id = 0;
    std::span<const uint8_t> udp_payload;
  };
  // Adds Ethernet, IP and UDP headers.
  void Write(const Packet& packet, const std::string& comment);

 private:
  void Flush();

  std::FILE* file_;
  std::vector<uint8_t> bytes_;  // not yet written
};

}  // namespace sim

#endif  // TRANSPORT_SIM_PCAP_WRITER_H_
