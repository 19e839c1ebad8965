#pragma once

#include "latencies.hpp"
#include "two_processes.hpp"

#include <cordma/coro/task.hpp>

namespace bench {

/// The kind of the message that goes there and back, which decides how its coming is noticed.
enum class ball : unsigned char { send, write_with_imm, write };

/// The two ends of a ping-pong between two processes, by raw verbs and by ours: the same requests,
/// the same completion entries.
namespace ping_pong {

/// Goes there and back as often as `to` takes, from here; the other process is ordered to answer.
void raw(two_processes& both, ball what, noticing how, latencies& to);
void ours(two_processes& both, ball what, noticing how, latencies& to);
/// Goes there and back once, in a coroutine on `here.ours(how).executor`; the other must have been
/// ordered.
cordma::task<> once(link_end& here, ball what, noticing how, latencies& to);
void order_ours(two_processes& both, ball what, noticing how, std::uint64_t n);

/// SENDs there and back, `window` of them at once.
void raw_window(two_processes& both, noticing how, std::uint64_t n, std::uint64_t window);
void our_window(two_processes& both, noticing how, std::uint64_t n, std::uint64_t window);

/// The servant's side of all of them.
void serve(link_end& there, unsigned what, std::uint64_t n);

}  // namespace ping_pong

}  // namespace bench
