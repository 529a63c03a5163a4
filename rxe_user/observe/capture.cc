#include "rxe_user/observe/capture.h"

#include <time.h>

#include <array>
#include <cstring>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/observe/observed_frame.h"
#include "wire/pcap.h"

namespace rxe_user {
namespace {

constexpr BufferedFile::Words kWords = {.records = "packets",
                                        .verb = "capture",
                                        .participle = "captured",
                                        .result = "a capture",
                                        .thread_name = "rxe-user-pcap"};
constexpr size_t kRecordHeader = 16;

}  // namespace

std::unique_ptr<Capture> Capture::Begin(const std::string& name,
                                        const Limits& limits) {
  const auto header = wire::PcapFileHeader(wire::LinkType::kLinuxSll);
  auto file =
      BufferedFile::Begin(name, limits, kWords, {header.begin(), header.end()});
  if (file == nullptr) return nullptr;
  return std::unique_ptr<Capture>(new Capture(std::move(file)));
}

void Capture::OnPacket(const transport::ObservedPacket& packet) {
  if (file_->failed()) return;
  std::array<uint8_t, kRecordHeader + kMaxFrameHeaders> before;
  const size_t size =
      kRecordHeader +
      EmitFrameHeaders(packet, true, before.data() + kRecordHeader);
  const size_t frame = size - kRecordHeader + packet.bytes.size();
  file_->Append(size + packet.bytes.size(), [&](std::vector<uint8_t>* out) {
    const auto record = wire::PcapRecordHeader(ClockNs(CLOCK_REALTIME), frame);
    std::memcpy(before.data(), record.data(), record.size());
    out->insert(out->end(), before.begin(),
                before.begin() + static_cast<ptrdiff_t>(size));
    out->insert(out->end(), packet.bytes.begin(), packet.bytes.end());
  });
}

}  // namespace rxe_user
