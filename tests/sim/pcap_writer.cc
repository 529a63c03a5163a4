#include "tests/sim/pcap_writer.h"

#include <cstring>

#include "wire/bytes.h"
#include "wire/packet.h"

namespace sim {
namespace {

// pcapng is written in the machine's byte order.
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

// A locally administered address that ends as the IP address does.
void PutMac(std::string* out, const wire::IpAddress& address) {
  out->append("\x02\x00", 2);
  out->append(reinterpret_cast<const char*>(address.bytes.data()) + 12, 4);
}

void PutBe16(std::string* out, uint16_t value) {
  out->push_back(static_cast<char>(value >> 8));
  out->push_back(static_cast<char>(value));
}

std::string Frame(const PcapWriter::Packet& packet) {
  std::string frame;
  PutMac(&frame, packet.destination);
  PutMac(&frame, packet.source);
  const bool v4 = packet.source.is_v4();
  PutBe16(&frame, v4 ? 0x0800 : 0x86dd);
  const uint16_t udp_length = 8 + packet.udp_payload.size();
  const char* source =
      reinterpret_cast<const char*>(packet.source.bytes.data());
  const char* destination =
      reinterpret_cast<const char*>(packet.destination.bytes.data());
  if (v4) {
    const size_t start = frame.size();
    frame.push_back(0x45);
    frame.push_back(static_cast<char>(packet.traffic_class));
    PutBe16(&frame, 20 + udp_length);
    PutBe16(&frame, packet.ip_id);
    PutBe16(&frame, 0x4000);  // DF
    frame.push_back(64);
    frame.push_back(17);
    PutBe16(&frame, 0);
    frame.append(source + 12, 4);
    frame.append(destination + 12, 4);
    uint32_t sum = 0;
    for (size_t i = start; i < frame.size(); i += 2) {
      sum += static_cast<uint8_t>(frame[i]) << 8 |
             static_cast<uint8_t>(frame[i + 1]);
    }
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    frame[start + 10] = static_cast<char>(~sum >> 8);
    frame[start + 11] = static_cast<char>(~sum);
  } else {
    PutBe16(&frame, 0x6000 | packet.traffic_class << 4);
    PutBe16(&frame, 0);
    PutBe16(&frame, udp_length);
    frame.push_back(17);
    frame.push_back(64);
    frame.append(source, 16);
    frame.append(destination, 16);
  }
  PutBe16(&frame, packet.source_port);
  PutBe16(&frame, wire::kRoceUdpPort);
  PutBe16(&frame, udp_length);
  PutBe16(&frame, 0);  // no UDP checksum, as hardware sends it
  frame.append(reinterpret_cast<const char*>(packet.udp_payload.data()),
               packet.udp_payload.size());
  return frame;
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
  const std::string frame = Frame(packet);
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
