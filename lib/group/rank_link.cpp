#include "rank_link.hpp"

#include "base/caught.hpp"
#include "group_frame.hpp"
#include "world.hpp"

namespace cordma::detail {

void rank_link::on_message() noexcept {
  const std::optional<std::uint32_t> invalidated = inbox().front().invalidated();
  // The buffer receives again when the frame is handled.
  const stream_message message = deliver();
  if (world_ == nullptr || failed()) [[unlikely]]
    return;
  try {
    const group_protocol::frame f = group_protocol::decode(message.bytes());
    world_->on_frame(rank, f, message.bytes().subspan(group_protocol::size_of(f.kind)),
                     invalidated);
  } catch (...) {
    accuse(caught("group"));
  }
}

void rank_link::on_closed() noexcept {
  if (world_ != nullptr) std::exchange(world_, nullptr)->on_link_lost(rank, *failed());
}

}  // namespace cordma::detail
