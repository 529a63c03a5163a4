// Text tables.
#ifndef TOOLS_RXE_USER_CLI_TABLE_H_
#define TOOLS_RXE_USER_CLI_TABLE_H_

#include <string>
#include <vector>

namespace rxe_user_cli {

using Row = std::vector<std::string>;

// Left-aligned columns, separated by two spaces, without trailing spaces.
std::string Aligned(const std::vector<Row>& rows);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_TABLE_H_
