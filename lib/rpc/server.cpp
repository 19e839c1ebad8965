#include <cordma/rpc/server.hpp>

#include "base/check_option.hpp"
#include "server_core.hpp"

namespace cordma::rpc {

void check(const server_options& o) {
  constexpr const char* name = "server_options";
  cordma::check(o.stream);
  check_option("stream_options", "large_ahead", o.stream.large_ahead, 1, 64);
  check_option(name, "calls_per_connection_max", o.calls_per_connection_max, 1, UINT16_MAX);
  check_option(name, "calls_max", o.calls_max, 1, 16 << 20);
  check_timeout(name, "answer_timeout", o.answer_timeout);
  check_option(name, "drain_timeout", o.drain_timeout, duration{0}, std::chrono::hours{24});
}

connection& server_call::connection() noexcept { return call_.link->conn(); }

duration server_call::remaining() const noexcept {
  const time_point until = call_.deadline();
  if (until == time_point::max()) return duration::max();
  return std::max(until - call_.link->executor().now(), duration{});
}

trace_context server_call::trace() const noexcept { return call_.trace(); }
bool server_call::has_source() const noexcept {
  return (call_.asked.bulk & call_protocol::source) != 0;
}
bool server_call::has_sink() const noexcept {
  return (call_.asked.bulk & call_protocol::sink) != 0;
}
remote_mr server_call::source() { return call_.link->borrow(call_, call_protocol::source); }
task<local_mr> server_call::fetch_source(std::size_t bytes_max) {
  return call_.link->fetch(call_, bytes_max);
}
remote_mr server_call::sink() { return call_.link->borrow(call_, call_protocol::sink); }

server::server(const server_options& options)
    : core_{std::make_unique<detail::server_core>(options)} {}
server::~server() {
  CORDMA_ASSERT(counters().connections == 0, "a server must outlive the tasks that serve");
}

void server::add(std::unique_ptr<detail::served_method> m) { core_->add(std::move(m)); }
task<> server::serve(cordma::connection conn) { return core_->serve(std::move(conn)); }
task<> server::serve(listener& acceptor) { return core_->serve(acceptor); }
task<> server::drain() { return core_->drain(); }
const server_counters& server::counters() const noexcept { return core_->counters; }
stream_counters server::streams() const noexcept { return core_->streams(); }

}  // namespace cordma::rpc
