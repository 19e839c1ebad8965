#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/runtime/runtime.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace doctor {

/// Operations that are tried, each over a connection of its own: one that fails breaks no other.
/// The numbers are on the wire.
enum class operation : std::uint8_t {
  send = 1,
  send_with_imm = 2,
  write = 3,
  write_with_imm = 4,
  read = 5,
  compare_swap = 6,
  fetch_add = 7,
  atomic_write = 8,
  lend = 9,           ///< Memory that the other side lends, under a lease.
  stream = 10,        ///< A long message of a message stream, which goes by rendezvous.
  bulk = 11,          ///< 64 KiB written and read: every packet but the last is as long as the MTU.
  late_receive = 12,  ///< A SEND whose receive is posted late.
  silence = 13,       ///< A SEND to a queue pair that no longer answers.
};
inline constexpr std::array transfers{
    operation::send, operation::send_with_imm, operation::write,     operation::write_with_imm,
    operation::read, operation::compare_swap,  operation::fetch_add, operation::atomic_write,
    operation::lend, operation::stream};

const char* to_string(operation op) noexcept;
/// Returns true for a number of the wire that is one.
bool is_operation(std::uint8_t number) noexcept;

/// The device of a side lacks the operation: no failure.
struct not_there : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How long `late_receive` keeps the sender waiting.
inline constexpr std::chrono::milliseconds lateness{150};
/// Deadline of one attempt on either side.
inline constexpr std::chrono::seconds attempt_time_max{10};

/// Does the active side of `op`, checks the data, and closes the connection. Gives what is worth
/// knowing, mostly how long it took.
/// \errors  `not_there`; `cordma::error`; std::runtime_error: data that differ, or a device that
///   does what it should not.
cordma::task<std::string> act(cordma::runtime& rt, cordma::connection conn, operation op);
/// Does the passive side, until the peer closes or the connection is lost.
cordma::task<> answer(cordma::runtime& rt, cordma::connection conn, operation op);

/// Returns the time since then, for people.
std::string took(std::chrono::steady_clock::time_point since);

/// Returns the options that both sides of `op` need beside the defaults.
cordma::connection_changes changes_for(operation op);

}  // namespace doctor
