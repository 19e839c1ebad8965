#include "runtime/http.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <string_view>

using cordma::detail::http_answer;
using cordma::detail::http_head_bytes;
using cordma::detail::http_request;
using cordma::detail::read_http_head;

TEST_CASE("a head ends with its empty line, however it comes", "[runtime]") {
  const std::string head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  for (std::size_t bytes = 0; bytes < head.size(); ++bytes)
    CHECK(http_head_bytes(std::string_view{head}.substr(0, bytes)) == 0);
  CHECK(http_head_bytes(head) == head.size());
  CHECK(http_head_bytes(head + "a body\n\n") == head.size());
  CHECK(http_head_bytes("GET / HTTP/1.1\n\n") == 16);
  CHECK(http_head_bytes("GET / HTTP/1.1\n\r\nx") == 17);
  CHECK(http_head_bytes("\r\n\r\n") == 4);
}

TEST_CASE("a head asks for the page, or its error has a name", "[runtime]") {
  const auto status_of = [](std::string_view line) {
    return read_http_head(std::string{line} + "\r\n\r\n", "/metrics").status;
  };
  CHECK(status_of("GET /metrics HTTP/1.1") == 200);
  CHECK(status_of("GET /metrics HTTP/1.0") == 200);
  CHECK(status_of("GET /metrics?name[]=x HTTP/1.1") == 200);
  CHECK(status_of("GET http://host:9464/metrics HTTP/1.1") == 200);
  CHECK(status_of("GET http://host HTTP/1.1") == 404);
  CHECK(status_of("GET /metricsx HTTP/1.1") == 404);
  CHECK(status_of("PUT /metrics HTTP/1.1") == 405);
  CHECK(status_of("OPTIONS * HTTP/1.1") == 405);
  for (const char* const bad :
       {"", " ", "GET", "GET /metrics", "GET /metrics ", "get /metrics HTTP/1.1",
        "GET /metrics HTTP/1.1 ", "GET  HTTP/1.1", "GET /metrics HTTP/2", "\x16\x03\x01"}) {
    INFO(bad);
    CHECK(status_of(bad) == 400);
  }
}

TEST_CASE("an answer tells its size, and that no other follows", "[runtime]") {
  CHECK(http_answer({.status = 200}, "text/plain", "page\n") ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
        "Connection: close\r\n\r\npage\n");
  CHECK(http_answer({.status = 200, .asks_for_body = false}, "text/plain", "page\n") ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
        "Connection: close\r\n\r\n");
  CHECK(http_answer({.status = 405}, "text/plain", "").find("\r\nAllow: GET, HEAD\r\n") !=
        std::string::npos);
}
