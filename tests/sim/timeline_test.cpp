#include "sim/timeline.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;
using sim::detail::event_text;
using sim::detail::seed_run;
using sim::detail::timeline;
using sim::detail::trace_record;

namespace {

/// Returns the number of elements of a well-formed text of XML; -1: of another one.
int elements_of(const std::string& xml) {
  std::vector<std::string> open;
  int count = 0;
  for (std::size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const std::string rest = xml.substr(at, 5);
      if (!rest.starts_with("&lt;") && !rest.starts_with("&gt;") && rest != "&amp;") return -1;
    }
    if (xml[at] == '>') return -1;
    if (xml[at] != '<') {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    bool is_quoted = false;
    for (; end < xml.size() && (is_quoted || xml[end] != '>'); ++end) {
      if (xml[end] == '"') is_quoted = !is_quoted;
      if (xml[end] == '<') return -1;
    }
    if (end == xml.size()) return -1;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return -1;
      open.pop_back();
    } else {
      ++count;
      if (tag.back() != '/') open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
    if (open.empty() && at + 1 < xml.size()) return -1;
  }
  return open.empty() ? count : -1;
}

/// A run of a scenario that does nothing, whose events and hosts are given.
seed_run run_of(std::vector<std::string> hosts, std::vector<trace_record> events) {
  static const sim::scenario nothing{"nothing", "", [](sim::world&) {}};
  seed_run made{{.what = &nothing, .seed = 1}};
  made.host_names = std::move(hosts);
  made.trace = std::move(events);
  return made;
}

trace_record event_of(unsigned host, event_text what, std::uint64_t number) {
  return {.at = time_point{1s + 2us}, .host = host, .what = what, .numbers = {number}};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace

TEST_CASE("a check of pictures knows well-formed texts", "[sim]") {
  CHECK(elements_of("<a b=\"<\"/>") == -1);
  CHECK(elements_of("<a><b></a></b>") == -1);
  CHECK(elements_of("<a>") == -1);
  CHECK(elements_of("<a>x & y</a>") == -1);
  CHECK(elements_of("<a b=\">\"><c/> &lt; </a>\n") == 2);
}

TEST_CASE("a picture has a lane for each host, with its name, and a mark for each event", "[sim]") {
  const std::string svg = timeline(run_of(
      {"client", "a<b>&c"}, {event_of(1, "sends frame {} of kind <x>", 7),
                             event_of(2, "gets frame {}", 7), event_of(2, "is killed & gone", 0)}));
  INFO(svg);
  CHECK(elements_of(svg) > 10);
  CHECK_THAT(svg, Contains("client") && Contains("a&lt;b&gt;&amp;c"));
  CHECK(count_of(svg, "<circle ") == 3);
  CHECK_THAT(svg, Contains("<title>1000.0020 ms  sends frame 7 of kind &lt;x&gt;</title>") &&
                      Contains("is killed &amp; gone"));
}

TEST_CASE("a picture has a line from where a frame was sent to where it arrived, or was lost",
          "[sim]") {
  const std::vector<trace_record> events{
      event_of(1, "sends frame {}", 7), event_of(1, "sends frame {}", 8),
      event_of(2, "gets frame {}", 7), event_of(2, "loses frame {}", 8),
      event_of(2, "gets frame {}", 9)};
  const std::string svg = timeline(run_of({"a", "b"}, events));
  CHECK(elements_of(svg) > 10);
  CHECK(count_of(svg, "<line ") == 2 + 2);
  CHECK(count_of(svg, "stroke-dasharray") == 1);
}

TEST_CASE("a picture of a run without events is well-formed", "[sim]") {
  CHECK(elements_of(timeline(run_of({}, {}))) == 2);
}
