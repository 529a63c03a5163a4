// What the file of a program says about which libraries it can load.
#ifndef TOOLS_RXE_USER_CLI_PROGRAM_FILE_H_
#define TOOLS_RXE_USER_CLI_PROGRAM_FILE_H_

#include <optional>
#include <string>

namespace rxe_user_cli {

// Why the program `file` cannot load our libraries, by its ELF header (elf(5)):
// "is statically linked: ..."; absent if it can, or if it is no ELF file, or
// not to be read.
std::optional<std::string> WhyOutOfReach(const std::string& file);

// Whether the program `file` is linked with musl, whose dynamic linker would
// load our libraries and end the program, since they need glibc.
bool IsOfMusl(const std::string& file);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_PROGRAM_FILE_H_
