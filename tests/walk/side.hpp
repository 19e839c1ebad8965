#pragma once

#include "cell.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/runtime/runtime.hpp>

#include <array>
#include <atomic>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>

namespace walk {

/// The state of one end, in memory that it shares with the process that watches it.
struct side {
  std::atomic<std::uint64_t> steps{0};       ///< Grows with all that gets on.
  std::atomic<std::uint32_t> walk{0};        ///< The place of the walk in the pair's list.
  std::atomic<std::uint32_t> operations{0};  ///< Ended operations of this walk.
  std::atomic<const char*> doing{"starts"};  ///< A literal: it lies there in every fork.
  std::atomic<bool> has_failed{false};
  std::array<char, 400> failure{};  ///< The reason, when it has failed.

  void does(const char* what) noexcept {
    doing = what;
    ++steps;
  }
  void has_done_one() noexcept {
    ++operations;
    ++steps;
  }
  void fails(const char* why) noexcept {
    std::snprintf(failure.data(), failure.size(), "%s", why);
    has_failed = true;
  }
};

/// The ports where the answering end listens: without heartbeats, and with.
using acceptors = std::array<std::uint16_t, 2>;

// The two ends agree upon the following.
struct echo
    : cordma::rpc::method<"walk.echo", std::span<const std::byte>, std::span<const std::byte>> {};
/// Tells the handler which operation of the walk it is.
struct order {
  std::uint64_t key = 0;
  std::uint64_t size_bytes = 0;
};
/// Looks at the request as one that is filled with any operation's key.
struct take : cordma::rpc::method<"walk.take", std::span<const std::byte>> {};
struct give : cordma::rpc::method<"walk.give", order, std::vector<std::byte>> {};
struct read_source : cordma::rpc::method<"walk.read_source", order> {};
struct write_sink : cordma::rpc::method<"walk.write_sink", order> {};

/// Heartbeats are far more frequent than any watch is patient. All other timers are much longer:
/// what waits for one stands still.
cordma::connection_options options_of(bool has_heartbeats);
cordma::stream_options stream_options_of();
/// Enough for the operations of any walk.
cordma::local_mr walk_memory(cordma::mr_allocator& from, std::span<const cell> walks);
/// \errors `what` is wrong with operation `k`.
[[noreturn]] void complain(unsigned k, const std::string& what);
void check_filled(std::span<const std::byte> bytes, const cell& c, unsigned k);

/// Three slices of uneven length, one behind the other.
std::array<cordma::local_mr_slice, 3> cut(const cordma::local_mr_slice& all, std::size_t first);

/// The end that asks. \thread the runtime's.
class asking_end {
 public:
  asking_end(cordma::runtime& rt, side& me, std::span<const cell> walks);
  cordma::task<> live(std::string host, acceptors where);

 private:
  struct talk;
  cordma::task<> take_walk(const cell& c, cordma::endpoint where);
  cordma::task<> use(cordma::connection conn, const cell& c);
  cordma::task<> operate_all(talk& t);
  cordma::task<> operate_some(talk& t, unsigned& next);
  cordma::task<> operate(talk& t, unsigned k);
  cordma::task<> swap(talk& t, unsigned k);
  cordma::task<> echo_message(talk& t, unsigned k);
  cordma::task<> call(talk& t, unsigned k);

  cordma::runtime& rt_;
  side& me_;
  std::span<const cell> walks_;
  cordma::local_mr memory_;
  cordma::message_stream control_;
};

/// The end that answers. \thread the runtime's.
class answering_end {
 public:
  /// Listens at `host`.
  answering_end(cordma::runtime& rt, side& me, std::span<const cell> walks,
                const std::string& host);
  [[nodiscard]] acceptors listens_at() const;
  cordma::task<> live();

 private:
  cordma::task<> take_walk(const cell& c);
  cordma::task<> serve_memory(const cell& c, cordma::connection conn);
  cordma::task<> take_messages(const cell& c, cordma::connection& conn);
  cordma::task<> echo_messages(const cell& c, cordma::message_stream stream);
  cordma::task<> serve_calls(const cell& c, cordma::connection conn);
  void prepare(const cell& c, cordma::connection& conn);
  void check_memory(const cell& c);
  cordma::task<> say_ready();
  /// When the other end has done all: tells it that all is as it should be.
  cordma::task<> say_checked();
  [[nodiscard]] cordma::local_mr_slice area(const cell& c, unsigned k) {
    return memory_.slice(k * c.stride(), c.size_bytes);
  }
  [[nodiscard]] std::uint64_t& word(const cell& c, unsigned k) {
    return memory_.slice(k * c.stride(), sizeof(std::uint64_t)).as<std::uint64_t>()[0];
  }

  side& me_;
  std::span<const cell> walks_;
  cordma::local_mr memory_;
  std::array<cordma::listener, 2> acceptors_;
  cordma::message_stream control_;
};

}  // namespace walk
