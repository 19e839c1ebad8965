#include "server.hpp"

#include "counters.hpp"
#include "cpu_list.hpp"
#include "server_side.hpp"
#include "size.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/socket_address.hpp>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace perf {
namespace {

/// Clients at once; further ones wait at the listener. All but one are told that it is busy.
constexpr std::size_t clients_max = 16;
/// Connecting, warming up and closing, beside the job's own time.
constexpr std::chrono::minutes time_besides{5};
/// Bytes of the longest control message: the names of `job::connections_max` connections.
constexpr std::size_t control_message_bytes = 16 * 1024;

cordma::rpc::server_options control_options() {
  cordma::rpc::server_options o;
  o.stream.message_bytes_max = control_message_bytes;
  o.calls_per_connection_max = 4;
  return o;
}

}  // namespace

/// The job that is measured now. Destroying it stops its threads and waits for them. A wait for the
/// requests of a client that died lasts two seconds at most (`connection_options::close_timeout`).
struct server::running_job {
  running_job(const session& by, std::uint32_t n, const job& of, const server_options& on)
      : owner{&by}, number{n}, what{of}, threads{group_options(of, on)} {}
  static cordma::runtime_group_options group_options(const job& of, const server_options& on) {
    return {.each = [&of, &on](unsigned) { return on.device.runtime_options(of.mode); },
            .threads = of.threads,
            .pin = cpus_for(on.pin, on.pin_first, of.threads)};
  }

  const session* const owner;
  const std::uint32_t number;
  const job what;
  std::vector<remote_end> remote_ends{};
  std::string failure{};
  reverse_measured reverse{.began = clock::time_point::max(), .ended = clock::time_point::min()};
  std::uint32_t reversed = 0;              ///< Connections whose reverse load has ended.
  std::chrono::nanoseconds cpu_before{0};  ///< When all was set up.
  cordma::runtime_group threads;
};

/// A client that is connected.
class server::session {
 public:
  session(server& owner, std::string client_name)
      : client_name_{std::move(client_name)}, owner_{owner}, calls_{control_options()} {
    calls_.handle<open_job>([this](job_frame f) { return open(f); });
    calls_.handle<remote_ends_of>(
        [this](std::uint32_t number) { return owner_.remote_ends(*this, number); });
    calls_.handle<end_job>([this](std::uint32_t number) { return end(number); });
  }
  session(const session&) = delete;
  ~session() { owner_.drop_job_of(*this); }

  cordma::task<> serve(cordma::connection conn) {
    static_cast<void>(co_await cordma::when_any(calls_.serve(std::move(conn)), watch()));
  }
  [[nodiscard]] const std::string& client_name() const noexcept { return client_name_; }

 private:
  cordma::task<opened> open(job_frame f) {
    const opened o = owner_.open(*this, f);
    const job what = decode(f);
    time_left_ = what.duration + what.warm_up.value_or(warm_up_time) + time_besides;
    is_endless_ = what.is_endless;
    ended_.reset();
    begun_.set();
    co_return o;
  }
  cordma::task<ended> end(std::uint32_t number) {
    const ended e = co_await owner_.end(*this, number);
    ended_.set();
    co_return e;
  }
  /// Ends a client that keeps the others waiting for longer than it said.
  cordma::task<> watch() {
    for (;;) {
      co_await begun_.wait();
      begun_.reset();
      if (is_endless_) {
        co_await ended_.wait();
        continue;
      }
      const auto in_time =
          co_await cordma::as_result(cordma::with_timeout(ended_.wait(), time_left_));
      if (in_time.is_cancelled()) throw cordma::cancelled{};
      if (!in_time.has_value()) throw std::runtime_error{"its job took longer than it said"};
    }
  }

  const std::string client_name_;
  server& owner_;
  cordma::rpc::server calls_;
  cordma::event begun_, ended_;
  std::chrono::milliseconds time_left_{};
  bool is_endless_ = false;
};

server::server(cordma::runtime& control, server_options options)
    : control_{control},
      options_{std::move(options)},
      acceptor_{control.listen({options_.host, options_.port}, {}, {.insecure = true})} {}
server::~server() = default;

bool server::is_open_to_strangers() const {
  const auto here = acceptor_.local_endpoint();
  return !cordma::socket_address::resolve(here.host, here.port).front().is_loopback();
}

void server::say(const std::string& text) const {
  if (!options_.is_quiet) std::printf("%s\n", text.c_str());
}

void server::complain(const std::string& client_name, const std::string& why) const {
  if (!options_.is_quiet) std::fprintf(stderr, "%s: %s\n", client_name.c_str(), why.c_str());
}

cordma::task<> server::serve() {
  if (options_.only_one_client) {
    cordma::connection conn = co_await acceptor_.accept();
    co_return co_await serve_client(std::move(conn));
  }
  cordma::semaphore room{clients_max};
  co_await cordma::with_scope([&](cordma::scope& clients) -> cordma::task<> {
    for (;;) {
      co_await room.acquire();
      cordma::connection conn = co_await acceptor_.accept();
      clients.spawn(serve_in(room, std::move(conn)));
    }
  });
}

cordma::task<> server::serve_in(cordma::semaphore& room, cordma::connection conn) {
  co_await serve_client(std::move(conn));
  room.release();
}

cordma::task<> server::serve_client(cordma::connection conn) {
  const std::string client_name = conn.peer().to_string();
  co_await serve_session(client_name, std::move(conn));
  say(client_name + ": gone");
}

