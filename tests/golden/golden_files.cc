#include "tests/golden/golden_files.h"

#include <gtest/gtest.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace golden {
namespace {

namespace fs = std::filesystem;

// Relative to the folder in which Bazel runs tests.
constexpr char kKernelRxe[] = "tests/golden/kernel_rxe";

std::vector<std::string> CapturesIn(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".pcap") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<std::string> KernelRxeFiles() { return CapturesIn(kKernelRxe); }

std::vector<std::string> HardwareFiles() {
  if (const char* folder = std::getenv("RXE_USER_TEST_GOLDEN_HARDWARE")) {
    return CapturesIn(folder);
  }
  const std::vector<std::string> ours = KernelRxeFiles();
  if (ours.empty()) return {};
  // Tests see links into the checkout: CHECKOUT/tests/golden/kernel_rxe/FILE.
  std::error_code error;
  const fs::path file = fs::canonical(ours.front(), error);
  if (error) return {};
  const fs::path checkout =
      file.parent_path().parent_path().parent_path().parent_path();
  return CapturesIn(checkout.parent_path() / "shared/golden/hardware");
}

std::vector<CapturedFrame> ReadCapture(const std::string& path) {
  char error[PCAP_ERRBUF_SIZE];
  pcap_t* const pcap = pcap_open_offline_with_tstamp_precision(
      path.c_str(), PCAP_TSTAMP_PRECISION_NANO, error);
  if (pcap == nullptr) {
    ADD_FAILURE() << path << ": " << error;
    return {};
  }
  std::vector<CapturedFrame> frames;
  pcap_pkthdr* header;
  const u_char* data;
  int result;
  while ((result = pcap_next_ex(pcap, &header, &data)) == 1) {
    CapturedFrame frame;
    frame.number = static_cast<int>(frames.size()) + 1;
    frame.time_ns = header->ts.tv_sec * 1'000'000'000LL + header->ts.tv_usec;
    frame.link_type = pcap_datalink(pcap);
    frame.bytes.assign(data, data + header->caplen);
    frames.push_back(std::move(frame));
  }
  EXPECT_EQ(result, PCAP_ERROR_BREAK) << path << ": " << pcap_geterr(pcap);
  pcap_close(pcap);
  return frames;
}

}  // namespace golden
