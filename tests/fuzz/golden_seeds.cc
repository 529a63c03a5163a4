// Every short frame of the captures, whole and as a bare packet. Short ones
// suffice, because the headers matter.
#include "tests/fuzz/seeds.h"
#include "tests/golden/golden_files.h"
#include "wire/frame.h"

namespace fuzz {

std::vector<Bytes> MadeSeeds() {
  std::vector<Bytes> seeds;
  for (const std::string& path : golden::KernelRxeFiles()) {
    for (const golden::CapturedFrame& captured : golden::ReadCapture(path)) {
      wire::Frame frame;
      if (captured.bytes.size() > 300 ||
          wire::DecodeFrame(captured.link_type, captured.bytes, &frame) !=
              wire::FrameKind::kUdp) {
        continue;
      }
      seeds.emplace_back(frame.udp_payload.begin(), frame.udp_payload.end());
      Bytes with_link_type = {static_cast<uint8_t>(captured.link_type)};
      with_link_type.insert(with_link_type.end(), captured.bytes.begin(),
                            captured.bytes.end());
      seeds.push_back(std::move(with_link_type));
    }
  }
  return seeds;
}

}  // namespace fuzz
