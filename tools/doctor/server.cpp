#include "server.hpp"

#include "connection/connection_resources.hpp"

#include <cordma/io/socket_address.hpp>
#include <cordma/rpc/server.hpp>

#include <algorithm>
#include <cstdio>

namespace doctor {
namespace {

cordma::connection_options server_options(const cordma::runtime& rt) {
  cordma::connection_options o = changed(rt.connection_defaults(), changes_for(operation::lend));
  o.insecure = true;
  o.fabric.mtu.reset();  // The client decides on it.
  return o;
}

/// Refuses programs that are no cordma-doctor, or another version of it.
void admit(cordma::connection_request& request) {
  if (!decode(request.private_data))
    request.refuse("here is a cordma-doctor: connect with one of the same version");
}

cordma::listener_options limits() {
  cordma::listener_options o;
  o.admit = [](cordma::connection_request& request) { admit(request); };
  return o;
}

/// A reply that is ready.
cordma::task<std::string> reply(std::string text) { co_return text; }

}  // namespace

server::server(cordma::runtime& rt, const cordma::endpoint& local, std::string device)
    : rt_{rt},
      device_{std::move(device)},
      acceptor_{rt.resources(), local, server_options(rt), limits()} {}

bool server::is_open_to_strangers() const {
  const cordma::endpoint here = acceptor_.local_endpoint();
  if (here.kind == cordma::endpoint::bootstrap::unix_socket) return false;
  return !cordma::socket_address::resolve(here.host, here.port).front().is_loopback();
}

cordma::task<> server::serve() {
  const auto handle = [this](cordma::connection conn) { return serve_one(std::move(conn)); };
  const auto complain = [](const cordma::handler_failure& f) {
    std::fprintf(stderr, "%s\n", f.to_string().c_str());
  };
  co_await cordma::serve(acceptor_, handle, complain, connections_max);
}

cordma::task<> server::serve_one(cordma::connection conn) {
  const std::optional<purpose> wanted = decode(conn.peer_private_data());
  if (!wanted) co_return;  // `admit` has refused it.
  if (!wanted->op) co_return co_await serve_calls(std::move(conn));
  if (!wanted->server_acts) co_return co_await answer(rt_, std::move(conn), *wanted->op);
  const outcome o = co_await outcome_of_act(rt_, std::move(conn), *wanted->op);
  keep(wanted->number, o);
}

cordma::task<> server::serve_calls(cordma::connection conn) {
  std::printf("%s: connected\n", conn.peer().to_string().c_str());
  cordma::rpc::server calls;
  calls.handle<outcome_of>([this](std::uint64_t number) { return wait_for_outcome(number); });
  calls.handle<device_of>([this](cordma::rpc::nothing) { return reply(device_); });
  co_await calls.serve(std::move(conn));
}

cordma::task<std::string> server::wait_for_outcome(std::uint64_t number) {
  for (;;) {
    const auto found =
        std::ranges::find(outcomes_, number, [](const auto& one) { return one.first; });
    if (found != outcomes_.end()) co_return found->second;
    changed_.reset();
    co_await changed_.wait();  // The call's deadline stops it.
  }
}

void server::keep(std::uint64_t number, const outcome& o) {
  if (outcomes_.size() == outcomes_max) outcomes_.pop_front();
  outcomes_.emplace_back(number, encode(o));
  changed_.set();
}

}  // namespace doctor
