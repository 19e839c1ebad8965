#pragma once

#include "messages/message_channel.hpp"

#include <cstdint>

namespace cordma::detail {

class world;

/// The messages between this rank and another. The states are the channel's; `world_` is null once
/// the world has gone, or knows of the failure.
class rank_link final : public message_channel {
 public:
  rank_link(world& w, std::uint32_t of, const channel_resources& resources,
            const stream_options& options)
      : message_channel{resources, options, order::any},
        rank{of},
        write_bytes_max{resources.read_bytes_max},
        data{&resources.data},
        world_{&w} {}
  using message_channel::resources_of;
  void leave() noexcept { world_ = nullptr; }
  [[nodiscard]] cordma::agent& lender() noexcept { return *agent(); }

  /// Breaks the connection: the peer does what no rank does.
  void accuse(const failure& why) noexcept {
    is_accused_ = true;
    break_connection(why);
  }
  [[nodiscard]] bool is_accused() const noexcept { return is_accused_; }

  const std::uint32_t rank;           ///< the peer's, of the whole
  const std::size_t write_bytes_max;  ///< the longest WRITE
  queue_pair* const data;             ///< valid until the link has failed
  std::uint32_t told = 0;             ///< `dropped_frame`s that wait

 private:
  void on_message() noexcept override;
  void on_closed() noexcept override;

  world* world_;
  bool is_accused_ = false;
};

}  // namespace cordma::detail
