#include "server_core.hpp"

#include "base/failures.hpp"

#include <cordma/connection/listener.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <utility>

namespace cordma::rpc::detail {

using cordma::detail::detail_text;
using cordma::detail::throw_failure;

namespace {

/// The most that `cordma::serve` takes.
constexpr unsigned connections_max = 1 << 20;

void add_up(stream_counters& sum, const stream_counters& c) noexcept {
  sum.sent += c.sent;
  sum.received += c.received;
  sum.large_sent += c.large_sent;
  sum.large_received += c.large_received;
  sum.credit_frames += c.credit_frames;
  sum.credit_waits += c.credit_waits;
}

/// Waits for an event, whatever is stopped.
class [[nodiscard]] unstopped final : public operation_base<unstopped> {
 public:
  using value_type = void;
  explicit unstopped(event::wait_op&& wait) noexcept : wait_{std::move(wait)} {}
  bool start(waiter& w, const environment& env) noexcept {
    return wait_.start(w, {env.scheduler, {}});
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  void take() noexcept {}
  result<void> take_result() noexcept { return {}; }

 private:
  event::wait_op wait_;
};

}  // namespace

server_core::server_core(const server_options& options)
    : options_{options}, spans_{call_spans::make(options.tracer)} {
  check(options);
}
server_core::~server_core() {
  while (!free_.empty()) delete &free_.pop_front();
}

void server_core::add(std::unique_ptr<served_method> m) {
  if (const served_method* const other = find(m->id)) {
    throw_failure(errc::limit_exceeded, "rpc::server::handle",
                  detail_text("%.*s and %.*s have the same id: one of them needs another name",
                              int(m->name.size()), m->name.data(), int(other->name.size()),
                              other->name.data()));
  }
  methods_.insert(std::ranges::lower_bound(methods_, m->id, {}, &id_of), std::move(m));
}

/// Registers a link with its server while this lives.
class server_core::served_link {
 public:
  served_link(server_core& core, server_link& link) noexcept : core_{core}, link_{link} {
    core_.links_.push_back(link);
    ++core_.counters.connections;
    core_.awaited_ += is_awaited_ ? 1 : 0;
  }
  served_link(const served_link&) = delete;
  served_link& operator=(const served_link&) = delete;
  ~served_link() {
    link_->leave();
    link_->list_hook<server_link>::unlink();
    add_up(core_.gone_, link_->counters());
    --core_.counters.connections;
    if (is_awaited_ && --core_.awaited_ == 0) core_.empty_.set();
  }

 private:
  server_core& core_;
  const cordma::detail::counted_ref<server_link> link_;
  /// A drain waits for connections that came before it: later ones could delay it for ever.
  const bool is_awaited_ = !core_.draining_.is_set();
};

task<> server_core::serve(connection conn) {
  co_await serve(message_channel::make<server_link>(*this, conn), &conn);
}

task<> server_core::serve(server_link& link, connection* conn) {
  const served_link here{*this, link};
  result<void> finished;
  if (draining_.is_set()) {
    link.reject();
    // A peer that makes no call is not waited for.
    finished = co_await as_result(
        with_timeout(link.finished().wait(), options_.drain_timeout, &link.executor()));
  } else {
    finished = co_await as_result(link.finished().wait());
  }
  if (!finished.has_value()) {
    link.stop();
    co_await unstopped{link.finished().wait()};
  }
  if (finished.is_cancelled()) throw cancelled{};
  if (!link.failed()) {
    if (conn != nullptr) co_await conn->close();
  } else if (link.failed()->code != errc::closed &&
             !(conn != nullptr && conn->was_closed_by_peer())) {
    throw error{*link.failed()};
  }
}

task<> server_core::serve(listener& acceptor) {
  served_listener here{acceptor};
  listeners_.push_back(here);
  if (draining_.is_set()) acceptor.close();
  const auto handle = [this](connection conn) { return serve(std::move(conn)); };
  const auto count = [this](const handler_failure&) { ++counters.connections_lost; };
  co_await cordma::serve(acceptor, handle, count, connections_max);
}

task<> server_core::drain() {
  draining_.set();
  // Later peers cannot connect; those in the backlog are told that the server drains.
  listeners_.for_each([](served_listener& s) { s.from.close(); });
  links_.for_each([](server_link& l) { l.drain(); });
  if (awaited_ == 0) co_return;
  empty_.reset();
  const auto ended = co_await as_result(
      with_timeout(empty_.wait(), options_.drain_timeout, &links_.front().executor()));
  if (ended.has_value()) co_return;
  links_.for_each([](server_link& l) { l.stop_calls(); });
  if (ended.is_cancelled()) throw cancelled{};
  co_await empty_.wait();
}

void server_core::serve_starved() noexcept {
  if (std::exchange(is_serving_starved_, true)) return;
  while (!starved_.empty() && !is_full()) starved_.pop_front().link.accept();
  is_serving_starved_ = false;
}

stream_counters server_core::streams() noexcept {
  stream_counters sum = gone_;
  links_.for_each([&](const server_link& l) { add_up(sum, l.counters()); });
  return sum;
}

}  // namespace cordma::rpc::detail
