// One client of the port broker: its connection and its deadlines.
#ifndef RXE_USER_BROKER_CLIENT_H_
#define RXE_USER_BROKER_CLIENT_H_

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/mad_queue.h"
#include "rxe_user/broker/open_connection.h"
#include "rxe_user/broker/token_bucket.h"

namespace rxe_user::broker {

using Clock = std::chrono::steady_clock;

// How often positions are looked at again while sockets that we do not hold
// stand among ours.
inline constexpr std::chrono::milliseconds kSettleGaps{1000};

// What the broker may have said to a client that has not read it: bytes, with
// what the kernel needs for each message.
inline constexpr int kClientSendBuffer = 212'992;

// Handlers that wait for it hold a shared pointer: one that was dropped lives
// on, closed, until the last of them has been called.
struct Client {
  explicit Client(boost::asio::io_context& io)
      : connection(io),
        turn(io),
        hello_deadline(io),
        open_retry(io),
        list_retry(io) {}

  bool dropped() const { return !connection.is_open(); }
  int fd() { return connection.native_handle(); }

  boost::asio::posix::stream_descriptor connection;  // owns the descriptor
  // Its next one, where its user has had more than its share (user_time.h).
  boost::asio::steady_timer turn;
  uid_t uid = 0;
  uid_t account = 0;     // the user whose shares it takes (accounts.h)
  bool trusted = false;  // of our user or root: its ledger is believed
  std::optional<uint8_t> slot;
  bool verifies = false;  // Open::verifies of any of its addresses
  bool waiting_for_slot = false;
  bool restoring = false;  // hands sockets back; not finished yet
  // When it has to have introduced itself.
  boost::asio::steady_timer hello_deadline;

  // A request for a socket that waits for a recovery to end, or for sockets
  // that are just being closed.
  struct PendingOpen {
    LocalAddress local;
    Clock::time_point since;
  };
  std::optional<PendingOpen> open;
  boost::asio::steady_timer open_retry;

  // What it has answered so far when it was asked for its connections; absent
  // if it was not, or has answered.
  std::optional<std::vector<OpenConnection>> listed;
  // When it may be asked again.
  Clock::time_point list_again = Clock::time_point::min();
  boost::asio::steady_timer list_retry;
  bool list_waits = false;  // for that

  TokenBucket strays{kStraysPerSecond, kStrayBurst};

  // MADs that wait for room in its connection.
  MadQueue mads;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_CLIENT_H_
