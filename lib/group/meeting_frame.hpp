#pragma once

#include "meeting.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The messages between rank 0, where the others meet, and another rank; numbers are little-endian.
///
/// | message | bytes |
/// | --- | --- |
/// | arrival, to rank 0 | `mark`, 4: rank, 4: size, a member |
/// | roster, from rank 0, in parts | `mark`, kind 1, name, 4: first rank, 4: count, so many members
/// | | refusal, from rank 0 | `mark`, kind 2, text to the end |
///
/// A mark has 8 bytes, a kind 1 and a name 16. A member has 8 bytes for the host, 2 for the length
/// of the endpoint, and the endpoint. A card, by which PMIx tells all ranks of one, is a mark, a
/// name and a member.
namespace cordma::detail::meeting_frame {

/// Limit of a message to rank 0, and of a card.
inline constexpr std::size_t arrival_bytes_max = 512;
/// Limit of a message from rank 0.
inline constexpr std::size_t part_bytes_max = 8192;
inline constexpr std::size_t refusal_text_max = 200;

struct arrival {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  group_member member{};
};

struct card {
  group_name name{};
  group_member member{};
};

using bytes = std::vector<std::byte>;

bytes encode(const arrival& from);
bytes encode(const card& of);
bytes encode_refusal(std::string_view why);
/// Puts as many members as fit, from `first` on, into a message, and moves `first` behind them.
bytes encode_part(const roster& all, std::size_t& first);

// The decoders throw errc::bad_message for what no rank sends, and name it.
arrival decode_arrival(std::span<const std::byte> message);
card decode_card(std::span<const std::byte> message);
/// Appends the members of a message to `all`, which gets the name with the first. Ranks from
/// `members.size()` on must come next, and `size` at most. \errors errc::refused: a refusal, with
///   its text.
void decode_part(std::span<const std::byte> message, roster& all, unsigned size);

}  // namespace cordma::detail::meeting_frame
