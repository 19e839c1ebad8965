#include "client.hpp"

#include "progress.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/rpc/client.hpp>

#include <cstring>
#include <stdexcept>
#include <system_error>

namespace perf {
namespace {

/// The deadline of calls to the server; longer than the server waits for a client that died.
constexpr std::chrono::seconds control_deadline{30};

std::vector<remote_end> decode_remote_ends(const std::vector<std::byte>& bytes, const job& what) {
  if (bytes.size() != what.connections * sizeof(remote_end)) {
    throw std::runtime_error{"the server tells " +
                             std::to_string(bytes.size() / sizeof(remote_end)) + " places for " +
                             std::to_string(what.connections) + " connections"};
  }
  std::vector<remote_end> all(what.connections);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// Runs the job, from the connections to the last operation.
cordma::task<> run_threads(cordma::rpc::client& server, std::uint32_t number, const job& what,
                           const client_options& options, load& threads) {
  co_await threads.connected();
  if (threads.has_ended()) co_return;
  const std::vector<std::byte> remote_ends = co_await server.call<remote_ends_of>(number);
  threads.go(decode_remote_ends(remote_ends, what));
  static_cast<void>(
      co_await cordma::when_any(threads.ended(), show_progress(what, threads, options)));
}

cordma::task<result> run_job(cordma::runtime& control, cordma::rpc::client& server, job what,
                             const client_options& options, const std::string& host) {
  const opened at = co_await server.call<open_job>(encode(what));
  if (at.port == 0 || at.port > 65535) throw std::runtime_error{"the server tells no port"};
  const cordma::endpoint acceptor{host, std::uint16_t(at.port)};
  load threads{control.executor(), what, options, acceptor};
  std::exception_ptr why;
  try {
    co_await run_threads(server, at.number, what, options, threads);
  } catch (...) {
    why = std::current_exception();
    threads.stop();
  }
  co_await threads.ended();
  threads.check();
  if (why != nullptr) std::rethrow_exception(why);

  result r{.what = what, .ours = threads.result()};
  const ended there = co_await server.call<end_job>(at.number);
  const std::uint64_t all = r.operations() + r.ours.warm_up_operations;
  if (what.is_bidirectional) {
    r.reverse = reverse_result{.operations = there.operations,
                               .seconds = double(there.time_ns) / 1e9,
                               .p50 = std::chrono::nanoseconds{there.p50_ns},
                               .p99 = std::chrono::nanoseconds{there.p99_ns},
                               .max = std::chrono::nanoseconds{there.max_ns}};
  }
  r.server_cpu = std::chrono::nanoseconds{all == 0 ? 0 : there.cpu_ns / all};
  co_return r;
}

bool has_lost_peer(const cordma::error& e) {
  const std::error_code code = e.code();
  return code == cordma::errc::disconnected || code == std::errc::connection_reset ||
         code == std::errc::connection_refused || code == std::errc::broken_pipe;
}

}  // namespace

cordma::task<> run_with_server(cordma::runtime& control, client_options options,
                               cordma::endpoint server, std::vector<job> jobs,
                               std::function<void(const result&)> each) {
  cordma::connection conn = co_await control.connect(server);
  cordma::rpc::client calls{std::move(conn), {.call_timeout = control_deadline}};
  std::exception_ptr why;
  try {
    for (const job& what : jobs) {
      const result r = co_await run_job(control, calls, what, options, server.host);
      each(r);
    }
  } catch (const cordma::error& e) {
    why = has_lost_peer(e) ? std::make_exception_ptr(std::runtime_error{
                                 "the server at " + server.to_string() +
                                 " has ended, or its host: start it again (" + e.what() + ")"})
                           : std::current_exception();
  } catch (const std::exception&) {
    why = std::current_exception();
  }
  co_await calls.close();  // A server need not take us for dead, whatever became of the calls.
  if (why != nullptr) std::rethrow_exception(why);
}

}  // namespace perf
