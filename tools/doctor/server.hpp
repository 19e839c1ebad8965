#pragma once

#include "frames.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/runtime/runtime.hpp>

#include <deque>
#include <string>
#include <utility>

namespace doctor {

/// The peer's side: answers clients, acts towards them, and keeps the outcome for them to ask.
class server {
 public:
  /// Outcomes that are kept at once; the oldest is forgotten.
  static constexpr std::size_t outcomes_max = 256;
  /// Connections at once.
  static constexpr unsigned connections_max = 64;

  /// Listens. \param device  what clients are told about this side's device.
  /// \errors those of `runtime::listen`.
  server(cordma::runtime& rt, const cordma::endpoint& local, std::string device);

  [[nodiscard]] cordma::endpoint local_endpoint() const { return acceptor_.local_endpoint(); }
  /// Returns true if other hosts may connect: the server authenticates nobody.
  [[nodiscard]] bool is_open_to_strangers() const;
  /// Serves until it is stopped.
  cordma::task<> serve();

 private:
  cordma::task<> serve_one(cordma::connection conn);
  cordma::task<> serve_calls(cordma::connection conn);
  cordma::task<std::string> wait_for_outcome(std::uint64_t number);
  void keep(std::uint64_t number, const outcome& o);

  cordma::runtime& rt_;
  std::string device_;
  cordma::listener acceptor_;
  std::deque<std::pair<std::uint64_t, std::string>> outcomes_;
  cordma::event changed_;
};

}  // namespace doctor
