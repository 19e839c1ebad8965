#include <cordma/runtime/metrics.hpp>

#include "support/child.hpp"
#include "support/connected_pair.hpp"
#include "support/http.hpp"
#include "support/skip.hpp"
#include "support/temporary_folder.hpp"
#include "support/variable.hpp"

#include <cordma/base/error.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <sched.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using test::http_exchange;
using test::http_page;

namespace {

constexpr const char* get_page = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// A name that no other test of any process has.
endpoint abstract_name(const char* part) {
  return endpoint{"unix:@cordma-test-" + std::string{part} + '-' + std::to_string(::getpid())};
}

std::string page_with(std::string_view text) { return "some_total 1\n" + std::string{text}; }

metrics_server simple_server(const endpoint& local, const metrics_server::options& options = {}) {
  return metrics_server{local, [] { return page_with("whole\n"); }, options};
}

/// Returns 0 if the kernel does not say. The server's thread calls it, where Catch checks nothing.
unsigned cpus_of_this_thread() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  return unsigned(CPU_COUNT(&allowed));
}

}  // namespace

TEST_CASE("a page is served over TCP, a Unix path and an abstract name", "[runtime]") {
  const test::temporary_folder folder;
  const std::string path = folder.path / "metrics";
  for (const endpoint& local : {endpoint{"127.0.0.1:0"}, endpoint{"[::1]:0"},
                                endpoint{"unix:" + path}, abstract_name("page")}) {
    INFO(local.to_string());
    const metrics_server server = simple_server(local);
    CHECK((server.local_endpoint().port != 0) == (local.kind == endpoint::bootstrap::tcp));
    const std::string answer = http_exchange(server.local_endpoint(), get_page);
    CHECK_THAT(answer, Contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n") &&
                           Contains("\r\nContent-Length: 19\r\n") &&
                           Contains("\r\nConnection: close\r\n"));
    CHECK(http_page(server.local_endpoint()) == "some_total 1\nwhole\n");
    CHECK(server.counters().served == 2);
    CHECK(server.counters().refused + server.counters().dropped == 0);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a request for anything but the page is answered by an error", "[runtime]") {
  const metrics_server server = simple_server("127.0.0.1:0");
  const auto first_line = [&](const std::string& request) {
    const std::string answer = http_exchange(server.local_endpoint(), request);
    return answer.substr(0, answer.find('\r'));
  };
  const std::string host = "\r\nHost: x\r\n\r\n";
  CHECK(first_line("GET / HTTP/1.1" + host) == "HTTP/1.1 404 Not Found");
  CHECK(first_line("GET /metrics/ HTTP/1.1" + host) == "HTTP/1.1 404 Not Found");
  CHECK(first_line("POST /metrics HTTP/1.1" + host) == "HTTP/1.1 405 Method Not Allowed");
  CHECK(first_line("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == "HTTP/1.1 400 Bad Request");
  CHECK(first_line("GET /metrics\r\n\r\n") == "HTTP/1.1 400 Bad Request");
  CHECK(first_line("GET /metrics  HTTP/1.1" + host) == "HTTP/1.1 400 Bad Request");
  CHECK(first_line(std::string{"\x16\x03\x01\0\n\n", 6}) == "HTTP/1.1 400 Bad Request");
  CHECK(first_line(std::string(2 * metrics_server::request_bytes_max, 'x')) ==
        "HTTP/1.1 431 Request Header Fields Too Large");
  CHECK(server.counters().refused == 8);
  // HTTP/1.0, a query, the absolute form of a proxy, lone line feeds, and a body that nobody reads.
  CHECK(first_line("GET /metrics HTTP/1.0\r\n\r\n") == "HTTP/1.1 200 OK");
  CHECK(first_line("GET /metrics?a=b HTTP/1.1" + host) == "HTTP/1.1 200 OK");
  CHECK(first_line("GET http://x:1/metrics HTTP/1.1" + host) == "HTTP/1.1 200 OK");
  CHECK(first_line("GET /metrics HTTP/1.1\nHost: x\n\n") == "HTTP/1.1 200 OK");
  CHECK(first_line("GET /metrics HTTP/1.1" + host + std::string(10000, 'b')) == "HTTP/1.1 200 OK");
  CHECK(server.counters().served == 5);
  const std::string head = http_exchange(server.local_endpoint(), "HEAD /metrics HTTP/1.1" + host);
  CHECK_THAT(head, Contains("200 OK") && Contains("Content-Length: 19\r\n"));
  CHECK(test::http_body(head).empty());
}

TEST_CASE("a page that cannot be made is an error, and the next one is served", "[runtime]") {
  bool is_first = true;
  const metrics_server server{"127.0.0.1:0", [&]() -> std::string {
                                if (std::exchange(is_first, false))
                                  throw std::runtime_error{"no page today"};
                                return "x 1\n";
                              }};
  CHECK_THAT(http_exchange(server.local_endpoint(), get_page),
             Contains("HTTP/1.1 500 Internal Server Error") && Contains("no page today"));
  CHECK(http_page(server.local_endpoint()) == "x 1\n");
}

TEST_CASE("silent clients keep nobody out: the oldest gives way", "[runtime]") {
  const metrics_server server = simple_server(abstract_name("silent"), {.timeout = 1min});
  std::vector<unique_fd> silent;
  for (unsigned n = 0; n < metrics_server::connections_max; ++n)
    silent.push_back(test::connected_to(server.local_endpoint()));
  CHECK(http_page(server.local_endpoint()) == "some_total 1\nwhole\n");
  CHECK(test::read_all(silent.front()).empty());
  CHECK(server.counters().dropped == 1);
  // All younger clients are served still.
  REQUIRE(::send(silent.back().get(), get_page, std::strlen(get_page), 0) > 0);
  CHECK_THAT(test::read_all(silent.back()), Contains("200 OK"));
}

TEST_CASE("a client that is slow is dropped in time, and stops no other", "[runtime]") {
  const std::string large(std::size_t{32} << 20, 'x');
  const metrics_server server{"127.0.0.1:0", [&] { return large; }, {.timeout = 200ms}};
  const unique_fd half = test::connected_to(server.local_endpoint());
  REQUIRE(::send(half.get(), "GET /met", 8, 0) == 8);
  // The kernel's buffers do not take the page, and this client reads nothing of it.
  const unique_fd slow = test::connected_to(server.local_endpoint());
  REQUIRE(::send(slow.get(), get_page, std::strlen(get_page), 0) > 0);
  CHECK(test::read_all(half).empty());
  while (server.counters().dropped < 2) std::this_thread::yield();
  CHECK(test::read_all(slow).size() < large.size());
  CHECK_THAT(http_exchange(server.local_endpoint(), "GET / HTTP/1.1\r\n\r\n"), Contains("404"));
}

TEST_CASE("the end of a server ends its connections", "[runtime]") {
  const endpoint where = abstract_name("end");
  unique_fd silent;
  {
    const metrics_server server = simple_server(where, {.timeout = 1min});
    silent = test::connected_to(where);
    CHECK(http_page(where) == "some_total 1\nwhole\n");
  }
  CHECK(test::read_all(silent).empty());
  const metrics_server again = simple_server(where);
  CHECK(http_page(where) == "some_total 1\nwhole\n");
}

TEST_CASE("an address that other hosts reach is served only if the program says so", "[runtime]") {
  CHECK_THROWS_WITH(simple_server("0.0.0.0:0"),
                    Contains("0.0.0.0:0") && Contains("metrics_server::options::insecure"));
  const metrics_server server = simple_server("0.0.0.0:0", {.insecure = true});
  CHECK(http_page({"127.0.0.1", server.local_endpoint().port}) == "some_total 1\nwhole\n");
}

TEST_CASE("a server that cannot listen says why", "[runtime]") {
  const metrics_server server = simple_server("127.0.0.1:0");
  CHECK_THROWS_WITH(simple_server(server.local_endpoint()),
                    Contains("bind") && Contains("the port is taken"));
  CHECK_THROWS_WITH(simple_server("rdma_cm:127.0.0.1:0"), Contains("not rdma_cm"));
  CHECK_THROWS_WITH(simple_server("unix:/nonesuch/folder/x"), Contains("/nonesuch/folder/x"));
  CHECK_THROWS_WITH(simple_server("127.0.0.1:0", {.timeout = 0s}), Contains("timeout"));
}

TEST_CASE("at an abstract name only this user and root may read", "[runtime]") {
  if (::geteuid() != 0) CORDMA_SKIP("only root can become another user");
  const metrics_server server = simple_server(abstract_name("users"));
  const std::string answer = test::text_of_child([&]() -> std::string {
    constexpr uid_t nobody = 65534;
    if (::setresuid(nobody, nobody, nobody) != 0) return "cannot become another user";
    return http_exchange(server.local_endpoint(), get_page);
  });
  CHECK_THAT(answer, Contains("HTTP/1.1 403 Forbidden") && !Contains("some_total"));
  CHECK(server.counters().refused == 1);
}

TEST_CASE("the server's thread takes no signal, and leaves the CPU of a pinned thread",
          "[runtime]") {
  const unsigned before = cpus_of_this_thread();
  REQUIRE(before > 0);
  std::string page;
  std::thread pinned{[&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(unsigned(::sched_getcpu()), &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
    const metrics_server server{"127.0.0.1:0", [] {
                                  sigset_t blocked;
                                  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
                                  return std::to_string(cpus_of_this_thread()) +
                                         (::sigismember(&blocked, SIGTERM) == 1 ? " blocked" : "");
                                }};
    page = http_page(server.local_endpoint());
  }};
  pinned.join();
  CHECK(page == std::to_string(before) + " blocked");
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  CHECK(::sigismember(&blocked, SIGTERM) == 0);
}

TEST_CASE("a runtime's and a group's metrics are pages, while they work", "[runtime][device]") {
  runtime rt{test::on_test_device()};
  const metrics_server one{"127.0.0.1:0", rt};
  const std::string page = http_page(one.local_endpoint());
  const std::string device = "{device=\"" + std::string{rt.device_name()} + '"';
  CHECK_THAT(page, Contains("\ncordma_executor_iterations_total" + device + "} ") &&
                       Contains("\ncordma_connections_open" + device + "} 0\n"));
  runtime_group group{{.each = [](unsigned) { return test::on_test_device(); }, .threads = 2}};
  const metrics_server both{abstract_name("group"), group};
  const std::string pages = http_page(both.local_endpoint());
  CHECK_THAT(pages, Contains("\ncordma_connections_open" + device + ",thread=\"0\"} 0\n") &&
                        Contains("\ncordma_connections_open" + device + ",thread=\"1\"} 0\n"));
}

TEST_CASE("CORDMA_METRICS serves each runtime's metrics at a name of its own",
          "[runtime][device]") {
  const std::string name = "unix:@cordma-metrics-" + std::to_string(::getpid()) + '-';
  {
    const test::variable on{"CORDMA_METRICS", "on"};
    const runtime first{test::on_test_device()};
    std::optional<runtime> second;
    second.emplace(test::on_test_device());
    CHECK_THAT(http_page(name + '0'), Contains("cordma_requests_posted_total"));
    CHECK_THAT(http_page(name + '1'), Contains("cordma_requests_posted_total"));
    second.reset();
    const metrics_server successor = simple_server(name + '1');
    CHECK(http_page(name + '1') == "some_total 1\nwhole\n");
  }
  const test::variable wrong{"CORDMA_METRICS", "yes"};
  CHECK_THROWS_WITH(runtime{test::on_test_device()},
                    Contains("CORDMA_METRICS") && Contains("is none of on and off"));
}
