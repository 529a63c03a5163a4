// Reads from a program's file which libraries the program can load.
#ifndef TOOLS_RXE_USER_CLI_PROGRAM_FILE_H_
#define TOOLS_RXE_USER_CLI_PROGRAM_FILE_H_

#include <optional>
#include <string>

namespace rxe_user_cli {

// Why the program `file` cannot load our libraries, by its ELF header (elf(5)):
// "is statically linked: ...". Absent if it can, or if it is not an ELF file or
// cannot be read.
std::optional<std::string> WhyCannotLoad(const std::string& file);

// Whether the program `file` is linked with musl. Its dynamic linker would load
// our libraries, which need glibc, and fail.
bool IsOfMusl(const std::string& file);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_PROGRAM_FILE_H_
