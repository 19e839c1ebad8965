#include "perf/plot.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

using namespace perf;
using Catch::Matchers::Contains;

namespace {

/// The name at the start of a tag.
std::string name_of(const std::string& tag) {
  std::size_t end = 0;
  while (end < tag.size() && (std::isalnum(static_cast<unsigned char>(tag[end])) != 0)) ++end;
  return tag.substr(0, end);
}

/// Gives the fault in a piece of XML, of the little that is needed here; nothing when all is well.
std::string fault_in(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = xml.find('<', at)) != std::string::npos;) {
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return "a tag without an end";
    std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "a tag in a tag: " + tag;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "an open quote: " + tag;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "closes what is not open: " + tag;
      open.pop_back();
    } else if (name_of(tag).empty()) {
      return "a tag without a name: " + tag;
    } else if (!tag.ends_with('/')) {
      if (open.empty() && at != 0) return "two roots";
      open.push_back(name_of(tag));
    }
    at = end;
  }
  for (std::size_t at = 0; (at = xml.find('&', at)) != std::string::npos; ++at) {
    const std::string rest = xml.substr(at, 6);
    const bool is_known = rest.starts_with("&lt;") || rest.starts_with("&gt;") ||
                          rest.starts_with("&amp;") || rest.starts_with("&quot;");
    if (!is_known) return "an ampersand: " + rest;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

/// Gives an attribute's value in each such tag that has the attribute.
std::vector<std::string> values_of(const std::string& svg, const std::string& tag,
                                   const std::string& attribute) {
  std::vector<std::string> all;
  for (std::size_t at = 0; (at = svg.find(tag, at)) != std::string::npos; ++at) {
    const std::string text = svg.substr(at, svg.find('>', at) - at);
    const std::size_t value = text.find(attribute);
    if (value == std::string::npos) continue;
    const std::size_t first = value + attribute.size();
    all.push_back(text.substr(first, text.find('"', first) - first));
  }
  return all;
}

result measured_at(std::uint32_t depth, std::uint64_t count, double seconds) {
  result r{.what = {.depth = depth}};
  for (std::uint64_t i = 0; i < count; ++i) {
    r.ours.latencies.add(std::chrono::nanoseconds{1000 * depth + i});
  }
  r.ours.seconds = seconds;
  return r;
}

}  // namespace

TEST_CASE("a drawing is well-formed XML, whatever its texts are", "[tools]") {
  const std::vector<plot_line> lines{{"a < b & \"c\" > d", {{1e6, 2.5, "<1>"}, {2e6, 40, "&"}}}};
  const std::string svg = draw_svg("T & <T> \x01 \"", lines);
  CHECK(fault_in(svg) == "");
  CHECK_THAT(svg, Contains("a &lt; b &amp; &quot;c&quot; &gt; d") && Contains("<polyline"));
}

TEST_CASE("a drawing of nothing, or of one point, has axes", "[tools]") {
  for (const std::vector<plot_line>& lines :
       {std::vector<plot_line>{}, {{"one", {{0, 1, "1"}}}}, {{"none", {}}}}) {
    const std::string svg = draw_svg("title", lines);
    INFO(svg);
    CHECK(fault_in(svg) == "");
    CHECK_THAT(svg, Contains("latency, us") && Contains("operations a second"));
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));
  }
}

TEST_CASE("points lie within the axes, more load to the right, more latency above", "[tools]") {
  const std::vector<plot_line> lines{{"line", {{100, 0.5, ""}, {1e7, 90'000, ""}}}};
  const std::string svg = draw_svg("title", lines);
  std::vector<double> x, y;
  const std::string start = "<circle cx=\"";
  for (std::size_t at = 0; (at = svg.find(start, at)) != std::string::npos;) {
    at += start.size();
    x.push_back(std::stod(svg.substr(at)));
    y.push_back(std::stod(svg.substr(svg.find("cy=\"", at) + 4)));
  }
  REQUIRE(x.size() == 2);
  CHECK(x[0] < x[1]);
  CHECK(y[0] > y[1]);
  for (const double value : x) CHECK((value >= 80 && value <= 640));
  for (const double value : y) CHECK((value >= 50 && value <= 420));
}

TEST_CASE("a size has a line for its p50 and one for its p99, with a point for each depth",
          "[tools]") {
  const std::vector<plot_line> lines =
      lines_of({measured_at(1, 100, 1), measured_at(2, 100, 0.5), measured_at(4, 100, 0.25)});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "write 64");
  CHECK(lines[1].name == "write 64");
  CHECK_FALSE(lines[0].is_dashed);
  CHECK(lines[1].is_dashed);
  for (const plot_line& line : lines) {
    REQUIRE(line.points.size() == 3);
    CHECK(line.points[1].label == "2");
    CHECK(line.points[1].x == 200);
  }
  CHECK(lines[0].points[0].y < lines[1].points[0].y);
}

TEST_CASE("a sweep of all sizes has a colour for each, and a legend that is all on the drawing",
          "[tools]") {
  std::vector<result> sweep;
  for (std::uint64_t bytes = 8; bytes <= (std::uint64_t{1} << 30); bytes *= 2) {
    for (const std::uint32_t depth : {1u, 8u}) {
      sweep.push_back(measured_at(depth, 100, 1));
      sweep.back().what.size_bytes = bytes;
    }
  }
  const std::string svg = draw_svg("title", lines_of(sweep));
  CHECK(fault_in(svg) == "");
  const std::vector<std::string> curves = values_of(svg, "<polyline", "stroke=\"");
  REQUIRE(curves.size() == 56);
  CHECK(std::set<std::string>{curves.begin(), curves.end()}.size() == 28);
  const double height = std::stod(values_of(svg, "<svg", "height=\"").front());
  for (const std::string& y : values_of(svg, "<text", " y=\"")) CHECK(std::stod(y) < height);
  // p50 and p99 of a size are told apart by the dashes.
  CHECK(values_of(svg, "<polyline", "stroke-dasharray=\"").size() == 28);
  CHECK_THAT(svg, Contains("write 1G</text>") && Contains("p99</text>"));
}
