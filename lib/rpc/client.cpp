#include <cordma/rpc/client.hpp>

#include "base/check_option.hpp"
#include "client_core.hpp"

namespace cordma::rpc {

void check(const client_options& o) {
  constexpr const char* name = "client_options";
  constexpr std::chrono::hours day{24};
  cordma::check(o.stream);
  check_option("stream_options", "large_ahead", o.stream.large_ahead, 1, 64);
  check_option(name, "call_timeout", o.call_timeout, std::chrono::microseconds{1}, day);
  check_option(name, "calls_max", o.calls_max, 1, UINT16_MAX);
  check_timeout(name, "reconnect.delay", o.reconnect.delay);
  check_option(name, "reconnect.delay_max", o.reconnect.delay_max, o.reconnect.delay, day);
}

client::client(cordma::connection conn, const client_options& options)
    : core_{new detail::client_core{conn.qp().driver().executor(), options, nullptr}} {
  core_->retain();
  core_->attach(std::move(conn));
}

client::client(cordma::executor& executor, connector connect, const client_options& options) {
  if (connect == nullptr)
    throw error{{.code = errc::refused,
                 .call = "rpc::client",
                 .detail = "the connector is empty: give a function that connects"}};
  core_.reset(new detail::client_core{executor, options, std::move(connect)});
  core_->retain();
}

void client::end::operator()(detail::client_core* core) const noexcept {
  core->shut();
  core->release();
}

task<> client::close() { return core().close(); }
const client_counters& client::counters() const noexcept { return core().counters(); }
const stream_counters& client::stream() const noexcept { return core().stream(); }
connection* client::connection() noexcept { return core().conn(); }

}  // namespace cordma::rpc
