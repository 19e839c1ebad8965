#include "chosen_memory.hpp"

#include "base/failures.hpp"
#include "guarded_copy.hpp"

#include <cstring>

namespace cordma::detail {

local_mr_slice part_to_fill(const local_mr_slice& chosen, std::size_t length, const ibv_pd* pd,
                            const char* call) {
  if (chosen.size_bytes() < length) {
    throw_failure(errc::wrong_length, call,
                  detail_text("the function gave %zu bytes for a message of %zu: give as many as "
                              "it is told of; the message can still be received",
                              chosen.size_bytes(), length));
  }
  const local_mr_slice part = chosen.first(length);
  if (!part.is_held()) return part;
  memory_block& block = *part.block();
  if (!block.try_acquire(part.generation())) {
    throw_failure(errc::stale_slice, call,
                  "the function gave memory that was freed; the message can still be received");
  }
  const bool is_of_domain = block.pd() == pd;
  const bool is_writable = verbs::allows(block.access(), verbs::access::local_write);
  block.release();
  if (!is_of_domain) {
    throw_failure(errc::wrong_protection_domain, call,
                  "the function gave memory of another domain: allocate it from the memory() of "
                  "the connection or runtime; the message can still be received");
  }
  if (!is_writable) {
    throw_failure(errc::access_denied, call,
                  "the function gave memory without local_write: register it with that; the "
                  "message can still be received");
  }
  return part;
}

void copy_into(const local_mr_slice& part, std::span<const std::byte> message) {
  if (message.empty()) return;
  if (part.is_held() && part.block()->is_device_only())
    guarded_copy(part.bytes().data(), message);
  else
    std::memcpy(part.bytes().data(), message.data(), message.size());
}

}  // namespace cordma::detail
