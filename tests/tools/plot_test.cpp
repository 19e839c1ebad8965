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

TEST_CASE("a rate is a point of its size's line, and labelled with it", "[tools]") {
  std::vector<result> sweep{measured_at(64, 100, 1), measured_at(64, 200, 1)};
  sweep[0].what.rate = 1000;
  sweep[1].what.rate = 20'000;
  const std::vector<plot_line> lines = lines_of(sweep);
  REQUIRE(lines.size() == 2);
  REQUIRE(lines[0].points.size() == 2);
  CHECK(lines[0].points[0].label == "1k");
  CHECK(lines[0].points[1].label == "20k");
}

namespace {

/// Results of some sizes from 8 on, each at two depths.
std::vector<result> sweep_of(std::size_t sizes) {
  std::vector<result> sweep;
  for (std::size_t i = 0; i < sizes; ++i) {
    for (const std::uint32_t depth : {1u, 8u}) {
      sweep.push_back(measured_at(depth, 100, 1));
      sweep.back().what.size_bytes = std::uint64_t{8} << i;
    }
  }
  return sweep;
}

struct label {
  double y;
  std::string colour;
};

/// Gives the text element that has exactly this text.
label label_of(const std::string& svg, const std::string& name) {
  const std::size_t end = svg.find('>' + name + "</text>");
  REQUIRE(end != std::string::npos);
  const std::string tag = svg.substr(svg.rfind("<text", end), end - svg.rfind("<text", end)) + '>';
  const std::vector<std::string> fill = values_of(tag, "<text", "fill=\"");
  return {std::stod(values_of(tag, "<text", " y=\"").front()), fill.empty() ? "" : fill.front()};
}

}  // namespace

TEST_CASE("ten lines have each a colour, and a name in it at the end, none over another",
          "[tools]") {
  // All lines end in one point, so the names have to move.
  const std::string svg = draw_svg("title", lines_of(sweep_of(10)));
  CHECK(fault_in(svg) == "");
  const std::vector<std::string> curves = values_of(svg, "<polyline", "stroke=\"");
  REQUIRE(curves.size() == 20);
  CHECK(std::set<std::string>{curves.begin(), curves.end()}.size() == 10);
  std::vector<double> y;
  for (const char* size : {"8", "16", "32", "64", "128", "256", "512", "1K", "2K", "4K"}) {
    const label l = label_of(svg, std::string{"write "} + size);
    CHECK(l.colour == curves[2 * y.size()]);  // A p50 and a p99 of each size.
    y.push_back(l.y);
  }
  std::ranges::sort(y);
  for (std::size_t i = 1; i < y.size(); ++i) CHECK(y[i] - y[i - 1] >= 12);
  CHECK(y.front() >= 50);
  CHECK(y.back() <= 430);
  CHECK(values_of(svg, "<polyline", "stroke-dasharray=\"").size() == 10);
  CHECK_THAT(svg, Contains("p50</text>") && Contains("p99</text>"));
}

TEST_CASE("a sweep of all sizes has a panel for each, all on the drawing and on one scale",
          "[tools]") {
  const std::string svg = draw_svg("title", lines_of(sweep_of(28)));
  CHECK(fault_in(svg) == "");
  REQUIRE(values_of(svg, "<polyline", "stroke=\"").size() == 56);
  CHECK(values_of(svg, "<polyline", "stroke-dasharray=\"").size() == 28);
  CHECK_THAT(svg,
             Contains("write 8</text>") && Contains("write 1G</text>") && Contains("p99</text>"));
  const double height = std::stod(values_of(svg, "<svg", "height=\"").front());
  const double width = std::stod(values_of(svg, "<svg", "width=\"").front());
  for (const std::string& y : values_of(svg, "<text", " y=\"")) CHECK(std::stod(y) < height);
  // Equal values lie at equal distances from the panels' corners, which are a step apart.
  const auto points = values_of(svg, "<circle", "cx=\""),
             levels = values_of(svg, "<circle", "cy=\"");
  REQUIRE(points.size() == 112);
  std::set<std::string> corners;
  for (std::size_t i = 0; i < points.size(); i += 4) {
    CHECK(std::stod(points[i]) < width);
    CHECK(std::stod(levels[i]) < height);
    corners.insert(points[i] + ' ' + levels[i]);
  }
  CHECK(corners.size() == 28);
  const double step = std::stod(points[4]) - std::stod(points[0]);
  CHECK(std::stod(points[8]) - std::stod(points[4]) == Approx(step).margin(0.2));
  CHECK(step > 100);
  CHECK(levels[0] == levels[4]);
}

TEST_CASE("positions are spread until neighbours have a gap, in their order and bounds",
          "[tools]") {
  using list = std::vector<double>;
  CHECK(spread({}, 10, 0, 100).empty());
  CHECK(spread({20, 50}, 10, 0, 100) == list{20, 50});
  CHECK(spread({20, 20, 20}, 10, 0, 100) == list{10, 20, 30});
  CHECK(spread({20, 20, 60}, 10, 0, 100) == list{15, 25, 60});
  CHECK(spread({95, 96, 97}, 10, 0, 100) == list{80, 90, 100});
  CHECK(spread({-5, 1}, 10, 0, 100) == list{0, 10});
}
