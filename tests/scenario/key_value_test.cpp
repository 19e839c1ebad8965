// The parts of example 09 that its processes do not show. A reader meets a slot in the middle of a
// write, and one whose writer never ends.

#include "key_value.hpp"

#include "support/connected_pair.hpp"
#include "support/text.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace cordma;
using namespace cordma::test;
using key_value::slot;

namespace {

using words = std::array<std::uint64_t, sizeof(slot) / sizeof(std::uint64_t)>;

/// Gives the contents of a slot on its way from one value to the next.
std::vector<slot> stages_of_a_write(std::string_view before, std::string_view after) {
  slot s;
  s.write("key", bytes_of(before));
  std::vector<slot> stages{s};
  slot next = s;
  next.write("key", bytes_of(after));

  s.begin_write();
  stages.push_back(s);
  s.value_bytes = next.value_bytes;
  stages.push_back(s);
  std::ranges::copy(std::span{next.bytes}.first(after.size() / 2), s.bytes.begin());
  stages.push_back(s);
  s.bytes = next.bytes;
  stages.push_back(s);
  s.checksum = next.checksum;
  stages.push_back(s);
  stages.push_back(next);
  return stages;
}

/// A server's table and its reader. `slots` may be few.
struct table_and_reader : connected_pair {
  explicit table_and_reader(std::size_t slots) : table{rt, slots}, reader{client, table.name()} {}
  std::optional<std::string> get(std::string_view key) { return rt.run(reader.get(key)); }
  key_value::table table;
  key_value::reader reader;
};

}  // namespace

TEST_CASE("a slot read in the middle of a write is not whole, in whatever order", "[scenario]") {
  const std::string before(3000, 'a');
  const std::string after(GENERATE(1u, 2999u, 3000u, 3001u), 'b');
  const std::vector<slot> stages = stages_of_a_write(before, after);
  REQUIRE(stages.front().is_whole());
  REQUIRE(stages.back().is_whole());

  // Each word comes from any stage; few changes from one to another make mixtures that are nearly
  // whole.
  std::mt19937 random{20};  // NOLINT(cert-msc51-cpp): the same each time.
  std::size_t whole = 0;
  for (int round = 0; round < 4000; ++round) {
    words mixed{};
    std::size_t stage = random() % stages.size();
    const unsigned changes = 1u << (random() % 8);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      if (random() % mixed.size() < changes) stage = random() % stages.size();
      mixed[i] = std::bit_cast<words>(stages[stage])[i];
    }
    const auto seen = std::bit_cast<slot>(mixed);
    if (!seen.is_whole()) continue;
    ++whole;
    const slot& expected = seen.before == stages[0].before ? stages.front() : stages.back();
    REQUIRE(seen.before == expected.before);
    REQUIRE(seen.key() == expected.key());
    REQUIRE(std::ranges::equal(seen.value(), expected.value()));
  }
  CHECK(whole < 4000);
}

TEST_CASE("a slot with lengths beyond it is not whole, and nothing beyond it is looked at",
          "[scenario]") {
  slot s;
  s.write("key", bytes_of("value"));
  slot long_key = s, long_value = s;
  long_key.key_bytes = ~0u;
  long_value.value_bytes = slot::value_max + 1;
  CHECK(s.is_whole());
  CHECK_FALSE(long_key.is_whole());
  CHECK_FALSE(long_value.is_whole());
}

TEST_CASE("example 09's reader gives up on a slot whose writer never ends, and names the key",
          "[scenario][device]") {
  connected_pair pair;
  std::vector<slot> slots(1);
  local_mr memory = pair.rt.memory(verbs::access::remote_read)
                        .register_external(std::as_writable_bytes(std::span{slots}));
  key_value::reader reader{pair.client, memory.remote_slice()};

  slots[0].write("lamp", bytes_of("on"));
  CHECK(pair.rt.run(reader.get("lamp")) == "on");
  CHECK(reader.torn() == 0);
  slots[0].begin_write();
  CHECK_THROWS_WITH(pair.rt.run(reader.get("lamp")),
                    Catch::Contains("'lamp'") && Catch::Contains("not whole in 32 reads"));
  CHECK(reader.torn() == key_value::reader::reads_max);
  slots[0].end_write();
  CHECK(pair.rt.run(reader.get("lamp")) == "on");
}

TEST_CASE("example 09's table keeps keys of equal hashes apart, until no slot is left",
          "[scenario][device]") {
  table_and_reader both{4};
  for (const char* key : {"a", "b", "c"}) both.table.put(key, bytes_of(key));
  CHECK(both.get("d") == std::nullopt);
  both.table.put("", bytes_of("no key"));
  both.table.put("b", bytes_of("another"));
  CHECK(both.get("a") == "a");
  CHECK(both.get("b") == "another");
  CHECK(both.get("c") == "c");
  CHECK(both.get("") == "no key");
  CHECK(both.get("d") == std::nullopt);
  CHECK_THROWS_WITH(both.table.put("d", bytes_of("d")), Catch::Contains("'d'"));
}

TEST_CASE("example 09's table refuses what no slot has room for", "[scenario][device]") {
  table_and_reader both{4};
  const std::string key(slot::key_max, 'k');
  const std::string value(slot::value_max, 'v');
  both.table.put(key, bytes_of(value));
  CHECK(both.get(key) == value);
  CHECK_THROWS_AS(both.table.put(key + 'k', bytes_of(value)), std::length_error);
  CHECK_THROWS_AS(both.table.put(key, bytes_of(value + 'v')), std::length_error);
  CHECK(both.get(key) == value);
}
