// Pages of metrics as cordma-top reads them, and the addresses where it finds them.

#include "top/page.hpp"
#include "top/target.hpp"

#include <cordma/runtime/metrics.hpp>

#include <catch2/catch.hpp>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using Catch::Matchers::Contains;
using top::find_targets;
using top::parse_target;

namespace {

std::string why_no_page(const std::string& text) {
  try {
    static_cast<void>(top::page::parse(text));
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "it is one";
}

constexpr const char* kernels_list =
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 1 /run/x\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 2 @cordma-metrics-20-1\n"
    "0000000000000000: 00000003 00000000 00000000 0001 03 3 @cordma-metrics-20-1\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 4 @cordma-metrics-3\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 5 @cordma-metrics-20-0\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 6\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 7 @cordma-metrics-\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 8 @cordma-metrics-20-x\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 9 @cordma-metrics--4\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 10 @cordma-metrics-99999999999\n"
    "nonsense\n";

std::vector<std::string> found_in(const std::string& list, const std::vector<int>& pids = {}) {
  std::istringstream sockets{list};
  std::vector<std::string> all;
  for (const top::target& one : find_targets(sockets, pids))
    all.push_back(std::to_string(one.pid) + ' ' + one.text + ' ' + one.address.to_string());
  return all;
}

}  // namespace

TEST_CASE("a page of cordma's own is read as it was written", "[tools]") {
  cordma::metrics one;
  one.device = "a \"b\"\\\nc";
  one.transfer.of(cordma::request_kind::write).completed = 7;
  one.transfer.of(cordma::request_kind::read).completed = 5;
  one.leases.open = 3;
  const std::vector<cordma::labelled_metrics> two{{one, {"thread", "0"}}, {one, {"thread", "1"}}};
  const top::page read = top::page::parse(cordma::to_prometheus(two));
  CHECK(read.sum("requests_completed_total", "write") == 14);
  CHECK(read.sum("requests_completed_total") == 24);
  CHECK(read.sum("leases_open") == 6);
  CHECK(read.label("device") == "a \"b\"\\\nc");
  CHECK(read.label("nonesuch").empty());
  CHECK_FALSE(read.sum("nonesuch").has_value());
  CHECK_FALSE(read.sum("leases_open", "write").has_value());
}

TEST_CASE("a page may have the program's own samples, times, blanks and odd numbers", "[tools]") {
  const top::page read = top::page::parse(
      "# any comment\n\n ledger:calls_total 5\n"
      "cordma_a 1.5e3 1700000000000\r\n"
      "cordma_b { x = \"1\" , y=\"\\n\\\\\", } 2\n"
      "cordma_c NaN\ncordma_d +Inf\ncordma_d{} -Inf\ncordma_e -3");
  CHECK(read.sum("a") == 1500);
  CHECK(read.sum("b") == 2);
  CHECK(read.label("y") == "\n\\");
  CHECK_FALSE(read.sum("c").has_value());
  CHECK_FALSE(read.sum("d").has_value());
  CHECK(read.sum("e") == -3);
}

TEST_CASE("a page that is none is refused, with the line", "[tools]") {
  CHECK(why_no_page("cordma_a 1") == "it is one");
  CHECK(why_no_page("") == "the page has no metrics of cordma");
  CHECK(why_no_page("other 1\n") == "the page has no metrics of cordma");
  CHECK(why_no_page("cordma_a 1\n<html>\n") == "line 2 of the page: a name is missing");
  for (const char* const line :
       {"cordma_a", "cordma_a ", "cordma_a x", "cordma_a 1x", "cordma_a 1 2 3", "cordma_a{ 1",
        "cordma_a{b} 1", "cordma_a{b=c} 1", "cordma_a{b=\"c 1", "cordma_a{b=\"c\" d=\"e\"} 1",
        "cordma_a{b=\"c\\", "cordma_a{=\"c\"} 1", "9cordma 1", "\x1b[2J"}) {
    INFO(line);
    CHECK_THAT(why_no_page(line), Contains("line 1 of the page: "));
  }
}

TEST_CASE("a page has limits", "[tools]") {
  std::string labels = "cordma_a{";
  for (std::size_t n = 0; n <= top::page::labels_max; ++n) labels += "l=\"\",";
  CHECK_THAT(why_no_page(labels + "} 1"), Contains("too many labels"));
  std::string samples;
  for (std::size_t n = 0; n <= top::page::samples_max; ++n) samples += "cordma_a 1\n";
  CHECK_THAT(why_no_page(samples), Contains("too many samples"));
  CHECK_THAT(why_no_page(std::string(top::page::bytes_max + 1, '#')), Contains("too long"));
}

TEST_CASE("programs are found by the names of their sockets", "[tools]") {
  CHECK(found_in(kernels_list) ==
        std::vector<std::string>{"3 unix:@cordma-metrics-3 unix:@cordma-metrics-3",
                                 "20 unix:@cordma-metrics-20-0 unix:@cordma-metrics-20-0",
                                 "20 unix:@cordma-metrics-20-1 unix:@cordma-metrics-20-1"});
  CHECK(found_in(kernels_list, {3}).size() == 1);
  CHECK(found_in(kernels_list, {3, 20}).size() == 3);
  CHECK(found_in(kernels_list, {4}).empty());
  CHECK(found_in("").empty());
}

TEST_CASE("a page's address is a URL, a socket or a host with its port", "[tools]") {
  const top::target url = parse_target("http://127.0.0.1:9464/a/b?c=d");
  CHECK(url.address.to_string() == "127.0.0.1:9464");
  CHECK(url.host == "127.0.0.1:9464");
  CHECK(url.path == "/a/b?c=d");
  CHECK(parse_target("http://[::1]:9464").path == "/metrics");
  CHECK(parse_target("127.0.0.1:9464").path == "/metrics");
  CHECK(parse_target("unix:/run/x").address.to_string() == "unix:/run/x");
  CHECK(parse_target("unix:@x").address.to_string() == "unix:@x");
  for (const char* const bad :
       {"", "nonesuch", "https://127.0.0.1:1/metrics", "http://127.0.0.1/metrics", "http://",
        "rdma_cm:127.0.0.1:1", "unix:", "http://127.0.0.1:1/a b", "http://127.0.0.1:1/a\r\nb"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_target(bad), std::invalid_argument);
  }
}
