#pragma once

#include "request/queue_pair.hpp"

#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/messages/held_message.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/memory/mr_allocator.hpp>

#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace cordma::detail {

struct large_receive;

/// A message in memory of its own.
struct large_message : message_content, frame_cache::recycled {
  explicit large_message(local_mr&& mr) noexcept
      : message_content{.bytes = mr.bytes(), .is_large = true}, memory{std::move(mr)} {}
  local_mr memory;
};

/// A receive buffer whose message has arrived or, when it is large, is announced. A cache line.
struct alignas(64) arrived_message : list_hook<arrived_message>, message_content {
  std::uint32_t number = 0;              ///< of its buffer
  large_receive* awaited = nullptr;      ///< a large message that is not here yet
  std::unique_ptr<large_message> large;  ///< a large message that is here
};
static_assert(sizeof(arrived_message) == 64);

/// Where a channel's frames arrive: in buffers of its own, or in those of the pool that its queue
/// pair takes receives from. Of the pool's it has as many at once as its credit, each of which is
/// to come back, whatever becomes of the connection: by `put_back` or `release`, once.
class receive_buffers {
 public:
  /// Room for a frame of `frame_bytes`, of a pool's too. \errors what the allocator throws.
  receive_buffers(queue_pair& qp, mr_allocator& memory, std::uint32_t depth,
                  std::size_t frame_bytes);
  receive_buffers(const receive_buffers&) = delete;
  receive_buffers& operator=(const receive_buffers&) = delete;
  ~receive_buffers() = default;

  /// The first time.
  void post_all() noexcept;
  /// The queue pair is gone.
  void leave() noexcept { qp_ = nullptr; }

  /// What has arrived in the buffer of that number: one of `credit` at most.
  [[nodiscard]] arrived_message& take(std::uint32_t number) noexcept {
    if (pool_ == nullptr) [[likely]]
      return nodes_[number];
    CORDMA_ASSERT(!free_.empty(), "a message beyond its credit");
    arrived_message& a = *free_.back();
    free_.pop_back();
    a.number = number;
    return a;
  }
  [[nodiscard]] std::span<const std::byte> bytes(const arrived_message& a,
                                                 std::size_t length) const noexcept {
    return {base_ + a.number * stride_, length};
  }
  /// The same as registered memory.
  [[nodiscard]] const_local_mr_slice slice(const arrived_message& a, std::size_t offset,
                                           std::size_t length) const;
  /// For the next frame. Gives for how many there is room by that: several are put back at once,
  /// with one doorbell, and few of the credit wait for the others.
  [[nodiscard]] std::uint32_t put_back(arrived_message& a) noexcept {
    if (pool_ != nullptr) {
      release(a);
      return 1;
    }
    spare_[spare_count_++] = a.number;
    return spare_count_ == batch_ ? post_spare() : 0;
  }
  /// The same once the connection has ended: only a pool has a use for it.
  void release(arrived_message& a) noexcept;
  /// Of those that were put back, whether some wait for others, …
  [[nodiscard]] bool has_spare() const noexcept { return spare_count_ > 0; }
  /// … which they do no longer. Gives how many there were.
  std::uint32_t post_spare() noexcept;

  /// Frames that may be under way, or not put back.
  [[nodiscard]] std::uint32_t credit() const noexcept { return credit_; }
  /// Only a pool's changes. Doubles it as far as `most`, or less, as there is enough for all.
  [[nodiscard]] bool try_grow(std::uint32_t most) noexcept;
  /// As `receive_share`.
  [[nodiscard]] bool try_shrink_to(std::uint32_t credit) noexcept;
  /// What it is never less than.
  [[nodiscard]] std::uint32_t credit_least() const noexcept {
    return pool_ != nullptr ? pool_->share_min() : credit_;
  }

 private:
  static constexpr std::uint32_t batch_max = 16;
  void add_nodes(std::uint32_t count);

  queue_pair* qp_;
  shared_receives* const pool_;  ///< Null: buffers of its own.
  std::uint32_t credit_;
  const std::size_t frame_bytes_;
  local_mr own_;
  const std::byte* base_;
  std::size_t stride_;
  // One for each frame of the highest credit so far: of the channel's own buffers in their order.
  std::vector<std::unique_ptr<arrived_message[]>> blocks_;
  arrived_message* nodes_ = nullptr;
  std::vector<arrived_message*> free_;
  std::uint32_t node_count_ = 0;
  // Of its own, by their numbers.
  std::array<std::uint32_t, batch_max> spare_{};
  std::uint32_t spare_count_ = 0;
  const std::uint32_t batch_;
};

}  // namespace cordma::detail
