#include "cm/datagram_listener.hpp"

#include "cm/datagram_id.hpp"
#include "rig.hpp"

#include <optional>

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;

namespace {

/// A UD queue pair that nobody sends to.
struct datagram_rig : rig {
  verbs::queue_pair make_datagrams(std::uint8_t of_port) {
    verbs::queue_pair made{pd,
                           cq,
                           cq,
                           {.send_wr_max = 4, .recv_wr_max = 4},
                           nullptr,
                           nullptr,
                           verbs::queue_pair_type::ud};
    made.to_ud_rts({.port = of_port, .qkey = 0x01234567});
    return made;
  }
  datagram_peer resolve(const socket_address& to) {
    datagram_id id{channel};
    return executor.run(with_timeout(id.resolve(to), std::chrono::seconds{60}));
  }
};

}  // namespace

TEST_CASE("who asks a listener is told the queue pair, again and again", "[cm][device]") {
  datagram_rig r;
  verbs::queue_pair qp = r.make_datagrams(r.port.number);
  datagram_listener from{r.channel, r.address, qp};
  for (int n = 0; n < 3; ++n) {
    const datagram_peer found = r.resolve(from.local_address());
    CHECK(found.qpn == qp.num());
    CHECK(found.qkey == 0x01234567);
    CHECK(found.path.is_global == 1);
  }
}

TEST_CASE("a listener answers for the device of its queue pair alone", "[cm][device]") {
  datagram_rig r;
  verbs::queue_pair never{r.pd,
                          r.cq,
                          r.cq,
                          {.send_wr_max = 4, .recv_wr_max = 4},
                          nullptr,
                          nullptr,
                          verbs::queue_pair_type::ud};  // A new one has no port.
  const datagram_listener from{r.channel, r.address, never};
  datagram_id id{r.channel};
  CHECK(r.failure_of(id.resolve(from.local_address())).code == errc::refused);
}

TEST_CASE("a listener that is gone frees its port", "[cm][device]") {
  datagram_rig r;
  verbs::queue_pair qp = r.make_datagrams(r.port.number);
  std::optional<datagram_listener> from{std::in_place, r.channel, r.address, qp};
  const socket_address address = from->local_address();
  CHECK_THROWS_AS((datagram_listener{r.channel, address, qp}), error);
  from.reset();
  datagram_id id{r.channel};
  CHECK(r.failure_of(id.resolve(address)).code ==
        std::error_code{ECONNREFUSED, std::system_category()});
  CHECK_NOTHROW(from.emplace(r.channel, address, qp));
}
