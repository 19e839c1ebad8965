#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace cordma {

/// Follows the boundaries of the TLS records that a peer sends (RFC 8446, 5.1). A refusal in the
/// clear is thus told from a record, whenever it comes.
///
/// | state | byte | next state |
/// | --- | --- | --- |
/// | a header is due | a content type, 20 to 23 | in a header |
/// | a header is due | any other | the end: `clear_text` |
/// | in a header | not its last, and TLS's | in a header |
/// | in a header | a version that is not 3.x | the end: `not_tls` |
/// | in a header | its last | in a body; if the length is above the limit, the end: `too_long` |
/// | in a body | not its last | in a body |
/// | in a body | its last | a header is due |
class record_watch {
 public:
  static constexpr std::size_t body_bytes_max = (std::size_t{1} << 14) + 256;

  enum class finding : unsigned char { records, clear_text, not_tls, too_long };
  struct outcome {
    finding found;
    std::size_t bytes;  ///< Bytes that belong to records; all of them, if nothing else was found.
  };

  /// Follows the next bytes. After any finding but `records`, nothing more may come.
  outcome follow(std::span<const std::byte> bytes) noexcept;

 private:
  std::array<std::byte, 5> header_{};  // Content type, version, length.
  std::size_t header_bytes_ = 0;
  std::size_t body_left_ = 0;
};

}  // namespace cordma
