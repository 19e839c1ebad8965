#include "checks.hpp"

#include <cordma/base/error.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

namespace doctor {
namespace {

using cordma::verbs::choose_gid;
using cordma::verbs::gid_entry;
using cordma::verbs::gid_type;

bool is_link_local(const ibv_gid& gid) noexcept {
  in6_addr address;
  std::memcpy(&address, gid.raw, sizeof address);
  return IN6_IS_ADDR_LINKLOCAL(&address);
}

std::string row_text(const gid_entry& row) {
  return "row " + std::to_string(row.index) + ", " + cordma::verbs::to_string(row.gid) + ", " +
         cordma::verbs::to_string(row.type);
}

std::string table_text(const port_facts& port) {
  std::string text;
  for (const gid_entry& row : port.gids) text += (text.empty() ? "" : "; ") + row_text(row);
  return text.empty() ? "the table is empty" : text;
}

std::string reason(const device_facts& d) {
  if (d.options.gid_index) return "chosen because gid_index names it";
  return "chosen because RoCE v2 goes before v1, then an IPv4 address before IPv6, then the lower "
         "row; a connection prefers the row with its own address";
}

/// Finds what is wrong with the row that is used.
void check_row(const subject& s, const gid_entry& row, report& r) {
  const std::string netdev = s.netdev();
  const std::string value = used_gid_text(s) + ": " + reason(*s.device);
  const std::string state = "/sys/class/net/" + netdev + "/operstate";
  if (!netdev.empty() && s.files.text(state) == "down") {
    r.error("gid", value + "; " + netdev + " is down",
            "the interface behind the GID carries no packets",
            "sudo ip link set " + netdev + " up");
  } else if (row.type == gid_type::roce_v1) {
    r.warning("gid", value,
              "RoCE v1 does not pass routers, and a peer with a RoCE v2 GID refuses to connect",
              "name a RoCE v2 row: CORDMA_GID_INDEX=ROW, of " + table_text(*s.device->port()));
  } else if (row.type == gid_type::roce_v2 && is_link_local(row.gid)) {
    r.warning("gid", value,
              "a link-local address reaches only the same link, and is no address of TCP's",
              "sudo ip address add ADDRESS/LENGTH dev " + (netdev.empty() ? "NETDEV" : netdev));
  } else {
    r.ok("gid", value, "peers send to this address, and it decides on the network");
  }
}

}  // namespace

std::string used_gid_text(const subject& s) {
  const auto row = s.device ? s.device->gid() : std::nullopt;
  if (!row) return {};
  const std::string netdev = s.netdev();
  return row_text(*row) + (netdev.empty() ? "" : ", of " + netdev);
}

void check_gid(const subject& s, report& r) {
  if (!s.device || s.device->port() == nullptr) return;
  const port_facts& port = *s.device->port();
  try {
    r.ok("gid.table", table_text(port), "rows that CORDMA_GID_INDEX may name");
    check_row(s, choose_gid(port.gids, {.index = s.device->options.gid_index}), r);
  } catch (const cordma::error& e) {
    const bool is_named = s.device->options.gid_index.has_value();
    r.error("gid", e.failure().to_string() + "; " + table_text(port),
            "without a GID no connection is made over Ethernet",
            is_named ? "name a row of the table (CORDMA_GID_INDEX, --gid-index), or none"
                     : "sudo ip address add ADDRESS/LENGTH dev NETDEV");
  }
}

}  // namespace doctor
