#include <cordma/verbs/gid.hpp>

#include "failures.hpp"
#include "gid.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace cordma::verbs {
namespace {

/// Returns false for an empty GID in the kernel's sense: zero, or a subnet prefix without an
/// interface id.
bool is_usable(const gid_entry& entry) noexcept { return entry.gid.global.interface_id != 0; }

in6_addr address_of(const ibv_gid& gid) noexcept {
  in6_addr address;
  std::memcpy(&address, gid.raw, sizeof address);
  return address;
}

bool is_ipv4(const ibv_gid& gid) noexcept {
  const in6_addr address = address_of(gid);
  return IN6_IS_ADDR_V4MAPPED(&address);
}

bool is_link_local(const ibv_gid& gid) noexcept {
  const in6_addr address = address_of(gid);
  return IN6_IS_ADDR_LINKLOCAL(&address);
}

bool is_of(gid_request::ip family, const ibv_gid& gid) noexcept {
  return family != gid_request::ip::any && is_ipv4(gid) == (family == gid_request::ip::v4);
}

/// Each weight is above the sum of those below it, so that the order of requests is a strict one.
int score_of(const gid_entry& entry, const gid_request& request) noexcept {
  int score = 0;
  if (request.local_ip && same_gid(entry.gid, *request.local_ip)) score += 100;
  if (is_of(request.family, entry.gid)) score += 40;
  if (entry.type == gid_type::roce_v2) score += 10;
  if (is_ipv4(entry.gid)) return score + 3;
  return is_link_local(entry.gid) ? score + 1 : score + 2;
}

std::string indexes_of(std::span<const gid_entry> table) {
  std::string text;
  for (const gid_entry& entry : table) {
    if (!is_usable(entry)) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(entry.index);
  }
  return text.empty() ? "none" : text;
}

gid_entry explicit_choice(std::span<const gid_entry> table, const gid_request& request) {
  for (const gid_entry& entry : table) {
    if (entry.index != *request.index) continue;
    if (is_usable(entry)) return entry;
    detail::throw_failure(
        errc::no_gid, "choose_gid",
        detail::detail_text("gid_index %u holds %s, which is no address; usable: %s", entry.index,
                            to_string(entry.gid).c_str(), indexes_of(table).c_str()));
  }
  detail::throw_failure(errc::no_gid, "choose_gid",
                        detail::detail_text("gid_index %u is not in the port's table; usable: %s",
                                            *request.index, indexes_of(table).c_str()));
}

}  // namespace

gid_entry choose_gid(std::span<const gid_entry> table, const gid_request& request) {
  if (request.index) return explicit_choice(table, request);
  const gid_entry* best = nullptr;
  int best_score = -1;
  for (const gid_entry& entry : table) {
    if (!is_usable(entry)) continue;
    const int score = score_of(entry, request);
    if (score < best_score || (score == best_score && entry.index > best->index)) continue;
    best = &entry;
    best_score = score;
  }
  if (best == nullptr) {
    detail::throw_failure(errc::no_gid, "choose_gid",
                          detail::detail_text("%zu rows and no address in them; on RoCE give the "
                                              "network interface one (ip address add)",
                                              table.size()));
  }
  return *best;
}

std::optional<ibv_gid> gid_of(const sockaddr& address) noexcept {
  ibv_gid gid{};
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &in.sin_addr, 4);
    return gid;
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(gid.raw, &in.sin6_addr, 16);
    return gid;
  }
  return std::nullopt;
}

bool same_gid(const ibv_gid& a, const ibv_gid& b) noexcept {
  return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

std::string to_string(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

const char* to_string(gid_type type) noexcept {
  switch (type) {
    case gid_type::ib: return "IB";
    case gid_type::roce_v1: return "RoCE v1";
    case gid_type::roce_v2: return "RoCE v2";
  }
  return "unknown";
}

}  // namespace cordma::verbs
