#include "transport/sim/pcap_writer.h"

#include <algorithm>

#include "wire/frame.h"
#include "wire/pcapng.h"

namespace sim {
namespace {

std::vector<uint8_t> Frame(const PcapWriter::Packet& packet) {
  wire::FrameHeaders headers;
  // Locally administered MAC addresses that end like the IP addresses.
  std::copy_n(packet.source.bytes.end() - 4, 4, headers.src_mac.begin() + 2);
  std::copy_n(packet.destination.bytes.end() - 4, 4,
              headers.dst_mac.begin() + 2);
  headers.src = packet.source;
  headers.dst = packet.destination;
  headers.src_port = packet.source_port;
  headers.tos = packet.traffic_class;
  headers.ip_id = packet.ip_id;
  return wire::BuildFrame(headers, packet.udp_payload);
}

}  // namespace

PcapWriter::PcapWriter(const std::string& file)
    : file_(std::fopen(file.c_str(), "wb")) {
  wire::pcapng::AppendSection("rxe_user simulator", &bytes_);
  wire::pcapng::AppendInterface(wire::LinkType::kEthernet, "", &bytes_);
  Flush();
}

PcapWriter::~PcapWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void PcapWriter::Flush() {
  if (file_ != nullptr) std::fwrite(bytes_.data(), 1, bytes_.size(), file_);
  bytes_.clear();
}

void PcapWriter::Write(const Packet& packet, const std::string& comment) {
  const std::vector<uint8_t> frame = Frame(packet);
  wire::pcapng::AppendPacket({.time = packet.time,
                              .headers = frame,
                              .original_size = frame.size(),
                              .comment = comment},
                             &bytes_);
  Flush();
}

}  // namespace sim
