#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cordma {

/// Where a server listens for the TCP bootstrap: a host name or a numeric address, and a port.
/// A value; `{"127.0.0.1", 7471}`.
struct endpoint {
  std::string host;
  std::uint16_t port = 0;

  /// Reads "host:port" or "[v6]:port". \errors EINVAL: the detail says what is missing.
  static endpoint parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;  ///< What `parse` reads.
  friend bool operator==(const endpoint&, const endpoint&) = default;
};

}  // namespace cordma
