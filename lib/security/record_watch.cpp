#include "record_watch.hpp"

#include <algorithm>

namespace cordma {
namespace {

bool is_content_type(std::byte type) noexcept {
  return type >= std::byte{20} && type <= std::byte{23};
}

}  // namespace

record_watch::outcome record_watch::follow(std::span<const std::byte> bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size();) {
    if (body_left_ != 0) {
      const std::size_t n = std::min(body_left_, bytes.size() - at);
      body_left_ -= n;
      at += n;
      continue;
    }
    if (header_bytes_ == 0 && !is_content_type(bytes[at])) return {finding::clear_text, at};
    header_[header_bytes_++] = bytes[at++];
    if (header_bytes_ == 2 && header_[1] != std::byte{3}) return {finding::not_tls, at};
    if (header_bytes_ < header_.size()) continue;
    header_bytes_ = 0;
    body_left_ =
        std::to_integer<std::size_t>(header_[3]) << 8 | std::to_integer<std::size_t>(header_[4]);
    if (body_left_ > body_bytes_max) return {finding::too_long, at};
  }
  return {finding::records, bytes.size()};
}

}  // namespace cordma
