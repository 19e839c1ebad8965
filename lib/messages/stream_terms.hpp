#pragma once

#include "agent/agent.hpp"

#include <cstddef>
#include <cstdint>

namespace cordma {

/// The terms by which one side of a connection takes a stream of messages. Each side tells its
/// terms in the agents' note: docs/rpc-protocol.md has the words.
struct stream_terms {
  std::uint32_t messages = 0;         ///< messages that may be in flight to the side
  std::size_t buffer_bytes = 0;       ///< bytes of each of its buffers
  std::size_t message_bytes_max = 0;  ///< a message longer than a buffer is lent to the side
};

agent::note encode(const stream_terms& terms) noexcept;
/// \errors errc::bad_frame: the note is no terms of a stream; the detail names the word and its
///   value.
stream_terms decode_terms(const agent::note& note);

}  // namespace cordma
