// The captures in this folder, for tests.

#ifndef TESTS_GOLDEN_GOLDEN_FILES_H_
#define TESTS_GOLDEN_GOLDEN_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace golden {

struct CapturedFrame {
  int number = 0;  // in its file, from 1, as in Wireshark
  int64_t time_ns = 0;
  int link_type = 0;
  std::vector<uint8_t> bytes;
};

// Paths of the captures of the kernel's rxe; never empty.
std::vector<std::string> KernelRxeFiles();

// Paths of the captures of hardware; empty if they are missing (README.md).
std::vector<std::string> HardwareFiles();

// All frames of a capture. The test fails if it cannot be read.
std::vector<CapturedFrame> ReadCapture(const std::string& path);

}  // namespace golden

#endif  // TESTS_GOLDEN_GOLDEN_FILES_H_
