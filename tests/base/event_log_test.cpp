#include <cordma/base/event_log.hpp>

#include "base/failures.hpp"
#include "base/text_writer.hpp"
#include "support/allocations.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

constexpr unsigned log_events = unsigned(event_log::kind::fabric_changed) + 1;

const failure lost_by_retries{.code = wc_errc::retry_exceeded,
                              .call = "ibv_poll_cq",
                              .object = {"qp", 0x1a2},
                              .detail = "the peer's device is silent",
                              .vendor = 0x81};

event_log::record full_record() {
  return {.kind = event_log::kind::lost,
          .level = event_log::level::warning,
          .time = time_point{81423'204'417us},
          .peer = "10.0.0.2:40112",
          .identity = "client 7",
          .local = "10.0.0.1:7471",
          .bootstrap = "tcp",
          .qpn = 0x1a2,
          .bytes = 4096,
          .note = "two words",
          .why = &lost_by_retries};
}

}  // namespace

TEST_CASE("a record's line has all that the record says", "[base]") {
  CHECK(full_record().to_string() ==
        "81423.204417 warning lost peer=10.0.0.2:40112 identity=\"client 7\" local=10.0.0.1:7471 "
        "bootstrap=tcp qpn=0x1a2 bytes=4096 note=\"two words\" why=\"" +
            lost_by_retries.to_string() + '"');
  CHECK(event_log::record{.kind = event_log::kind::port_up, .level = event_log::level::info}
            .to_string() == "0.000000 info port_up");
}

TEST_CASE("no text of a record ends its line or steers a terminal", "[base]") {
  const failure why{.code = errc::refused, .call = "accept", .detail = "\x1b]0;x\a\r\nb\x9b\x80"};
  const event_log::record hostile{
      .peer = "a\nb", .note = "say \"x\" peer=c \x1b[2J\x7f", .why = &why};
  const std::string line = hostile.to_string();
  CHECK(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; }));
  CHECK_THAT(line, Catch::Contains("peer=a?b note=\"say 'x' peer=c ?[2J?\" why="));
  CHECK_THAT(line, Catch::EndsWith("?]0;x???b??\""));
}

TEST_CASE("a line that does not fit ends in dots", "[base]") {
  const std::string whole = full_record().to_string();
  for (std::size_t size = 0; size <= whole.size() + 1; ++size) {
    std::string line(size + 1, '#');
    const std::size_t written = full_record().write_to({line.data(), size});
    INFO(size);
    CHECK(line[size] == '#');
    REQUIRE(written == std::min(size, whole.size()));
    line.resize(written);
    if (size >= whole.size()) {
      CHECK(line == whole);
    } else if (size >= 3) {
      CHECK(line == whole.substr(0, size - 3) + "...");
    }
  }
}

TEST_CASE("events have a name each, and a level", "[base]") {
  std::set<std::string> names;
  for (unsigned n = 0; n < log_events; ++n) names.insert(to_string(event_log::kind(n)));
  CHECK(names.size() == log_events);
  CHECK(names.count("unknown event") == 0);
  CHECK(to_string(event_log::kind(log_events)) == std::string{"unknown event"});
  CHECK(event_log::level_of(event_log::kind::device_failed) == event_log::level::error);
  CHECK(event_log::level_of(event_log::kind::lost) == event_log::level::warning);
  CHECK(event_log::level_of(event_log::kind::connected) == event_log::level::info);
  CHECK(event_log::level_of(event_log::kind::lease_opened) == event_log::level::debug);
  CHECK(to_string(event_log::level::error) == std::string{"error"});
  CHECK(to_string(event_log::level::debug) == std::string{"debug"});
}

TEST_CASE("a failure is written as it prints, and without an allocation", "[base]") {
  const std::array all{lost_by_retries,
                       failure{},
                       failure{.code = errc::limit_exceeded, .call = "lend", .detail = "64 bytes"},
                       failure{.code = errc::rank_failed, .call = "group", .object = {"rank", 12}},
                       errno_failure(ECONNREFUSED, "connect", {}, "127.0.0.1:1"),
                       errno_failure(ENOMEM, "ibv_reg_mr", {"mr", 1}, std::string(300, 'x'))};
  for (const failure& one : all) {
    std::array<char, detail::failure_text_max> text;
    const std::string printed = one.to_string();
    const std::uint64_t before = support::thread_allocation_count();
    const std::string_view written = detail::write_failure(one, text);
    CHECK(support::thread_allocation_count() == before);
    CHECK(written == printed);
  }
}

TEST_CASE("writing a record allocates nothing", "[base]") {
  if (!support::counts_allocations()) WARN("allocations are not counted here");
  const event_log::record record = full_record();
  std::array<char, 1024> line;
  const std::uint64_t before = support::thread_allocation_count();
  const std::size_t size = record.write_to(line);
  CHECK(support::thread_allocation_count() == before);
  CHECK(size > 200);
}
