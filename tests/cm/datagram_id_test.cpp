#include "cm/datagram_id.hpp"

#include "cm/datagram_listener.hpp"
#include "rig.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <optional>
#include <string>

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;

namespace {

socket_address ip_address(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, text, &address.sin_addr) == 1);
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

/// An address that belongs to the device, as loopback ones do not for rdma_cm; nothing: there is
/// none.
std::optional<any_address> own_address(rig& r) {
  for (const verbs::gid_entry& row : r.ctx.gid_table(r.port.number)) {
    const std::string text = verbs::to_string(row.gid);
    if (!text.starts_with("::ffff:") || text.starts_with("::ffff:127.")) continue;
    return any_address{ip_address(text.c_str() + sizeof "::ffff:" - 1)};
  }
  return std::nullopt;
}

cm_event told(rdma_cm_event_type kind, int status) {
  rdma_cm_event original{};
  original.event = kind;
  original.status = status;
  return cm_event{original};
}

}  // namespace

TEST_CASE("a join by rdma_cm tells the group's MGID, its number and its Q_Key", "[cm][device]") {
  rig r;
  const auto own = own_address(r);
  if (!own) return;
  datagram_id id{r.channel};
  const datagram_peer group =
      r.executor.run(id.join(*own, any_address{ip_address("239.44.1.1")}, false));
  CHECK(verbs::to_string(group.path.grh.dgid) == "::ffff:239.44.1.1");
  CHECK(group.qpn == 0xffffff);
  CHECK(group.qkey == 0x01234567);
  CHECK(id.device_name() == r.ctx.name());
  CHECK_FALSE(id.why_ended().has_value());
}

TEST_CASE("a member that only sends joins, too", "[cm][device]") {
  rig r;
  const auto own = own_address(r);
  if (!own) return;
  datagram_id id{r.channel};
  CHECK(r.executor.run(id.join(*own, any_address{ip_address("239.44.1.2")}, true)).qpn == 0xffffff);
}

TEST_CASE("a group is named by its MGID", "[cm][device]") {
  if (!cordma::test::is_soft()) return;  // The kernel's does so on InfiniBand ports alone.
  rig r;
  ibv_gid mgid{};
  const auto own = own_address(r);
  if (!own) return;
  REQUIRE(::inet_pton(AF_INET6, "ff12:4001:ffff::7", mgid.raw) == 1);
  datagram_id id{r.channel};
  const datagram_peer group = r.executor.run(id.join(*own, any_address{mgid, 0xffff}, false));
  CHECK(verbs::same_gid(group.path.grh.dgid, mgid));
}

TEST_CASE("a group that nobody may join is refused with rdma_cm's reason", "[cm][device]") {
  rig r;
  const auto own = own_address(r);
  if (!own) return;
  datagram_id id{r.channel};
  const failure none = r.failure_of(id.join(*own, any_address{socket_address{}}, false));
  CHECK(none.call == std::string_view{"rdma_join_multicast"});
  CHECK(none.code.category() == std::system_category());
  datagram_id elsewhere{r.channel};
  const failure nowhere = r.failure_of(elsewhere.join(
      any_address{ip_address("203.0.113.9")}, any_address{ip_address("239.44.1.3")}, false));
  CHECK(nowhere.call == std::string_view{"rdma_bind_addr"});
}

TEST_CASE("a group that the subnet manager forgets is one no longer", "[cm][device]") {
  rig r;
  const auto own = own_address(r);
  if (!own) return;
  datagram_id id{r.channel};
  static_cast<void>(r.executor.run(id.join(*own, any_address{ip_address("239.44.1.4")}, false)));
  id.on_event(told(RDMA_CM_EVENT_ADDR_CHANGE, 0));
  CHECK_FALSE(id.why_ended().has_value());
  id.on_event(told(RDMA_CM_EVENT_MULTICAST_ERROR, -ENETRESET));
  REQUIRE(id.why_ended().has_value());
  CHECK(id.why_ended()->code == std::error_code{ENETRESET, std::system_category()});
}

TEST_CASE("the statuses of an answer mean that nobody is there, or that the program refuses",
          "[cm][device]") {
  rig r;
  for (const auto& [status, code] :
       {std::pair{1, std::error_code{ECONNREFUSED, std::system_category()}},
        std::pair{2, make_error_code(errc::refused)},
        std::pair{-ETIMEDOUT, std::error_code{ETIMEDOUT, std::system_category()}}}) {
    datagram_id id{r.channel};
    id.on_event(told(RDMA_CM_EVENT_UNREACHABLE, status));
    CHECK(id.why_ended()->code == code);
  }
}
