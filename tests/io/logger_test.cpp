#include "io/logger.hpp"

#include "io/address_text.hpp"
#include "support/allocations.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using detail::log_to;
using detail::logger;

namespace {

/// A logger of which each record becomes a line.
struct lines_of_log {
  explicit lines_of_log(event_log::level level)
      : log{executor,
            {[this](const event_log::record& r) { lines.push_back(r.to_string()); }, level}} {}

  manual_clock clock;
  cordma::executor executor{{.clock = &clock}};
  std::vector<std::string> lines;
  logger log;
};

/// Returns a peer's address: an abstract one that the peer has chosen.
socket_address abstract_address(std::string_view name) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  name.copy(un.sun_path + 1, name.size());
  return {reinterpret_cast<const sockaddr*>(&un),
          socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

}  // namespace

TEST_CASE("a hook gets the records of its level and of more urgent ones", "[io]") {
  for (const unsigned level : {0u, 1u, 2u, 3u}) {
    lines_of_log l{event_log::level(level)};
    for (const event_log::kind event :
         {event_log::kind::device_failed, event_log::kind::lost, event_log::kind::connected,
          event_log::kind::lease_opened}) {
      CHECK(l.log.wants(event) == (unsigned(event_log::level_of(event)) <= level));
      log_to(&l.log, event, {});
    }
    CHECK(l.lines.size() == level + 1);
  }
}

TEST_CASE("without a hook or a logger no record is made", "[io]") {
  const cordma::executor executor;
  const logger mute{executor, {.least_urgent = event_log::level::debug}};
  CHECK_FALSE(mute.wants(event_log::kind::device_failed));
  log_to(&mute, event_log::kind::device_failed,
         {});  // A call of the empty hook would end the process.
  log_to(nullptr, event_log::kind::device_failed, {});
}

TEST_CASE("a record has the time of the executor's clock", "[io]") {
  lines_of_log l{event_log::level::info};
  l.clock.advance(1500ms);
  log_to(&l.log, event_log::kind::connected, {});
  CHECK(l.lines.at(0) == "1.500000 info connected");
}

TEST_CASE("a peer's texts reach the hook without what steers a terminal", "[io]") {
  const cordma::executor executor;
  std::vector<std::string> texts;
  const logger log{executor, {[&](const event_log::record& r) {
                     texts = {std::string{r.peer}, std::string{r.identity}, std::string{r.local},
                              std::string{r.note}, std::string{r.why->detail.view()}};
                   }}};
  const socket_address peer = abstract_address(std::string_view{"\x1b[2J\n\0x", 7});
  const failure why{.code = errc::refused, .call = "accept", .detail = "no\r\nbcc: \x9b\u00e9"};
  log_to(&log, event_log::kind::client_refused,
         {.peer = &peer, .identity = "uid\n0", .local_name = "a\tb", .note = "c\x7f", .why = &why});
  const std::vector<std::string> wanted{"unix:@?[2J??x", "uid?0", "a?b", "c?", "no??bcc: ???"};
  CHECK(texts == wanted);
}

TEST_CASE("what a hook throws goes no further", "[io]") {
  const cordma::executor executor;
  unsigned calls = 0;
  const logger log{executor, {[&](const event_log::record&) {
                     ++calls;
                     throw std::runtime_error{"the disk is full"};
                   }}};
  log_to(&log, event_log::kind::lost, {});
  log_to(&log, event_log::kind::lost, {});
  CHECK(calls == 2);
}

TEST_CASE("a record costs no allocation", "[io]") {
  if (!support::counts_allocations()) WARN("allocations are not counted here");
  const cordma::executor executor;
  std::size_t written = 0;
  const logger log{executor, {[&](const event_log::record& r) {
                     std::array<char, 1024> line;
                     written += r.write_to(line);
                   }}};
  const failure why{.code = errc::refused, .call = "accept", .detail = "not today"};
  const std::array peers{socket_address::loopback(7471), socket_address::unix_path("@a"),
                         socket_address::resolve("fe80::1%lo", 65535).front()};
  const std::uint64_t before = support::thread_allocation_count();
  for (const socket_address& peer : peers)
    log_to(&log, event_log::kind::client_refused,
           {.peer = &peer, .qpn = 1, .bytes = 2, .why = &why});
  CHECK(support::thread_allocation_count() == before);
  CHECK(written > 200);
}

TEST_CASE("an address's text is what it prints as, of any family and length", "[io]") {
  const std::array all{socket_address{},
                       socket_address::loopback(7471),
                       socket_address::resolve("::1", 65535).front(),
                       socket_address::resolve("fe80::1234:5678:9abc:def0%lo", 65535).front(),
                       socket_address::unix_path("/run/x"),
                       socket_address::unix_path("@" + std::string(106, 'x')),
                       socket_address::unix_path(std::string(107, 'y'))};
  for (const socket_address& one : all) CHECK(detail::address_text(one).view() == one.to_string());
  CHECK(detail::address_text(all.at(3)).view() == "[fe80::1234:5678:9abc:def0%lo]:65535");
  CHECK(detail::address_text(all.at(5)).view() == "unix:@" + std::string(106, 'x'));
  CHECK(detail::address_text(all.at(6)).view() == "unix:" + std::string(107, 'y'));
}
