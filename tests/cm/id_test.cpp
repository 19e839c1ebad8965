#include "cm/id.hpp"

#include "rig.hpp"

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;

TEST_CASE("two identifiers connect queue pairs of our own, which then exchange messages",
          "[cm][device]") {
  connected c;
  CHECK(c.server.conn.from_peer().qpn == c.client.qp.num());
  CHECK(c.client.conn.from_peer().qpn == c.server.qp.num());
  CHECK(c.client.conn.device_name() == c.ctx.name());
  CHECK(c.server.conn.device_name() == c.ctx.name());
  CHECK(c.client.conn.port() == c.port.number);
  CHECK(c.client.conn.peer() == c.to);
  CHECK(c.server.conn.local() == c.to);
  CHECK(c.server.conn.peer() == c.client.conn.local());
  c.send(c.client.qp, c.server.qp);
  c.send(c.server.qp, c.client.qp);
}
