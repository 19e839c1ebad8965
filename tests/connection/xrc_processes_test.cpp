// XRC between processes: pools of several processes behind one target, and what is left when one of
// them is killed.
#include "connection/xrc_member.hpp"
#include "support/skip.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace cordma;
using namespace cordma::test::xrc;
using Catch::Matchers::Contains;

namespace {

/// Has XRC and forks, which `has_xrc` must not precede: a fork copies no device.
bool can_share() { return test::is_soft(); }

struct domain_file {
  test::temporary_folder folder;
  const std::string path = folder.path / "domain";
};

std::string named(member& owner) { return "receive queue " + std::to_string(owner.self().number); }

}  // namespace

TEST_CASE("one target serves the pools of other processes of its host", "[connection][device]") {
  if (!can_share()) CORDMA_SKIP("rxe has no XRC");
  domain_file domain;
  member from{domain.path}, with_target{domain.path}, other{domain.path};
  const connected link = connect(from, with_target);
  unsigned seed = 0;
  for (const std::uint32_t bytes : {0u, 5u, 5000u, 8192u}) {
    for (member* const to : {&other, &with_target, &from}) {
      ++seed;
      const reply sent = from.send(link.initiator, *to, bytes, seed);
      INFO(sent.why.data());
      REQUIRE(sent.well);
      CHECK(to->hears(bytes, seed));
    }
  }
  const auto at = [&](deed what, member& to) {
    return from.obey({.what = what,
                      .which = link.initiator,
                      .number = to.self().number,
                      .memory = to.self().memory,
                      .bytes = 4096,
                      .seed = 99});
  };
  for (member* const to : {&other, &with_target}) {
    CHECK(at(deed::write, *to).well);
    CHECK(to->obey({.what = deed::holds, .bytes = 4096, .seed = 99}).well);
  }
  // READs and atomics stay in the process of the target.
  CHECK(at(deed::read, with_target).well);
  const reply far = at(deed::read, other);
  CHECK(far.code == int(wc_errc::remote_invalid_request));
  CHECK_THAT(far.why.data(), Contains(named(other)));
}

TEST_CASE("the death of a pool's process ends who sends to it, and the others' pools stay",
          "[connection][device]") {
  if (!can_share()) CORDMA_SKIP("rxe has no XRC");
  domain_file domain;
  member from{domain.path}, with_target{domain.path}, other{domain.path}, dying{domain.path};
  const connected link = connect(from, with_target);
  REQUIRE(from.send(link.initiator, dying, 64, 1).well);
  dying.kill();
  REQUIRE(from.send(link.initiator, other, 64, 2).well);
  CHECK(other.hears(64, 2));
  const reply late = from.send(link.initiator, dying, 64, 3);
  CHECK(late.code == int(wc_errc::remote_invalid_request));
  CHECK_THAT(late.why.data(), Contains(named(dying)));
  CHECK(with_target.obey({.what = deed::end, .which = link.target}).well);
  const connected again = connect(from, with_target);
  CHECK(from.send(again.initiator, other, 64, 4).well);
  CHECK(other.hears(64, 4));
}

TEST_CASE("the death of the target's process ends its initiators at once, and no pool",
          "[connection][device]") {
  if (!can_share()) CORDMA_SKIP("rxe has no XRC");
  domain_file domain;
  member from{domain.path}, dying{domain.path}, other{domain.path};
  const connected link = connect(from, dying);
  REQUIRE(from.send(link.initiator, other, 64, 1).well);
  from.tell({.what = deed::end, .which = link.initiator});
  dying.kill();
  CHECK(from.heard().well);
  CHECK(from.send(link.initiator, other, 64, 2).code == int(errc::disconnected));
  // The messages that arrived stay, and another target serves the pool.
  CHECK(other.hears(64, 1));
  const connected again = connect(from, other);
  CHECK(from.send(again.initiator, other, 64, 3).well);
  CHECK(other.hears(64, 3));
}

TEST_CASE("the death of an initiator's process ends its target at once", "[connection][device]") {
  if (!can_share()) CORDMA_SKIP("rxe has no XRC");
  domain_file domain;
  member dying{domain.path}, with_target{domain.path}, other{domain.path};
  const connected link = connect(dying, with_target);
  REQUIRE(dying.send(link.initiator, other, 64, 1).well);
  with_target.tell({.what = deed::end, .which = link.target});
  dying.kill();
  CHECK(with_target.heard().well);
  CHECK(other.hears(64, 1));
}

TEST_CASE("eight processes of two hosts reach each other by four queue pairs each",
          "[connection][device]") {
  if (!can_share()) CORDMA_SKIP("rxe has no XRC");
  const std::string why_not = test::why_no_hosts();
  if (!why_not.empty()) CORDMA_SKIP(why_not);
  constexpr std::size_t hosts_count = 2, each = 4, all = hosts_count * each;
  const test::two_hosts hosts;
  domain_file domain;
  std::vector<std::unique_ptr<member>> members;
  for (std::size_t i = 0; i < all; ++i)
    members.push_back(std::make_unique<member>(domain.path, &hosts, i / each));
  // Each has an initiator for each host, whose target serves all processes of that host. The
  // targets are shared out among them.
  std::vector<std::vector<std::uint32_t>> initiators(all);
  for (std::size_t from = 0; from < all; ++from)
    for (std::size_t host = 0; host < hosts_count; ++host)
      initiators[from].push_back(
          connect(*members[from], *members[host * each + (from + 1) % each]).initiator);
  for (std::size_t from = 0; from < all; ++from) {
    for (std::size_t to = 0; to < all; ++to) {
      const auto seed = unsigned(from * all + to);
      const reply sent = members[from]->send(initiators[from][to / each], *members[to], 5000, seed);
      INFO(sent.why.data());
      REQUIRE(sent.well);
      CHECK(members[to]->hears(5000, seed));
    }
  }
  // RC needs one for each other process: 7.
  for (const auto& one : members) CHECK(one->obey({.what = deed::count}).number == 4);
}
