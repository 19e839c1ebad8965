#pragma once

#include "meeting.hpp"

#include <cordma/base/error.hpp>
#include <cordma/base/time.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cordma::detail {

/// Limit of the ranks of a group.
inline constexpr unsigned ranks_max = 1 << 20;
/// Limit of `group_member::endpoint`: a host name has 253 bytes (RFC 1035).
inline constexpr std::size_t endpoint_bytes_max = 300;

/// \errors errc::out_of_range: `rank` is not below `size`, or `size` is not from 1 to `ranks_max`.
void check_rank(const char* call, unsigned rank, std::size_t size);

/// Returns why no rank could connect to an endpoint; empty: nothing is wrong with it.
std::string fault_of(std::string_view endpoint);
/// \errors EINVAL: nobody could connect to this rank; names the endpoint and the option.
void check_own(const group_member& self);

/// Names the ranks that did not come, of a group of `size`: at most 8 of them, and their count.
struct failure missing_ranks(const char* call, std::span<const unsigned> missing, unsigned size,
                             time_span waited, std::string_view meeting_point = {});

/// Returns random bytes. \errors as `random_bytes`.
group_name random_name();

/// FNV-1a (Fowler, Noll, Vo), with its bits mixed. Different seeds give independent hashes.
std::uint64_t hash_of(std::string_view text, std::uint64_t seed = 0) noexcept;

}  // namespace cordma::detail
