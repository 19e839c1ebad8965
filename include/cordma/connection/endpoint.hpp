#pragma once

#include <cordma/detail/base/export.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cordma {

/// Address on which a server listens: a host name or a numeric address, and a port, or the path of
/// a Unix socket. A value; `{"127.0.0.1", 7471}`, `"127.0.0.1:7471"`, `"unix:/run/x"`,
/// `"rdma_cm:10.0.0.1:7471"`. It has
/// constructors, because g++ 12 destroys an aggregate with owning members twice when a `co_await`
/// contains its braces.
struct CORDMA_EXPORT endpoint {
  /// How the two sides find each other: docs/connecting.md.
  enum class bootstrap : std::uint8_t { tcp, unix_socket, rdma_cm };

  std::string host{};  ///< A Unix socket's path; "@name": an abstract one (unix(7)).
  std::uint16_t port = 0;
  bootstrap kind = bootstrap::tcp;

  endpoint() noexcept = default;
  endpoint(std::string of_host, std::uint16_t at_port) noexcept
      : host{std::move(of_host)}, port{at_port} {}
  /// The following constructors parse `text`. \errors EINVAL, as `parse`.
  endpoint(std::string_view text) : endpoint{parse(text)} {}    // NOLINT: text is what it is.
  endpoint(const std::string& text) : endpoint{parse(text)} {}  // NOLINT
  endpoint(const char* text) : endpoint{parse(text)} {}         // NOLINT

  /// Reads "host:port", "[v6]:port", "unix:path" or "unix:@name"; with
  /// "rdma_cm:" before the first two, rdma_cm connects.
  /// \errors EINVAL: the detail says what is missing.
  static endpoint parse(std::string_view text);
  /// \errors EINVAL: `port` is not from 0 to 65535.
  static endpoint of(std::string_view host, std::int64_t port);
  [[nodiscard]] std::string to_string() const;  ///< Returns what `parse` reads.
  friend bool operator==(const endpoint&, const endpoint&) = default;
};

}  // namespace cordma
