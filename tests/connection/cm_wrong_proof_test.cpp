// Over rdma_cm, peers with the right key whose hello names other queue pairs than they can prove.
#include "cm_peers.hpp"
#include "impostor.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using test::cm_runtime;
using test::cm_speaker;
using test::impostor;
using test::lender_with;

namespace {

struct cm_lie {
  impostor of;
  const char* says;
};

cm_lie cm_lie_number(int n, const tls_channel& other) {
  constexpr const char* wrong = "the wrong proof";
  switch (n) {
    case 0: return {impostor::at(32), wrong};  // QPN
    case 1: return {impostor::at(36), wrong};  // PSN
    case 2: return {impostor::at(31), "names the GID"};
    case 3: return {{.proves = false}, "a frame before the peer has proved who it is"};
    default: return {{.prover = &other}, wrong};
  }
}
constexpr int cm_lies = 5;

task<impostor::outcome> speak_as(cm_speaker& self, const credentials& key, tls_role role,
                                 impostor said) {
  detail::link peer_link{self.state->local, self.state->peer, std::move(self.channel)};
  co_await peer_link.secure(&key, role);
  co_return co_await said.speak(*self.state, peer_link, role);
}

task<impostor::outcome> knock_by_cm(cm_speaker& self, const socket_address& to,
                                    const credentials& key, impostor said) {
  co_await self.connect(to);
  co_return co_await speak_as(self, key, tls_role::client, said);
}

task<impostor::outcome> open_by_cm(cm_speaker& self, cm::listener& acceptor, const credentials& key,
                                   impostor said) {
  co_await self.accept(acceptor);
  co_return co_await speak_as(self, key, tls_role::server, said);
}

}  // namespace

TEST_CASE("a client of rdma_cm whose proof is not over its hello gets no connection and no memory",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  const credentials key = test::some_key();
  const test::other_connection other{r.rt.executor(), key};
  listener acceptor = r.listen(lender_with(key));
  const auto [of, says] = cm_lie_number(GENERATE(range(0, cm_lies)), *other.ends[0]);
  {
    cm_speaker client{r, lender_with(key)};
    const impostor::outcome got = r.rt.run(knock_by_cm(client, r.address_of(acceptor), key, of));
    CHECK_FALSE(got.has_memory);
    CHECK(got.told.code != std::error_code{});
    CHECK(acceptor.counters().rejected == 1);
    CHECK(acceptor.counters().completed == 0);
    REQUIRE(acceptor.last_rejection());
    CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains(says));
  }
  auto [client, server] = r.rt.run(
      when_all(r.rt.connect(acceptor.local_endpoint(), lender_with(key)), acceptor.accept()));
  test::check_that_messages_pass(r.rt, client, server);
}

TEST_CASE("a listener by rdma_cm whose proof is not over its hello gets no connection",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  const credentials key = test::some_key();
  const test::other_connection other{r.rt.executor(), key};
  cm::listener acceptor{r.events(), r.address};
  const auto [of, says] = cm_lie_number(GENERATE(range(0, cm_lies)), *other.ends[1]);
  cm_speaker server{r, lender_with(key)};
  const endpoint where = cm_runtime::by_cm(acceptor.local_address());
  const auto [got, why] = r.rt.run(when_all(open_by_cm(server, acceptor, key, of),
                                            test::why_none(r.rt.connect(where, lender_with(key)))));
  CHECK_FALSE(got.has_memory);
  CHECK_THAT(why.to_string(), Catch::Contains(says));
}

TEST_CASE("a peer of rdma_cm with the right proof gets a connection and memory",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  const credentials key = test::some_key();
  SECTION("a client") {
    listener acceptor = r.listen(lender_with(key));
    cm_speaker client{r, lender_with(key)};
    const auto is_made = [&] { return acceptor.counters().completed == 1; };
    const auto [got, made] = r.rt.run(when_all(knock_by_cm(client, r.address_of(acceptor), key, {}),
                                               test::until(r.rt.executor(), is_made)));
    CHECK(got.has_memory);
  }
  SECTION("a listener") {
    cm::listener acceptor{r.events(), r.address};
    cm_speaker server{r, lender_with(key)};
    const endpoint where = cm_runtime::by_cm(acceptor.local_address());
    const auto [got, made] = r.rt.run(
        when_all(open_by_cm(server, acceptor, key, {}), r.rt.connect(where, lender_with(key))));
    CHECK(got.has_memory);
  }
}
