#include "http.hpp"

#include <algorithm>

namespace cordma::detail {
namespace {

std::string_view name_of(unsigned status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    default: return "Bad Request";
  }
}

/// Cuts off and returns what precedes `separator`; all of `rest` if it is missing.
std::string_view cut(std::string_view& rest, char separator) noexcept {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view first = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return first;
}

/// Returns the path of a target in origin form or absolute form (RFC 9112, section 3.2).
std::string_view path_of(std::string_view target) noexcept {
  constexpr std::string_view scheme = "http://";
  if (target.starts_with(scheme)) {
    target.remove_prefix(scheme.size());
    const std::size_t slash = target.find('/');
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  return target.substr(0, target.find('?'));
}

bool is_version(std::string_view text) noexcept { return text == "HTTP/1.1" || text == "HTTP/1.0"; }

bool is_method(std::string_view text) noexcept {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

std::size_t http_head_bytes(std::string_view text) noexcept {
  // A lone line feed ends a line, too (RFC 9112, section 2.2).
  std::size_t at = text.find('\n');
  while (at != text.npos) {
    const std::string_view rest = text.substr(at + 1);
    if (rest.starts_with('\n')) return at + 2;
    if (rest.starts_with("\r\n")) return at + 3;
    at = text.find('\n', at + 1);
  }
  return 0;
}

http_request read_http_head(std::string_view head, std::string_view path) noexcept {
  std::string_view line = cut(head, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view method = cut(line, ' ');
  const std::string_view target = cut(line, ' ');
  if (!is_method(method) || !is_version(line) || target.empty()) return {};
  const bool is_head = method == "HEAD";
  if (method != "GET" && !is_head) return {.status = 405};
  return {.status = path_of(target) == path ? 200u : 404u, .asks_for_body = !is_head};
}

std::string http_answer(const http_request& to, std::string_view content_type,
                        std::string_view body) {
  std::string answer = "HTTP/1.1 " + std::to_string(to.status) + ' ';
  (answer += name_of(to.status)) += "\r\nContent-Type: ";
  (answer += content_type) += "\r\nContent-Length: ";
  answer += std::to_string(body.size());
  if (to.status == 405) answer += "\r\nAllow: GET, HEAD";
  answer += "\r\nConnection: close\r\n\r\n";
  if (to.asks_for_body) answer += body;
  return answer;
}

}  // namespace cordma::detail
