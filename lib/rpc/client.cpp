#include <cordma/rpc/client.hpp>

#include "base/check_option.hpp"
#include "client_core.hpp"

namespace cordma::rpc {

void check(const client_options& o) {
  constexpr const char* name = "client_options";
  constexpr std::chrono::hours day{24};
  cordma::check(o.stream);
  check_option(name, "call_timeout", o.call_timeout, std::chrono::microseconds{1}, day);
  check_option(name, "calls_max", o.calls_max, 1, UINT16_MAX);
  check_timeout(name, "reconnect.delay", o.reconnect.delay);
  check_option(name, "reconnect.delay_max", o.reconnect.delay_max, o.reconnect.delay, day);
}

client::client(cordma::connection conn, const client_options& options) {
  cordma::executor& executor = conn.qp().driver().executor();
  core_ = detail::client_ref{*new detail::client_core{executor, options, nullptr}};
  core_->attach(std::move(conn));
}

client::client(cordma::executor& executor, connector connect, const client_options& options) {
  if (connect == nullptr)
    throw error{{.code = errc::refused,
                 .call = "rpc::client",
                 .detail = "the connector is empty: give a function that connects"}};
  core_ = detail::client_ref{*new detail::client_core{executor, options, std::move(connect)}};
}

client& client::operator=(client&& other) noexcept {
  if (this == &other) return *this;
  if (core_) core_->shut();
  core_ = std::move(other.core_);
  return *this;
}

client::~client() {
  if (core_) core_->shut();
}

detail::client_core& client::core() const noexcept {
  CORDMA_ASSERT(bool(core_), "used an empty client");
  return *core_.get();
}
task<> client::close() { return core().close(); }
const client_counters& client::counters() const noexcept { return core().counters(); }
const stream_counters& client::stream() const noexcept { return core().stream(); }
connection* client::connection() noexcept { return core().conn(); }

}  // namespace cordma::rpc
