#pragma once

#include "device_choice.hpp"
#include "methods.hpp"
#include "reverse_load.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace perf {

struct server_options {
  device_choice device{};
  std::string host = "127.0.0.1";  ///< The server's clients must reach this address.
  std::uint16_t port = 0;
  std::uint16_t data_port = 0;  ///< 0: the kernel chooses, for each job.
  std::uint64_t memory_bytes_max = std::uint64_t{2} << 30;  ///< a job's, at most
  std::uint32_t threads_max = 0;                            ///< 0: as many as there are CPUs.
  std::vector<unsigned>
      pin{};  ///< CPUs of a job's threads, from the one at `pin_first` on; empty: any.
  std::size_t pin_first = 0;
  bool only_one_client = false;  ///< The server ends after its first client.
  bool is_quiet = false;         ///< Prints nothing.
};

/// Runs jobs for clients, one at a time, whatever they ask for, send or die of. The job's
/// connections are served by threads of its own; this, and the calls that say what to run, belong
/// to `control`'s.
class server {
 public:
  /// Listens. \errors those of `runtime::listen`.
  server(cordma::runtime& control, server_options options);
  ~server();
  [[nodiscard]] cordma::endpoint local_endpoint() const { return acceptor_.local_endpoint(); }
  /// Returns true if other hosts may connect: the server authenticates nobody.
  [[nodiscard]] bool is_open_to_strangers() const;
  /// Serves until it is stopped, or, with `only_one_client`, its first client has gone.
  cordma::task<> serve();

 private:
  struct running_job;
  class session;

  cordma::task<> serve_client(cordma::connection conn);
  cordma::task<> serve_session(const std::string& client_name, cordma::connection conn);
  cordma::task<> serve_in(cordma::semaphore& room, cordma::connection conn);
  opened open(const session& by, const job_frame& frame);
  void check_room(const job& what) const;
  cordma::task<std::vector<std::byte>> remote_ends(const session& by, std::uint32_t number);
  cordma::task<ended> end(const session& by, std::uint32_t number);
  void drop_job_of(const session& by) noexcept;
  void ready(std::uint32_t number, const remote_end& where);
  void reversed(std::uint32_t number, const reverse_measured& measured);
  void failed(std::uint32_t number, const std::string& why);
  /// Returns the job that runs. \errors std::runtime_error: it is not this one.
  running_job& job_of(const session& by, std::uint32_t number) const;
  void say(const std::string& text) const;
  void complain(const std::string& client_name, const std::string& why) const;

  cordma::runtime& control_;
  const server_options options_;
  cordma::listener acceptor_;
  std::unique_ptr<running_job> running_;
  cordma::event is_ready_;     ///< All places of the job are there, or it failed, or is over.
  cordma::event is_reversed_;  ///< The server's own operations have ended, or the job failed.
  std::uint32_t numbers_ = 0;
};

}  // namespace perf
