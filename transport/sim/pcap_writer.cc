#include "transport/sim/pcap_writer.h"

#include <algorithm>
#include <vector>

#include "wire/frame.h"

namespace sim {
namespace {

// pcapng uses the machine's byte order.
template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutBytes(std::string* out, const void* data, size_t bytes) {
  out->append(static_cast<const char*>(data), bytes);
  out->append(-bytes & 3, '\0');
}

void PutOption(std::string* out, uint16_t code, const std::string& value) {
  Put<uint16_t>(out, code);
  Put<uint16_t>(out, value.size());
  PutBytes(out, value.data(), value.size());
}

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
  std::string section;
  Put<uint32_t>(&section, 0x1a2b3c4d);
  Put<uint16_t>(&section, 1);
  Put<uint16_t>(&section, 0);
  Put<int64_t>(&section, -1);
  Block(0x0a0d0d0a, section);
  std::string interface;
  Put<uint16_t>(&interface, 1);  // Ethernet
  Put<uint16_t>(&interface, 0);
  Put<uint32_t>(&interface, 0);
  PutOption(&interface, 9, std::string(1, 9));  // if_tsresol: ns
  Put<uint32_t>(&interface, 0);
  Block(1, interface);
}

PcapWriter::~PcapWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void PcapWriter::Block(uint32_t type, const std::string& body) {
  if (file_ == nullptr) return;
  std::string block;
  const uint32_t length = 12 + body.size();
  Put<uint32_t>(&block, type);
  Put<uint32_t>(&block, length);
  block += body;
  Put<uint32_t>(&block, length);
  std::fwrite(block.data(), 1, block.size(), file_);
}

void PcapWriter::Write(const Packet& packet, const std::string& comment) {
  const std::vector<uint8_t> frame = Frame(packet);
  std::string body;
  Put<uint32_t>(&body, 0);
  Put<uint32_t>(&body, static_cast<uint64_t>(packet.time) >> 32);
  Put<uint32_t>(&body, static_cast<uint32_t>(packet.time));
  Put<uint32_t>(&body, frame.size());
  Put<uint32_t>(&body, frame.size());
  PutBytes(&body, frame.data(), frame.size());
  if (!comment.empty()) {
    PutOption(&body, 1, comment);
    Put<uint32_t>(&body, 0);
  }
  Block(6, body);
}

}  // namespace sim
