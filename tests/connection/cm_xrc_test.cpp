// Halves of XRC whose agents rdma_cm connects.
#include "cm_peers.hpp"
#include "support/skip.hpp"
#include "support/xrc.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using test::cm_runtime;

TEST_CASE(
    "by rdma_cm an initiator sends to the pools of a domain, and a closed one ends its target",
    "[connection][device][rdma_cm]") {
  CORDMA_NEED_XRC();
  cm_runtime r;
  verbs::xrc_domain& domain = r.rt.open_xrc_domain();
  shared_receives& pool = r.rt.share_receives(test::inbox(domain));
  listener acceptor = r.listen(test::target(domain));
  auto [from, to] = r.rt.run(
      when_all(r.rt.connect(acceptor.local_endpoint(), test::initiator()), acceptor.accept()));
  local_mr out = r.rt.memory().allocate_zeroed(4);
  test::put(out, 4711);
  auto [sent, m] = r.rt.run(when_all(from.to(pool.num()).send(out.slice()), pool.next_message()));
  CHECK(sent == 4);
  CHECK(test::word_of(m) == 4711);
  CHECK(m.qpn() == to.verbs().num());
  r.rt.run(when_all(from.close(), to.ended()));
  CHECK(to.was_closed_by_peer());
}
