// The figures of cordma-top, and the two printers of them.

#include "top/printers.hpp"

#include "support/commands.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

using Catch::Matchers::Contains;
using top::figure_kind;
using top::program_line;
using top::program_state;

namespace {

std::optional<double> figure_of(const top::figure_values& values, std::string_view name) {
  for (std::size_t n = 0; n < values.size(); ++n)
    if (top::all_figures[n].name == name) return values[n];
  FAIL("no figure " << name);
  return {};
}

top::readings readings_of(const std::string& page) { return top::read(top::page::parse(page)); }

const char* const first_page =
    "cordma_requests_completed_total{kind=\"write\"} 100\n"
    "cordma_requests_completed_total{kind=\"receive\"} 1000\n"
    "cordma_requests_in_flight{kind=\"write\"} 3\n"
    "cordma_requests_in_flight{kind=\"receive\"} 64\n"
    "cordma_completions_total 10\ncordma_completion_wake_ups_total 4\n"
    "cordma_leases_open 2\ncordma_memory_registered_bytes 4194304\n"
    "cordma_send_queue_stalls_total 9\n";
const char* const second_page =
    "cordma_requests_completed_total{kind=\"write\"} 300\n"
    "cordma_requests_completed_total{kind=\"receive\"} 1000\n"
    "cordma_requests_in_flight{kind=\"write\"} 5\n"
    "cordma_completions_total 40\ncordma_completion_wake_ups_total 10\n"
    "cordma_leases_open 1\ncordma_memory_registered_bytes 4194304\n"
    "cordma_send_queue_stalls_total 4\n";

program_line some_program() {
  const top::readings before = readings_of(first_page);
  top::figure_sum sum;
  sum.add(&before, readings_of(second_page), top::seconds{2});
  return {.pid = 12,
          .name = "server",
          .device = "soft0",
          .state = program_state::running,
          .figures = sum.take()};
}

program_line gone_program() {
  return {.name = "unix:/run/x",
          .state = program_state::unreadable,
          .reason = "connect: \"No such file\""};
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  return longest;
}

}  // namespace

TEST_CASE("figures are rises, gauges and ratios of two pages", "[tools]") {
  const top::figure_values values = some_program().figures;
  CHECK(figure_of(values, "writes_per_s") == 100);
  CHECK(figure_of(values, "receives_per_s") == 0);
  CHECK(figure_of(values, "in_flight") == 5);
  CHECK(figure_of(values, "leases_lent") == 1);
  CHECK(figure_of(values, "completions_per_wake_up") == 5);
  CHECK(figure_of(values, "registered_bytes") == 4194304);
  // A counter that has fallen, and samples that a page lacks, give nothing.
  CHECK_FALSE(figure_of(values, "stalls_per_s").has_value());
  CHECK_FALSE(figure_of(values, "reads_per_s").has_value());
}

TEST_CASE("the pages of one process add up, and the first gives no rates", "[tools]") {
  const top::readings before = readings_of(first_page);
  const top::readings now = readings_of(second_page);
  top::figure_sum sum;
  sum.add(&before, now, top::seconds{2});
  sum.add(&before, now, top::seconds{1});
  sum.add(nullptr, now, top::seconds{0});
  CHECK(figure_of(sum.take(), "writes_per_s") == 300);
  CHECK(figure_of(sum.take(), "in_flight") == 15);
  CHECK(figure_of(sum.take(), "completions_per_wake_up") == 5);
  top::figure_sum single;
  single.add(nullptr, now, top::seconds{0});
  CHECK_FALSE(figure_of(single.take(), "writes_per_s").has_value());
  CHECK_FALSE(figure_of(single.take(), "completions_per_wake_up").has_value());
}

TEST_CASE("each figure reads a metric that pages have", "[tools]") {
  const top::readings all = readings_of(cordma::to_prometheus(cordma::metrics{}));
  for (std::size_t n = 0; n < top::all_figures.size(); ++n) {
    INFO(top::all_figures[n].name);
    CHECK(all.values[n] == 0);
    CHECK(all.divisors[n].has_value() == (top::all_figures[n].kind == figure_kind::ratio));
  }
}

TEST_CASE("numbers fit their column", "[tools]") {
  using top::short_number;
  CHECK(short_number(std::nullopt, figure_kind::now) == "-");
  CHECK(short_number(0, figure_kind::rate) == "0.0");
  CHECK(short_number(12, figure_kind::now) == "12");
  CHECK(short_number(999.94, figure_kind::rate) == "999.9");
  CHECK(short_number(999.96, figure_kind::rate) == "1.0k");
  CHECK(short_number(12345, figure_kind::rate) == "12.3k");
  CHECK(short_number(1e6, figure_kind::now) == "1.0M");
  CHECK(short_number(1023, figure_kind::bytes) == "1023");
  CHECK(short_number(4194304, figure_kind::bytes) == "4.0M");
  CHECK(short_number(1.8e19, figure_kind::now) == "18.0E");
  CHECK(short_number(std::numeric_limits<double>::max(), figure_kind::now).size() > 6);
}

TEST_CASE("the table has a line for each program, and fits the terminal", "[tools]") {
  const std::vector<program_line> lines{some_program(), gone_program()};
  const std::string whole = top::table(lines);
  CHECK_THAT(whole, Contains("    PID PROGRAM          DEVICE      SEND/s  WRITE/s") &&
                        Contains("     12 server           soft0            -    100.0") &&
                        Contains("      - unix:/run/x                unreadable: connect: \"No "
                                 "such file\"\n"));
  const std::string narrow = top::table(lines, 56);
  CHECK(longest_line(narrow) <= 56);
  CHECK_THAT(narrow, Contains("WRITE/s\n") && Contains("    100.0\n") && !Contains("READ/s"));
  for (std::size_t columns = 1; columns < 240; columns += 7)
    CHECK(longest_line(top::table(lines, columns)) <= columns);
  CHECK(longest_line(top::table({}, 20)) == 20);
}

TEST_CASE("the JSON is a line that programs read", "[tools]") {
  const std::vector<program_line> lines{some_program(), gone_program()};
  const std::string text = top::json(lines, top::seconds{1.5});
  CHECK(std::ranges::count(text, '\n') == 1);
  const cordma::test::temporary_folder folder;
  const std::string path = (folder.path / "out.json").string();
  std::ofstream{path} << text;
  const cordma::test::outcome ran = cordma::test::run(
      "python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); a, b = d[\"programs\"];"
      "print(d[\"at_s\"], a[\"pid\"], a[\"figures\"][\"writes_per_s\"], "
      "a[\"figures\"][\"stalls_per_s\"], a[\"reason\"], b[\"pid\"], b[\"state\"], "
      "b[\"reason\"])' " +
      path);
  CHECK(ran.output == "1.5 12 100 None None None unreadable connect: \"No such file\"\n");
}

TEST_CASE("text from elsewhere commands no terminal", "[tools]") {
  CHECK(top::printable("a\x1b[2J\x07\xc2\x9b\n~") == "a?[2J????~");
}
