#include "perf/job.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

using namespace perf;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

std::string refusal(const job& j) {
  try {
    check(j);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a job that is told is the one that is understood", "[tools]") {
  for (std::uint8_t op = 0; op < operation_count; ++op) {
    const job said{.op = operation(op),
                   .size_bytes = is_atomic(operation(op)) ? 8u : 4096u,
                   .depth = 16,
                   .connections = 8,
                   .threads = 2,
                   .mode = cordma::completion_mode::adaptive,
                   .duration = 1500ms};
    const job heard = decode(encode(said));
    CHECK(heard.op == said.op);
    CHECK(heard.size_bytes == said.size_bytes);
    CHECK(heard.depth == said.depth);
    CHECK(heard.connections == said.connections);
    CHECK(heard.threads == said.threads);
    CHECK(heard.mode == said.mode);
    CHECK(heard.duration == said.duration);
    CHECK(parse_operation(to_string(said.op)) == said.op);
    CHECK(parse_mode(to_string(said.mode)) == said.mode);
  }
}

TEST_CASE("all that both sides must agree on is told", "[tools]") {
  const job said{.operations = 12,
                 .is_endless = false,
                 .warm_up = 250ms,
                 .path = {.service_level = 15,
                          .traffic_class = 255,
                          .mtu_bytes = 4096,
                          .inline_bytes = 0,
                          .retries = 7,
                          .rnr_retries = 0},
                 .rate = 1234.5,
                 .gaps = gap_kind::exponential,
                 .is_bidirectional = true};
  const job heard = decode(encode(said));
  CHECK(heard.operations == 12);
  CHECK(heard.warm_up == said.warm_up);
  CHECK(heard.path == said.path);
  CHECK(heard.rate == said.rate);
  CHECK(heard.gaps == said.gaps);
  CHECK(heard.is_bidirectional);
  CHECK_FALSE(heard.is_endless);
  CHECK(decode(encode(job{.is_endless = true})).is_endless);
  const job plain = decode(encode(job{}));
  CHECK(plain.path == path_options{});
  CHECK_FALSE(plain.warm_up.has_value());
  CHECK_FALSE(plain.is_bidirectional);
}

TEST_CASE("what a path is told reaches the connection's options, and nothing else", "[tools]") {
  const cordma::connection_options defaults = connection_options(job{});
  const cordma::connection_options o = connection_options({.path = {.service_level = 3,
                                                                    .traffic_class = 104,
                                                                    .mtu_bytes = 2048,
                                                                    .inline_bytes = 200,
                                                                    .retries = 2,
                                                                    .rnr_retries = 1}});
  CHECK(o.fabric.service_level == 3);
  CHECK(o.fabric.traffic_class == 104);
  CHECK(o.fabric.mtu == IBV_MTU_2048);
  CHECK(o.capabilities.inline_max == 200);
  CHECK(o.retry_cnt == 2);
  CHECK(o.rnr_retry == 1);
  CHECK_FALSE(defaults.fabric.service_level.has_value());
  CHECK_FALSE(defaults.fabric.mtu.has_value());
  CHECK(defaults.capabilities.inline_max != 200);
  CHECK(o.capabilities.send_wr_max == defaults.capabilities.send_wr_max);
}

TEST_CASE("a path or a load that an operation cannot have is refused by name", "[tools]") {
  CHECK_THAT(refusal({.path = {.service_level = 16}}), Contains("--sl 16") && Contains("0 to 15"));
  CHECK_THAT(refusal({.path = {.traffic_class = 256}}), Contains("--tclass 256"));
  CHECK_THAT(refusal({.path = {.mtu_bytes = 1500}}), Contains("--mtu 1500") && Contains("1024"));
  CHECK_THAT(refusal({.path = {.inline_bytes = 65537}}), Contains("--inline 65537"));
  CHECK_THAT(refusal({.path = {.retries = 8}}), Contains("--retries 8"));
  CHECK_THAT(refusal({.path = {.rnr_retries = 8}}), Contains("--rnr-retries 8"));
  CHECK_THAT(refusal({.op = operation::rpc, .path = {.inline_bytes = 39}}),
             Contains("--inline 39: rpc needs 40"));
  CHECK_THAT(refusal({.op = operation::ud, .path = {.mtu_bytes = 512}}), Contains("--mtu: ud"));
  CHECK_THAT(refusal({.op = operation::uc_send, .path = {.retries = 0}}), Contains("UC repeats"));
  CHECK_THAT(refusal({.operations = 1, .is_endless = true}), Contains("--forever"));
  CHECK_THAT(refusal({.warm_up = 2h}), Contains("--warm-up"));
  CHECK_THAT(refusal({.rate = 1e9}), Contains("--rate"));
  CHECK_THAT(refusal({.op = operation::rpc, .is_bidirectional = true}),
             Contains("--bidirectional: rpc goes there and back already"));
  CHECK_THAT(refusal({.op = operation::xrc, .is_bidirectional = true}),
             Contains("--bidirectional: xrc"));
}

TEST_CASE("a job by number of operations may take as long as any", "[tools]") {
  const job said{.operations = 10, .duration = 1ms};
  CHECK(decode(encode(said)).duration == job::duration_max);
}

TEST_CASE("a job out of bounds is refused, with the value and the way out", "[tools]") {
  CHECK(refusal({}) == "");
  CHECK_THAT(refusal({.size_bytes = 7}), Contains("--size 7") && Contains("8 to 1G"));
  CHECK_THAT(refusal({.size_bytes = job::size_max + 1}), Contains("--size"));
  CHECK_THAT(refusal({.depth = 0}), Contains("--depth 0"));
  CHECK_THAT(refusal({.depth = 1025}), Contains("--depth 1025"));
  CHECK_THAT(refusal({.connections = 0}), Contains("--connections 0"));
  CHECK_THAT(refusal({.connections = 257}), Contains("--connections 257"));
  CHECK_THAT(refusal({.connections = 64, .threads = 65}), Contains("--threads 65"));
  CHECK_THAT(refusal({.connections = 1, .threads = 2}), Contains("fewer --threads"));
  CHECK_THAT(refusal({.op = operation::cas, .size_bytes = 16}), Contains("leave --size out"));
  CHECK_THAT(refusal({.op = operation::rpc, .size_bytes = job::size_max}), Contains("512M"));
  CHECK_THAT(refusal({.op = operation::ud, .size_bytes = 4097}), Contains("ud goes up to 4K"));
  CHECK_THAT(refusal({.duration = 61min}), Contains("--duration"));
}

TEST_CASE("a job over UC is that of RC but for its transport", "[tools]") {
  for (const auto& [text, same] : {std::pair{"uc-write", operation::write},
                                   {"uc-send", operation::send},
                                   {"uc-write-imm", operation::write_imm}}) {
    const job over_uc{.op = parse_operation(text)};
    const job over_rc{.op = same};
    CHECK(perf::over_rc(over_uc.op) == same);
    CHECK(uses_receives(over_uc.op) == uses_receives(same));
    CHECK(receives(over_uc) == receives(over_rc));
    CHECK(connection_options(over_uc).transport == cordma::verbs::queue_pair_type::uc);
    CHECK(connection_options(over_rc).transport == cordma::verbs::queue_pair_type::rc);
  }
}

TEST_CASE("over XRC each buffer of the server's pool has memory, so long messages get few",
          "[tools]") {
  const job short_ones{.op = parse_operation("xrc"), .depth = 100};
  CHECK(receives(short_ones) == 200);
  CHECK(memory_bytes(short_ones) >= 300 * short_ones.size_bytes);
  CHECK(receives({.op = operation::xrc, .size_bytes = job::size_max}) == 2);
  CHECK(connection_options(short_ones).transport == cordma::verbs::queue_pair_type::rc);
}

TEST_CASE("a frame that no client of ours sends is refused", "[tools]") {
  const job_frame good = encode(job{});
  CHECK_NOTHROW(decode(good));
  const auto changed = [&good](auto change) {
    job_frame f = good;
    change(f);
    return f;
  };
  using frame = job_frame&;
  CHECK_THROWS_AS(decode(changed([](frame f) { f.op = operation_count; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.op = 255; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.mode = 3; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.gaps = 2; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.flags = 4; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.path.reserved = 1; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.path.service_level = 17; })),
                  std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.path.mtu_bytes = 1001; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.warm_up_ms = ~0u; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.rate = -1; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.rate = NAN; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.size_bytes = ~0ull; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.duration_ms = ~0ull; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.depth = ~0u; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.connections = ~0u; })), std::invalid_argument);
  CHECK_THROWS_AS(decode(changed([](frame f) { f.threads = 0; })), std::invalid_argument);
}

TEST_CASE("no job takes more memory than it says", "[tools]") {
  CHECK(slots({.size_bytes = 64, .depth = 16}) == 16);
  CHECK(slots({.size_bytes = job::size_max, .depth = 16}) == 1);
  CHECK(memory_bytes({.size_bytes = 1u << 20, .depth = 1024, .connections = 2}) == 128u << 20);
  // A stream's own buffers count, and the longest message still fits into a server's default.
  CHECK(memory_bytes({.op = operation::stream, .size_bytes = job::size_max}) < 2u << 30);
  CHECK(memory_bytes({.op = operation::rpc, .size_bytes = 8, .depth = 1024, .connections = 256}) >
        1u << 30);
  const job most{
      .size_bytes = job::size_max, .depth = job::depth_max, .connections = job::connections_max};
  CHECK(memory_bytes(most) == std::uint64_t{job::connections_max} << 30);
}

TEST_CASE("what is no operation or mode is answered with those that there are", "[tools]") {
  CHECK_THROWS_WITH(parse_operation("fly"), Contains("--op 'fly'") && Contains("write-imm, cas"));
  CHECK_THROWS_WITH(parse_mode("manual"), Contains("--mode 'manual'") && Contains("adaptive"));
}
