#include "tools/rxe_user_cli/capture_option.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "wire/pcap.h"
#include "wire/pcapng.h"

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

struct Output {
  const char* variable;
  const char* verb;   // "capture to"
  const char* thing;  // "a capture"
  std::span<const uint8_t> beginning;
};

// Whether the file is empty or begins as those of the library do.
bool IsOurs(const fs::path& file, std::span<const uint8_t> beginning) {
  std::vector<char> begin(beginning.size());
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (in.gcount() == 0) return in.eof();
  return std::memcmp(begin.data(), beginning.data(), begin.size()) == 0;
}

bool Fail(const Output& output, const std::string& file,
          const std::string& why) {
  std::fprintf(stderr, "rxe-user run: cannot %s %s: %s\n", output.verb,
               file.c_str(), why.c_str());
  return false;
}

bool Set(const Output& output, const std::string& file) {
  std::error_code error;
  const fs::path path = fs::absolute(file, error);
  if (error) return Fail(output, file, error.message());
  if (fs::is_regular_file(path, error)) {
    if (!IsOurs(path, output.beginning)) {
      return Fail(output, file,
                  std::string("the file exists and is not ") + output.thing);
    }
    if (!fs::remove(path, error) && error) {
      return Fail(output, file, error.message());
    }
  }
  if (setenv(output.variable, path.c_str(), 1) == 0) return true;
  return Fail(output, file, std::strerror(errno));
}

}  // namespace

bool SetCapture(const std::string& file) {
  const auto header = wire::PcapFileHeader();
  return Set({.variable = "RXE_USER_CAPTURE",
              .verb = "capture to",
              .thing = "a capture",
              .beginning = std::span(header).first(4)},
             file);
}

bool SetTrace(const std::string& file) {
  std::vector<uint8_t> section;
  wire::pcapng::AppendSection("rxe_user", &section);
  return Set({.variable = "RXE_USER_TRACE",
              .verb = "record to",
              .thing = "a recording",
              .beginning = section},
             file);
}

}  // namespace rxe_user_cli
