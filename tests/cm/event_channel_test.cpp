#include "cm/event_channel.hpp"

#include "rig.hpp"
#include "support/leaks.hpp"

#include <list>

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;

namespace {

/// Counts the events of identifiers that resolve an address.
struct counted final : event_target {
  void on_event(const cm_event& event) noexcept override {
    CHECK(event.kind == RDMA_CM_EVENT_ADDR_RESOLVED);
    ++count;
    if (destroyed_at_event != nullptr) destroyed_at_event->reset();
  }
  unsigned count = 0;
  owned_id* destroyed_at_event = nullptr;
};

void resolve(rdma_cm_id& id, const socket_address& to) {
  REQUIRE(rdma_resolve_addr(&id, nullptr, const_cast<sockaddr*>(to.data()), 2000) == 0);
}

}  // namespace

TEST_CASE("events that come at once, more than are read at once, all come to their targets",
          "[cm][device]") {
  rig r;
  constexpr unsigned many = event_channel::events_at_once_max * 2 + 1;
  counted target;
  std::list<owned_id> ids;
  socket_address to = r.address;
  to.set_port(1);
  for (unsigned i = 0; i < many; ++i) {
    ids.push_back(r.channel.create_id(target));
    resolve(*ids.back(), to);
  }
  r.run_until([&] { return target.count == many; });
  CHECK(target.count == many);
}

TEST_CASE("an identifier may be destroyed by its own event", "[cm][device]") {
  rig r;
  counted target;
  owned_id id = r.channel.create_id(target);
  target.destroyed_at_event = &id;
  socket_address to = r.address;
  to.set_port(1);
  resolve(*id, to);
  r.run_until([&] { return target.count == 1; });
  CHECK(id == nullptr);
}

TEST_CASE("identifiers whose events nobody read, and their channel, leave nothing",
          "[cm][device]") {
  counted target;
  rig r;
  const std::string before = cordma::test::holdings();
  {
    event_channel other{r.executor};
    const owned_id id = other.create_id(target);
    socket_address to = r.address;
    to.set_port(1);
    resolve(*id, to);
  }
  CHECK(cordma::test::holdings() == before);
  CHECK(target.count == 0);
}
