// One client of the port broker: its connection and its deadlines.
#ifndef RXE_USER_BROKER_CLIENT_H_
#define RXE_USER_BROKER_CLIENT_H_

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/mad_queue.h"
#include "rxe_user/broker/open_connection.h"
#include "rxe_user/broker/token_bucket.h"

namespace rxe_user::broker {

using Clock = std::chrono::steady_clock;

// How often positions are probed while groups contain sockets that we do not
// hold.
inline constexpr std::chrono::milliseconds kSettleGaps{1000};

// Bytes that a client may leave unread, including the kernel's overhead for
// each message.
inline constexpr int kClientSendBuffer = 212'992;

// Handlers that wait for a client hold a shared pointer: a dropped client lives
// on, closed, until the last handler has been called.
struct Client : std::enable_shared_from_this<Client> {
  explicit Client(boost::asio::io_context& io)
      : connection(io),
        turn(io),
        hello_deadline(io),
        open_retry(io),
        list_retry(io) {}

  bool dropped() const { return !connection.is_open(); }
  int fd() { return connection.native_handle(); }

  boost::asio::posix::stream_descriptor connection;  // owns the descriptor
  // Set while its user has used up its share of time (user_time.h).
  boost::asio::steady_timer turn;
  uid_t uid = 0;
  uid_t account = 0;     // the user to whose quotas it counts (accounts.h)
  bool trusted = false;  // our user's or root's: its ledger is trusted
  std::optional<uint16_t> slot;
  // Open::wants_unverified of any of its addresses.
  bool wants_unverified = false;
  bool waiting_for_slot = false;
  bool restoring = false;  // is handing sockets back
  // Deadline for its Hello.
  boost::asio::steady_timer hello_deadline;

  // A request for a socket. It waits for a recovery to end, or for sockets that
  // are being closed.
  struct PendingOpen {
    LocalAddress local;
    Clock::time_point since;
  };
  std::optional<PendingOpen> open;
  boost::asio::steady_timer open_retry;

  // The client's answer so far to ListConnected. Absent if the client was not
  // asked, or has answered completely.
  std::optional<std::vector<OpenConnection>> listed;
  // When it may be asked again.
  Clock::time_point list_again = Clock::time_point::min();
  boost::asio::steady_timer list_retry;
  bool list_waits = false;  // the retry timer is set

  TokenBucket strays{kStraysPerSecond, kStrayBurst};

  // MADs that wait for space in its connection.
  MadQueue mads;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_CLIENT_H_
