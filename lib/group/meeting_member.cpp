#include "meeting_member.hpp"

#include "base/failures.hpp"
#include "base/time_text.hpp"
#include "connection/handshake.hpp"
#include "meeting_host.hpp"

#include <algorithm>
#include <cerrno>

namespace cordma::detail {
namespace {

constexpr std::size_t named_max = 8;

/// The finalizer of MurmurHash3: each bit reaches all bits.
std::uint64_t mixed(std::uint64_t hash) noexcept {
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

}  // namespace

void check_rank(const char* call, unsigned rank, std::size_t size) {
  if (size >= 1 && size <= ranks_max && rank < size) return;
  throw_failure(
      errc::out_of_range, call,
      size >= 1 && size <= ranks_max
          ? detail_text("rank %u of a group of %zu: ranks are numbered from 0", rank, size)
          : detail_text("a group of %zu ranks: 1 to %u can be", size, ranks_max));
}

std::string fault_of(std::string_view text) {
  if (text.size() > endpoint_bytes_max)
    return "an endpoint of " + std::to_string(text.size()) + " bytes: the limit is " +
           std::to_string(endpoint_bytes_max);
  try {
    const endpoint parsed = endpoint::parse(text);
    const std::string quoted = '\'' + std::string{text} + '\'';
    if (parsed.kind == endpoint::bootstrap::unix_socket) return {};
    if (parsed.port == 0) return quoted + " has no port";
    if (is_wildcard(parsed.host)) return quoted + " is no address that others can connect to";
    return {};
  } catch (const error& e) {
    return std::string{e.failure().detail.view()};
  }
}

void check_own(const group_member& self) {
  const std::string fault = fault_of(self.endpoint);
  if (fault.empty()) return;
  throw_errno(EINVAL, "group::join",
              detail_text("%s: name this rank's address in group_options::listen", fault.c_str()));
}

struct failure missing_ranks(const char* call, std::span<const unsigned> missing, unsigned size,
                             time_span waited, std::string_view meeting_point) {
  std::string text = missing.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(missing.size(), named_max);
  for (std::size_t i = 0; i < named; ++i) text += (i > 0 ? ", " : "") + std::to_string(missing[i]);
  if (named < missing.size()) text += " and " + std::to_string(missing.size() - named) + " more";
  text += " of " + std::to_string(size) + " did not come";
  if (!meeting_point.empty()) text += " to " + std::string{meeting_point};
  text += " within " + to_text(waited) + " (group_options::join_timeout)";
  return {.code = errc::timed_out, .call = call, .detail = text};
}

group_name random_name() { return handshake::random_nonce(); }

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325 ^ mixed(seed);
  for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  return mixed(hash);
}

}  // namespace cordma::detail
