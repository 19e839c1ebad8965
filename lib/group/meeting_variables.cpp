#include "meeting_variables.hpp"

#include "base/environment_variable.hpp"
#include "base/failures.hpp"
#include "meeting_host.hpp"
#include "meeting_member.hpp"

#include <cordma/io/socket_address.hpp>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

namespace cordma::detail {
namespace {

constexpr const char* address_variable = "MASTER_ADDR";
constexpr const char* port_variable = "MASTER_PORT";
constexpr const char* meeting_variable = "CORDMA_MEETING";

bool is_set(const char* variable) noexcept { return variable_text(variable) != nullptr; }

[[noreturn]] void throw_missing(const char* variable) {
  throw_errno(EINVAL, variable,
              "is not set: torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

unsigned number_of(const char* variable, std::uint64_t low, std::uint64_t high) {
  const auto value = variable_number(variable, low, high);
  if (!value) throw_missing(variable);
  return unsigned(*value);
}

/// Returns what CORDMA_MEETING says.
std::optional<endpoint> named_endpoint() {
  const char* const text = variable_text(meeting_variable);
  if (text == nullptr) return std::nullopt;
  try {
    return endpoint::parse(text);
  } catch (const error& e) {
    throw_wrong_variable(meeting_variable, text,
                         "is no host:port: " + std::string{e.failure().detail.view()});
  }
}

endpoint master_endpoint() {
  const char* const host = variable_text(address_variable);
  if (host == nullptr) throw_missing(address_variable);
  if (*host == '\0') throw_wrong_variable(address_variable, host, "is no host");
  const char* const store = variable_text("TORCHELASTIC_USE_AGENT_STORE");
  const bool is_taken = store != nullptr && std::string_view{store} == "True";
  const unsigned port = number_of(port_variable, 1, is_taken ? UINT16_MAX - 1 : UINT16_MAX);
  return {host, std::uint16_t(port + (is_taken ? 1 : 0))};
}

/// Returns true for a host of this name that only this host reaches: Debian's /etc/hosts gives each
/// host's own name such an address.
bool resolves_to_loopback(const std::string& host) {
  try {
    const auto all = socket_address::resolve(host, 0);
    return std::ranges::all_of(all, [](const auto& one) { return one.is_loopback(); });
  } catch (const error&) {
    return false;  // To listen or connect there fails as well, with the reason.
  }
}

}  // namespace

launchers launchers_of_environment() noexcept {
  return {.pmix = is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK"),
          .torchrun = is_set("RANK") && is_set("WORLD_SIZE"),
          .torchrun_is_inner = is_set("TORCHELASTIC_RUN_ID")};
}

meeting_point point_of_environment() {
  meeting_point where;
  where.size = number_of("WORLD_SIZE", 1, ranks_max);
  where.rank = number_of("RANK", 0, where.size - 1);
  const auto local_size = variable_number("LOCAL_WORLD_SIZE", 1, where.size);
  const std::optional<endpoint> named = named_endpoint();
  if (!named && where.size == 1) return where;
  where.address = named ? *named : master_endpoint();
  where.is_one_host = local_size ? *local_size == where.size : is_this_host(where.address);
  where.advice = "; CORDMA_MEETING=host:port names another";
  if (!named && !where.is_one_host && where.rank == 0 && resolves_to_loopback(where.address.host))
    where.address.host = "0.0.0.0";
  return where;
}

}  // namespace cordma::detail
