#include "cm_link.hpp"

#include <utility>

namespace cordma::detail {

cm_link::cm_link(connection_state& state, byte_channel* bytes, std::optional<cm::id> id)
    : byte_channel{state.executor}, state_{state}, bytes_{bytes}, id_{std::move(id)} {
  if (bytes_ != nullptr) bytes_->listen(this);
  if (!id_) return;
  id_->on_notice([this](cm::notice what) {
    if (what != cm::notice::ended) return;
    state_.qp.driver().reap_all();                 // The peer's last messages have arrived.
    if (state_.agent) state_.agent->proved.set();  // No proof will come any more.
    tell_change();
  });
}

cm_link::~cm_link() {
  if (bytes_ != nullptr) bytes_->listen(nullptr);
}

std::optional<std::size_t> cm_link::try_read(std::span<std::byte> into) {
  if (bytes_ != nullptr) {
    if (const auto n = bytes_->try_read(into)) return n;
  }
  if (id_ && id_->why_ended()) return 0;
  return std::nullopt;
}

std::size_t cm_link::try_write(std::span<const std::byte> from) {
  return bytes_ != nullptr ? bytes_->try_write(from) : from.size();
}

void cm_link::end_writing() noexcept {
  if (bytes_ != nullptr) bytes_->end_writing();
  if (bytes_ == nullptr && id_) id_->disconnect();
}

void cm_link::hang_up() noexcept {
  end_writing();
  if (id_) id_->disconnect();
}

}  // namespace cordma::detail
