#include <cordma/messages/message_stream.hpp>

#include <support/connected_pair.hpp>
#include <support/outcome.hpp>
#include <support/text.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using test::bytes_of;
using test::code_of;
using test::connected_pair;
using test::text_of;

TEST_CASE("a stream's connection refuses the SENDs of others, and breaks nobody's stream",
          "[messages][device]") {
  connected_pair p;
  message_stream a{std::move(p.client)};
  message_stream b{std::move(p.server)};
  local_mr mine = p.rt.memory().allocate_zeroed(64);
  local_mr theirs = p.rt.memory(test::all_access).allocate_zeroed(64);
  connection& raw = a.connection();
  const auto send = [&](auto request) { return code_of(p.rt.run(as_result(raw.post(request)))); };
  for (int round = 0; round < 2; ++round) {
    CHECK(code_of(p.rt.run(as_result(raw.send(mine.slice())))) == errc::refused);
    CHECK(send(cordma::send(mine.slice())) == errc::refused);
    CHECK(send(send_with_imm(mine.slice(), 1)) == errc::refused);
    CHECK(send(write_with_imm(mine.slice(), theirs.remote_slice(), 1)) == errc::refused);
    CHECK(code_of(p.rt.run(as_result(raw.recv(mine.slice())))) == errc::refused);
    // A request that takes no receive of the peer's is free.
    CHECK(p.rt.run(raw.write(mine.slice(), theirs.remote_slice())) == 64);
    CHECK(p.rt.run(raw.read(mine.slice(), theirs.remote_slice())) == 64);
    p.rt.run(a.send(bytes_of("still whole")));
    CHECK(text_of(p.rt.run(b.receive()).bytes()) == "still whole");
  }
}

TEST_CASE("a stream to a peer that makes none says so in time, and works once there is one",
          "[messages][device]") {
  connected_pair p;
  message_stream a{std::move(p.client), {.open_timeout = 5ms}};
  const auto outcome = p.rt.run(as_result(a.send(bytes_of("hello"))));
  CHECK(code_of(outcome) == errc::timed_out);
  CHECK_THAT(outcome.failure().to_string(),
             Catch::Contains("made no message stream") && Catch::Contains("5 ms"));
  local_mr memory = p.rt.memory().allocate_zeroed(8);
  CHECK(code_of(p.rt.run(as_result(a.send(memory.slice())))) == errc::timed_out);
  message_stream b{std::move(p.server)};
  p.rt.run(b.send(bytes_of("late")));
  CHECK(text_of(p.rt.run(a.receive()).bytes()) == "late");
  p.rt.run(a.send(bytes_of("hello")));
  CHECK(text_of(p.rt.run(b.receive()).bytes()) == "hello");
}
