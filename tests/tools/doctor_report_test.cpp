// The findings of cordma-doctor as data, and the two printers of them.

#include "doctor/attempt_memory.hpp"
#include "doctor/frames.hpp"
#include "doctor/printers.hpp"
#include "support/commands.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <fstream>
#include <string>

using namespace cordma::test;
using Catch::Matchers::Contains;
using doctor::severity;

namespace {

doctor::report some_report() {
  doctor::report r;
  r.ok("gid", "row 3", "peers send to it");
  r.error("mtu", "\"1500\"\tand \\", "two\nlines", "ip link set eth0 mtu 4192");
  r.note("clock", "tsc", "read often");
  return r;
}

/// Evaluates a Python expression about `d`, the JSON.
std::string of_json(const std::string& text, const std::string& expression) {
  const temporary_folder folder;
  const std::string path = (folder.path / "out.json").string();
  std::ofstream{path} << text;
  const outcome ran = run("python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(" +
                          expression + ")' " + path);
  INFO(text << ran.output);
  REQUIRE(ran.exit_status == 0);
  return ran.output;
}

}  // namespace

TEST_CASE("a report knows its findings and the worst of them", "[tools]") {
  const doctor::report r = some_report();
  CHECK(r.worst() == severity::error);
  CHECK(r.count(severity::ok) == 1);
  REQUIRE(r.find("mtu") != nullptr);
  CHECK(r.find("mtu")->mend == "ip link set eth0 mtu 4192");
  CHECK(r.find("none") == nullptr);
  CHECK(doctor::report{}.worst() == severity::ok);
  CHECK(summary(r) == "1 error, 0 warning, 1 note, 1 ok\n");
}

TEST_CASE("a listener hears each finding when it is made", "[tools]") {
  std::string heard;
  doctor::report r{[&heard](const doctor::finding& f) { heard += f.check + ' '; }};
  r.ok("one", "", "");
  r.warning("two", "", "", "");
  CHECK(heard == "one two ");
}

TEST_CASE("text says why and what mends it, of what is well only if it is asked", "[tools]") {
  const doctor::report r = some_report();
  const std::string bad = text(*r.find("mtu"), false);
  CHECK_THAT(bad, Contains("error    mtu") && Contains("why:  two\n               lines") &&
                      Contains("mend: ip link set eth0 mtu 4192"));
  CHECK_THAT(text(*r.find("gid"), false), Contains("row 3") && !Contains("why"));
  CHECK_THAT(text(*r.find("gid"), true), Contains("why:  peers send to it") && !Contains("mend"));
}

TEST_CASE("JSON has each finding whole, whatever characters are in it", "[tools]") {
  const std::string out = json(some_report(), "mlx5_0", "");
  CHECK(of_json(out, R"(d["device"], d["peer"], d["worst"], len(d["findings"]))") ==
        "mlx5_0 None error 3\n");
  CHECK(of_json(out, R"([f["check"] for f in d["findings"]])") == "['gid', 'mtu', 'clock']\n");
  CHECK(of_json(out, R"(d["findings"][1]["value"] == "\"1500\"\tand \\")") == "True\n");
  CHECK(of_json(out, R"(d["findings"][1]["why"] == "two\nlines")") == "True\n");
  CHECK(of_json(out, R"(d["findings"][0]["mend"], d["findings"][1]["mend"])") ==
        "None ip link set eth0 mtu 4192\n");
  CHECK(of_json(json(doctor::report{}, "", "a:1"), R"(d["device"], d["peer"], d["findings"])") ==
        "None a:1 []\n");
}

TEST_CASE("the purpose of a connection is read as it was written, and nothing else", "[tools]") {
  const doctor::purpose p{.op = doctor::operation::read, .server_acts = true, .number = 77};
  const doctor::private_data data = encode(p);
  const auto read = doctor::decode(data);
  REQUIRE(read);
  CHECK(read->op == doctor::operation::read);
  CHECK(read->server_acts);
  CHECK(read->number == 77);
  CHECK_FALSE(doctor::decode(encode(doctor::purpose{}))->op);
  CHECK_FALSE(doctor::decode(doctor::private_data{}));
  for (std::size_t i = 0; i < 9; ++i) {  // Magic and version.
    doctor::private_data other = data;
    other[i] ^= std::byte{1};
    CHECK_FALSE(doctor::decode(other));
  }
  doctor::private_data unknown = data;
  unknown[9] = std::byte{200};
  CHECK_FALSE(doctor::decode(unknown));
}

TEST_CASE("data that arrived otherwise than they left are told", "[tools]") {
  std::array<std::byte, 100> bytes{};
  doctor::fill(bytes, 7);
  CHECK_NOTHROW(doctor::check_filled(bytes, 7, "READ"));
  CHECK_THROWS_WITH(doctor::check_filled(bytes, 3, "READ"), Contains("READ: the bytes"));
  bytes[99] ^= std::byte{1};
  CHECK_THROWS_WITH(doctor::check_filled(bytes, 7, "READ"), Contains("READ: the bytes"));
  CHECK_NOTHROW(doctor::check_equal(1, 1, "the length"));
  CHECK_THROWS_WITH(doctor::check_equal(1, 2, "the length"), Contains("got 1 in place of 2"));
}

TEST_CASE("an outcome is read as it was written", "[tools]") {
  using doctor::outcome_kind;
  for (const auto kind : {outcome_kind::success, outcome_kind::not_there, outcome_kind::failure}) {
    const doctor::outcome o =
        doctor::decode_outcome(encode(doctor::outcome{.kind = kind, .text = "3 us"}));
    CHECK(o.kind == kind);
    CHECK(o.text == "3 us");
  }
  CHECK(doctor::decode_outcome("").kind == outcome_kind::failure);
  CHECK(doctor::decode_outcome("?").kind == outcome_kind::failure);
}