cordma::task<> server::serve_session(const std::string& client_name, cordma::connection conn) {
  session client{*this, client_name};
  try {
    co_await client.serve(std::move(conn));
  } catch (const cordma::cancelled&) {
    throw;
  } catch (const std::exception& e) {
    complain(client_name, e.what());
  }
}

void server::check_room(const job& what) const {
  check(what);
  const std::uint64_t wanted = memory_bytes(what);
  if (wanted > options_.memory_bytes_max) {
    throw std::invalid_argument{
        "the job takes " + std::to_string(wanted >> 20) + " MiB here, and the server gives " +
        std::to_string(options_.memory_bytes_max >> 20) +
        " MiB: use a smaller --size or fewer --connections, or start it with more --memory"};
  }
  const auto cpus = std::uint32_t(cordma::runtime_group::allowed_cpus().size());
  const std::uint32_t threads_max = options_.threads_max != 0 ? options_.threads_max : cpus;
  if (what.threads > threads_max) {
    throw std::invalid_argument{"--threads " + std::to_string(what.threads) + ": the server has " +
                                std::to_string(threads_max) +
                                "; use fewer, or start it with more --threads"};
  }
  static_cast<void>(cpus_for(options_.pin, options_.pin_first, what.threads));
}

opened server::open(const session& by, const job_frame& frame) {
  const job what = decode(frame);
  check_room(what);
  if (running_ != nullptr) {
    throw std::runtime_error{"the server runs a job of " + running_->owner->client_name() +
                             ": try again when that is over"};
  }
  const std::uint32_t number = ++numbers_;
  is_ready_.reset();
  is_reversed_.reset();
  running_ = std::make_unique<running_job>(by, number, what, options_);
  cordma::serve_options limits;
  limits.connections_max = what.connections;
  limits.connections = connection_options(what);
  limits.connections.insecure = true;
  limits.on_failure = [this, number](unsigned, const cordma::handler_failure& f) {
    control_.executor().post(
        [this, number, text = f.to_string()]() noexcept { failed(number, text); });
  };
  const teller tell = [this, number](const remote_end& where) {
    control_.executor().post([this, number, where]() noexcept { ready(number, where); });
  };
  const reverse_teller tell_reverse = [this, number](const reverse_measured& measured) {
    control_.executor().post([this, number, measured]() noexcept { reversed(number, measured); });
  };
  const auto serve = [what, tell, tell_reverse](cordma::runtime& rt, unsigned,
                                                cordma::connection conn) {
    if (what.is_bidirectional)
      return serve_both_directions(rt, what, tell, tell_reverse, std::move(conn));
    return serve_connection(rt, what, tell, std::move(conn));
  };
  try {
    const auto& data_acceptor =
        running_->threads.serve({options_.host, options_.data_port}, serve, limits);
    say(by.client_name() + ": " + to_string(what));
    return {.number = number, .port = data_acceptor.local_endpoint().port};
  } catch (...) {
    running_.reset();
    throw;
  }
}

server::running_job& server::job_of(const session& by, std::uint32_t number) const {
  if (running_ == nullptr || running_->owner != &by || running_->number != number) {
    throw std::runtime_error{"job " + std::to_string(number) + " is not one of this client's"};
  }
  return *running_;
}

cordma::task<std::vector<std::byte>> server::remote_ends(const session& by, std::uint32_t number) {
  job_of(by, number);
  co_await is_ready_.wait();  // The job may be another by then.
  running_job& j = job_of(by, number);
  if (!j.failure.empty()) throw std::runtime_error{j.failure};
  j.cpu_before = process_cpu_time();
  const auto all = std::as_bytes(std::span{j.remote_ends});
  co_return std::vector<std::byte>(all.begin(), all.end());
}

cordma::task<ended> server::end(const session& by, std::uint32_t number) {
  if (job_of(by, number).what.is_bidirectional) co_await is_reversed_.wait();
  const running_job& j = job_of(by, number);  // The job may be another by then.
  if (!j.failure.empty() && j.what.is_bidirectional) throw std::runtime_error{j.failure};
  ended e{.cpu_ns = std::uint64_t((process_cpu_time() - j.cpu_before).count())};
  const histogram& h = j.reverse.latencies;
  e.operations = h.count();
  e.time_ns = std::uint64_t(std::max<std::int64_t>((j.reverse.ended - j.reverse.began).count(), 0));
  e.p50_ns = std::uint64_t(h.at(0.5).count());
  e.p99_ns = std::uint64_t(h.at(0.99).count());
  e.max_ns = std::uint64_t(h.max().count());
  running_.reset();
  is_ready_.set();
  co_return e;
}

void server::drop_job_of(const session& by) noexcept {
  if (running_ != nullptr && running_->owner == &by) running_.reset();
}

void server::ready(std::uint32_t number, const remote_end& where) {
  if (running_ == nullptr || running_->number != number) return;
  running_->remote_ends.push_back(where);
  if (running_->remote_ends.size() == running_->what.connections) is_ready_.set();
}

void server::reversed(std::uint32_t number, const reverse_measured& measured) {
  if (running_ == nullptr || running_->number != number) return;
  running_job& j = *running_;
  j.reverse.latencies.add(measured.latencies);
  j.reverse.began = std::min(j.reverse.began, measured.began);
  j.reverse.ended = std::max(j.reverse.ended, measured.ended);
  if (++j.reversed == j.what.connections) is_reversed_.set();
}

void server::failed(std::uint32_t number, const std::string& why) {
  if (running_ == nullptr || running_->number != number) return;
  complain(running_->owner->client_name(), why);
  if (running_->failure.empty()) running_->failure = why;
  is_ready_.set();
  is_reversed_.set();
}

}  // namespace perf
