#pragma once

#include "node/simulation.hpp"
#include "object/context.hpp"
#include "wire/ring.hpp"

#include <softverbs/simulation.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

struct softverbs_host final : softverbs::simulated_host {
  softverbs_host(const softverbs_world& w, std::span<const ibv_gid> gids, std::uint16_t slot,
                 std::uint32_t first_index)
      : softverbs::simulated_host{gids, slot, first_index}, world{w} {}
  ~softverbs_host() override {
    if (current() == this) enter(nullptr);
    // The other hosts find no link of one that is gone.
    for (const auto& [end, peer] : peers)
      if (peer.host != nullptr) peer.host->peers.erase({peer.far_end, peer.generation});
  }

  struct peer_end {
    softverbs_host* host = nullptr;
    softverbs::link* far_end = nullptr;
    std::uint32_t generation = 0;
  };

  /// Makes the next calls, and the limits that they see, those of a host. Returns the host before.
  static softverbs_host* enter(softverbs_host* next) noexcept;
  void pretend(const softverbs::device_limits& now) override;

  void on_work() noexcept override { world.has_work(world.context, this); }
  void on_sent(softverbs::link& by, const softverbs::frame_header& header) noexcept override;
  void on_peer_work(softverbs::link& of) noexcept override;
  void on_end(softverbs::link& one) noexcept override;
  void on_start(softverbs::link& one) noexcept override;
  bool connect(const softverbs::node_address& to, softverbs::link::setup& how) noexcept override;
  int on_call(const char* verb, ibv_context* ctx) noexcept override {
    return world.called == nullptr ? 0 : world.called(world.context, this, verb, ctx);
  }
  void on_written(const std::byte* at, std::uint64_t bytes, std::uint32_t rkey) noexcept override {
    if (world.written == nullptr) return;
    world.written(world.context, this, reinterpret_cast<std::uintptr_t>(at), bytes, rkey);
  }

  [[nodiscard]] bool writes_descriptors() const noexcept override {
    return world.keeps_tokens == 0;
  }
  [[nodiscard]] bool arms_for_later() const noexcept override { return world.arms_for_later != 0; }
  void on_readable(int fd) noexcept override {
    if (world.readable != nullptr) world.readable(world.context, this, fd);
  }

  void on_destroyed(const void* queue) noexcept override {
    if (world.destroyed != nullptr) world.destroyed(world.context, this, queue);
  }

  [[nodiscard]] std::size_t link_bytes() const noexcept {
    return world.link_bytes == 0 ? softverbs::ring_bytes : world.link_bytes;
  }
  [[nodiscard]] softverbs_end end_of(softverbs::link& one) noexcept {
    return {this, &one, one.generation()};
  }

  /// Tells of the ends that a host left which had the address of a new peer.
  void end_deserted(const softverbs::link& by) noexcept;

  /// Tells of the frames that the port has kept back.
  void release_frames() noexcept;

  const softverbs_world world;
  bool has_vanished = false;
  /// The other ends, by link and generation: also of links that were closed, whose frames may still
  /// be on their way.
  std::map<std::pair<softverbs::link*, std::uint32_t>, peer_end> peers;
  std::optional<peer_end> connecting;  ///< the peer's end of the link that is about to start
  std::vector<std::pair<softverbs_end, softverbs_frame>> kept_back;  ///< while the port is down
  std::deque<softverbs::device_limits> pretended;
  const softverbs::device_limits* limits_outside = nullptr;  ///< while another host is entered
};

namespace softverbs {

/// Makes the calls of a block those of a host.
class entered {
 public:
  explicit entered(softverbs_host* host) noexcept : before_{softverbs_host::enter(host)} {}
  entered(const entered&) = delete;
  ~entered() { softverbs_host::enter(before_); }

 private:
  softverbs_host* const before_;
};

}  // namespace softverbs
