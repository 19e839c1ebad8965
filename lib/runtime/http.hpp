#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cordma::detail {

/// A request to a server of one page, as its head says.
struct http_request {
  unsigned status = 400;      ///< 200: it asks for the page; else the error that answers it.
  bool asks_for_body = true;  ///< False: HEAD, whose answer has no body.
};

/// Returns the size of the head that `text` begins with, the empty line included; 0: it has not
/// come whole.
std::size_t http_head_bytes(std::string_view text) noexcept;

/// Reads a head of HTTP/1.0 or 1.1 (RFC 9112), which may come from anybody.
http_request read_http_head(std::string_view head, std::string_view path) noexcept;

/// Returns an answer after which the server closes the connection. `body`: the page, or for an
/// error its explanation.
std::string http_answer(const http_request& to, std::string_view content_type,
                        std::string_view body);

}  // namespace cordma::detail
