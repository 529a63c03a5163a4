#include "tools/rxe_user_cli/program_file.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

constexpr unsigned char kOurClass =
    sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
// The longest path of an interpreter.
constexpr size_t kLongestName = 4096;

template <typename T>
bool ReadAt(std::ifstream& in, size_t offset, T* value) {
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(value), sizeof(*value));
  return in.good();
}

// Whether `file` is the dynamic linker, which runs programs given as arguments.
bool IsDynamicLinker(const std::string& file) {
  std::error_code error;
  const std::string name = fs::canonical(file, error).filename().string();
  return name.starts_with("ld-") || name == "ld.so";
}

// The dynamic linker that the program names. Absent if it is statically linked,
// empty if the file is cut off before that.
std::optional<std::string> Interpreter(std::ifstream& in,
                                       const Header& header) {
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment;
    if (!ReadAt(in, header.e_phoff + i * sizeof(segment), &segment)) return "";
    if (segment.p_type != PT_INTERP) continue;
    std::string name(std::min<size_t>(segment.p_filesz, kLongestName), '\0');
    in.seekg(static_cast<std::streamoff>(segment.p_offset));
    in.read(name.data(), static_cast<std::streamsize>(name.size()));
    return name;
  }
  return std::nullopt;
}

bool IsMuslLinker(const std::string& name) {
  return fs::path(name).filename().string().starts_with("ld-musl");
}

}  // namespace

bool IsOfMusl(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  std::ifstream in(file, std::ios::binary);
  Header header;
  if (!ReadAt(in, 0, &header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(Segment)) {
    return false;
  }
  const std::optional<std::string> interpreter = Interpreter(in, header);
  return interpreter.has_value() && IsMuslLinker(*interpreter);
}

std::optional<std::string> WhyCannotLoad(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  std::ifstream in(file, std::ios::binary), self("/proc/self/exe");
  unsigned char ident[EI_NIDENT];
  if (!ReadAt(in, 0, &ident) || std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
    return std::nullopt;
  }
  if (ident[EI_CLASS] != kOurClass) {
    const bool is_64 = ident[EI_CLASS] == ELFCLASS64;
    return std::string("is a ") + (is_64 ? "64" : "32") +
           "-bit program: our libraries are for " + (is_64 ? "32" : "64") +
           " bits";
  }
  Header header, ours;
  if (!ReadAt(in, 0, &header) || header.e_phentsize != sizeof(Segment)) {
    return std::nullopt;
  }
  if (ReadAt(self, 0, &ours) && ours.e_machine != header.e_machine) {
    return "is for another processor than our libraries";
  }
  const std::optional<std::string> interpreter = Interpreter(in, header);
  if (interpreter.has_value()) {
    if (!IsMuslLinker(*interpreter)) return std::nullopt;
    return "is linked with musl: our libraries need glibc";
  }
  if (IsDynamicLinker(file)) return std::nullopt;
  return "is statically linked: it loads no libraries";
}

}  // namespace rxe_user_cli
