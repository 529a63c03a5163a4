// Explains connections that failed, by the messages of connection management in
// recordings.
#ifndef TOOLS_RXE_USER_CLI_EXPLAIN_CONNECTIONS_H_
#define TOOLS_RXE_USER_CLI_EXPLAIN_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/timeline.h"
#include "wire/address.h"

namespace rxe_user_cli {

struct CmMessage;

// The connections of a file.
class Connections {
 public:
  Connections(const trace::Timeline& timeline, size_t file);
  ~Connections();

  // Several lines for each connection that the peer refused, or whose last
  // message was sent several times without an answer. Empty if there is none.
  std::string Failed() const;

  // The messages of the connection that `qpn` belongs to, one line each, as in
  // a chain of ExplainQueuePair. Their times count back from `now`. Empty if
  // there are none.
  std::string MessagesOf(uint32_t qpn, int64_t now) const;

 private:
  using List = std::vector<const CmMessage*>;

  std::string process_;  // ", process 7 (server)"
  int64_t now_ = 0;      // of the last event
  std::vector<CmMessage> messages_;
  // By the peer's address and our communication ID.
  std::map<std::pair<wire::IpAddress, uint32_t>, List> connections_;
  std::map<uint32_t, const List*> by_qpn_;  // the first connection of each
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPLAIN_CONNECTIONS_H_
