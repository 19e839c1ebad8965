#include <cordma/connection/listener.hpp>

#include "connection_state.hpp"

namespace cordma {

namespace {

task<connection> shake_hands(connection_resources resources, connection_options options,
                             tcp_stream& stream) {
  const handshake::hello remote = co_await bootstrap::read_hello(stream);
  auto state = std::make_unique<detail::connection_state>(resources, options, stream);
  // The queue pair is ready to receive before the client knows its address: the client may send as
  // soon as it has this side's hello.
  state->agree(remote);
  co_await bootstrap::send_hello(stream, state->local_hello());
  co_await bootstrap::read_acceptance(stream);
  co_await bootstrap::send_acceptance(stream);
  state->watch_over(std::move(stream));
  co_return connection{std::move(state)};
}

}  // namespace

namespace detail {

class listener_state final : public handshake_server<connection> {
 public:
  listener_state(const connection_resources& resources, const socket_address& local,
                 const connection_options& options, const listener_options& limits)
      : handshake_server{resources.executor, local, limits},
        resources_{resources},
        options_{options} {}

  [[nodiscard]] cordma::executor& executor() const noexcept { return resources_.executor; }
  void close() noexcept {
    handshake_server::close();
    if (std::exchange(is_closing_, true)) return;
    try {
      resources_.executor.closer().spawn(finish());
    } catch (const std::bad_alloc&) {
      // Without memory for the wait, the server object stays: the handshakes still use it.
      all_ended_.set();
    }
  }
  /// Drops the server after `close`: nobody refers to it any more.
  void drop() noexcept {
    if (is_finished_) return delete this;
    is_dropped_ = true;
  }
  [[nodiscard]] event& all_ended() noexcept { return all_ended_; }

 private:
  task<> finish() {
    try {
      co_await join();
    } catch (const std::exception&) {
      // The handshake had no memory, and nobody is left to notify.
    }
    all_ended_.set();
    is_finished_ = true;
    if (is_dropped_) delete this;
  }
  task<connection> shake_hands(tcp_stream& stream) override {
    return cordma::shake_hands(resources_, options_, stream);
  }

  connection_resources resources_;
  connection_options options_;
  event all_ended_{resources_.executor};
  bool is_closing_ = false;
  bool is_finished_ = false;  // No task of it runs any more.
  bool is_dropped_ = false;
};

socket_address listening_address(const endpoint& local) {
  if (local.host.empty()) return socket_address::loopback(local.port);
  return socket_address::resolve(local.host, local.port).front();
}

endpoint endpoint_of(const socket_address& address) {
  std::string host = address.to_string();
  host.erase(host.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return {host, address.port()};
}

}  // namespace detail

namespace {

task<connection> next_of(detail::listener_state& state) {
  for (;;) {
    std::optional<connection> next = co_await state.accept();
    if (!next) throw error{{.code = errc::closed, .call = "accept"}};
    if (next->is_open()) co_return std::move(*next);  // The client may have left meanwhile.
  }
}

std::unique_ptr<detail::listener_state> listen(const connection_resources& resources,
                                               const endpoint& local,
                                               const connection_options& options,
                                               const listener_options& limits) {
  static_cast<void>(detail::checked_port(resources.ctx, options));
  return std::make_unique<detail::listener_state>(resources, detail::listening_address(local),
                                                  options, limits);
}

}  // namespace

listener::listener(connection_resources resources, const endpoint& local,
                   const connection_options& options, const listener_options& limits)
    : state_{listen(resources, local, options, limits)} {
  state_->start();
}
listener::listener(listener&& other) noexcept = default;
listener& listener::operator=(listener&& other) noexcept {
  if (this == &other) return *this;
  drop();
  state_ = std::move(other.state_);
  return *this;
}
listener::~listener() { drop(); }

void listener::drop() noexcept {
  if (state_ == nullptr) return;
  state_->close();
  state_.release()->drop();
}

task<connection> listener::accept() {
  CORDMA_ASSERT(state_ != nullptr, "used a listener that was moved from");
  return next_of(*state_);
}

listener::close_op listener::close() noexcept {
  CORDMA_ASSERT(state_ != nullptr, "used a listener that was moved from");
  state_->close();
  return close_op{state_->all_ended()};
}

cordma::executor& listener::executor() const noexcept { return state_->executor(); }
endpoint listener::local_endpoint() const { return detail::endpoint_of(state_->local_address()); }

const listener_counters& listener::counters() const noexcept { return state_->counters(); }
const std::optional<failure>& listener::last_rejection() const noexcept {
  return state_->last_rejection();
}

task<connection> accept(connection_resources resources, tcp_stream stream,
                        connection_options options, time_span handshake_timeout) {
  result<connection> made = co_await as_result(with_timeout(
      shake_hands(resources, options, stream), handshake_timeout, &resources.executor));
  if (!made.has_failure()) co_return std::move(made).value();
  const failure why = bootstrap::name_timeout(made.failure(), "handshake", handshake_timeout);
  co_await bootstrap::refuse(stream, why);
  throw error{why};
}

}  // namespace cordma
