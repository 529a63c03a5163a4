#include "tools/rxe_user_cli/capture_option.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "wire/pcap.h"

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

// Whether the file is empty or a capture of the library.
bool IsCapture(const fs::path& file) {
  char begin[4] = {};
  std::ifstream in(file, std::ios::binary);
  in.read(begin, sizeof(begin));
  if (in.gcount() == 0) return in.eof();
  return std::memcmp(begin, wire::PcapFileHeader().data(), sizeof(begin)) == 0;
}

bool Fail(const std::string& file, const std::string& why) {
  std::fprintf(stderr, "rxe-user run: cannot capture to %s: %s\n", file.c_str(),
               why.c_str());
  return false;
}

}  // namespace

bool SetCapture(const std::string& file) {
  std::error_code error;
  const fs::path path = fs::absolute(file, error);
  if (error) return Fail(file, error.message());
  if (fs::is_regular_file(path, error)) {
    if (!IsCapture(path)) {
      return Fail(file, "the file exists and is not a capture");
    }
    if (!fs::remove(path, error) && error) return Fail(file, error.message());
  }
  if (setenv("RXE_USER_CAPTURE", path.c_str(), 1) == 0) return true;
  return Fail(file, std::strerror(errno));
}

}  // namespace rxe_user_cli
