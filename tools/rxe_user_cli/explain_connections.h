// What the messages of connection management in recordings tell of connections
// that failed.
#ifndef TOOLS_RXE_USER_CLI_EXPLAIN_CONNECTIONS_H_
#define TOOLS_RXE_USER_CLI_EXPLAIN_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/trace/timeline.h"

namespace rxe_user_cli {

// Of each connection of the file that the peer refused, or whose last message
// was sent several times without an answer: several lines. Empty if there is
// none.
std::string ExplainConnections(const trace::Timeline& timeline, size_t file);

// The messages of the connection that `qpn` of the file belongs to: a line
// each, as in a chain of ExplainQueuePair, with times before `now`. Empty if
// there are none.
std::string MessagesOf(const trace::Timeline& timeline, size_t file,
                       uint32_t qpn, int64_t now);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPLAIN_CONNECTIONS_H_
