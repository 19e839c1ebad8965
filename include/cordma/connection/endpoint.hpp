#pragma once

#include <cordma/detail/base/export.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cordma {

/// Address on which a server listens for the TCP bootstrap: a host name or a numeric address, and a
/// port. A value; `{"127.0.0.1", 7471}` or `"127.0.0.1:7471"`. It has constructors, because g++ 12
/// destroys an aggregate with owning members twice when a `co_await` contains its braces.
struct CORDMA_EXPORT endpoint {
  std::string host{};
  std::uint16_t port = 0;

  endpoint() noexcept = default;
  endpoint(std::string of_host, std::uint16_t at_port) noexcept
      : host{std::move(of_host)}, port{at_port} {}
  /// Each of these parses `text` as "host:port" or "[v6]:port". \errors EINVAL, as `parse`.
  endpoint(std::string_view text) : endpoint{parse(text)} {}    // NOLINT: text is what it is.
  endpoint(const std::string& text) : endpoint{parse(text)} {}  // NOLINT
  endpoint(const char* text) : endpoint{parse(text)} {}         // NOLINT

  /// Reads "host:port" or "[v6]:port". \errors EINVAL: the detail says what is missing.
  static endpoint parse(std::string_view text);
  /// \errors EINVAL: `port` is not from 0 to 65535.
  static endpoint of(std::string_view host, std::int64_t port);
  [[nodiscard]] std::string to_string() const;  ///< Returns what `parse` reads.
  friend bool operator==(const endpoint&, const endpoint&) = default;
};

}  // namespace cordma
