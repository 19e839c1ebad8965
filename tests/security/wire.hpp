#pragma once

#include "io/byte_channel.hpp"
#include "security/tls_channel.hpp"

#include <cordma/io/executor.hpp>

#include <support/manual_executor.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cordma::test {

/// One end of a stream in memory.
class wire_end final : public byte_channel {
 public:
  using byte_channel::byte_channel;

  std::optional<std::size_t> try_read(std::span<std::byte> into) override {
    const std::size_t n = std::min({into.size(), inbox.size() - read, read_max});
    if (n == 0 && !has_ended) return std::nullopt;
    std::copy_n(inbox.begin() + std::ptrdiff_t(read), n, into.begin());
    read += n;
    ++reads;
    if (other->was_full) other->tell_change();
    return n;
  }
  std::size_t try_write(std::span<const std::byte> from) override {
    if (is_broken) throw error{errno_failure(EPIPE, "send")};
    const std::size_t n = std::min(from.size(), room - (other->inbox.size() - other->read));
    was_full = n < from.size();
    if (n != 0) deliver(from.first(n));
    return n;
  }
  void end_writing() noexcept override {
    other->has_ended = true;
    other->tell_change();
  }

  /// Gives bytes to the other end, as if this one had written them.
  void deliver(std::span<const std::byte> bytes) {
    const std::size_t at = sent.size();
    sent.insert(sent.end(), bytes.begin(), bytes.end());
    std::vector<std::byte> changed{bytes.begin(), bytes.end()};
    if (tamper) tamper(at, changed);
    other->inbox.insert(other->inbox.end(), changed.begin(), changed.end());
    other->tell_change();
  }

  wire_end* other = nullptr;
  std::vector<std::byte> inbox;  // Bytes that came; `read` of them were read.
  std::size_t read = 0;
  std::size_t reads = 0;            // Times that something was read.
  std::size_t read_max = SIZE_MAX;  // At once.
  std::size_t room = SIZE_MAX;      // For what the other end has not read.
  bool was_full = false;
  bool is_broken = false;       // Writing fails.
  bool has_ended = false;       // The other end has.
  std::vector<std::byte> sent;  // Bytes as they were written, before any was changed.
  /// Changes what is written on its way: from this offset on.
  std::function<void(std::size_t at, std::vector<std::byte>& bytes)> tamper;
};

/// The two ends, whose tasks run when the test says so. The clock stands still. A side that waits
/// for ever thus has a handshake that has not ended when nothing moves any more.
struct wire {
  explicit wire(cordma::executor& unused) : client{unused}, server{unused} {
    client.other = &server;
    server.other = &client;
  }
  support::manual_executor loop;
  wire_end client;
  wire_end server;
};

/// The outcome of one side.
struct side_outcome {
  std::optional<result<void>> ended;  // Empty: the side waited, and was stopped.

  [[nodiscard]] bool succeeded() const { return ended && !ended->has_failure(); }
  [[nodiscard]] bool failed_with(errc code) const {
    return ended && ended->has_failure() && ended->failure().code == code;
  }
  [[nodiscard]] std::string text() const {
    if (!ended) return "waited";
    return ended->has_failure() ? ended->failure().to_string() : "succeeded";
  }
};

/// A side that fails hangs up, as connections do.
inline task<> one_side(tls_channel& channel, tls_role role, std::string host,
                       side_outcome& outcome) {
  auto ended = co_await as_result(channel.shake_hands(role, std::move(host)));
  if (ended.is_cancelled()) co_return;
  if (ended.has_failure()) channel.below().end_writing();
  outcome.ended.emplace(std::move(ended));
}

/// TLS over a wire.
struct tls_wire : wire {
  tls_wire(cordma::executor& unused, const credentials& of_client, const credentials& of_server)
      : wire{unused}, on_client{of_client, client}, on_server{of_server, server} {}

  void shake_hands(std::string host = "server.example") {
    support::started first{loop.scheduler,
                           one_side(on_client, tls_role::client, std::move(host), client_side)};
    support::started second{loop.scheduler, one_side(on_server, tls_role::server, {}, server_side)};
    loop.settle();
    first.request_stop();
    second.request_stop();
    loop.settle();
  }
  [[nodiscard]] bool both_succeeded() const {
    return client_side.succeeded() && server_side.succeeded();
  }

  tls_channel on_client;
  tls_channel on_server;
  side_outcome client_side;
  side_outcome server_side;
};

}  // namespace cordma::test
