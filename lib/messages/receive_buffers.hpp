#pragma once

#include "request/queue_pair.hpp"

#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/messages/message_content.hpp>
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
  std::uint32_t number = 0;              ///< number of its buffer
  large_receive* awaited = nullptr;      ///< a large message that is not here yet
  std::unique_ptr<large_message> large;  ///< a large message that is here
};
static_assert(sizeof(arrived_message) == 64);

/// The receive buffers of a channel: its own, or those of the pool that its queue pair takes
/// receives from. A channel occupies at most as many buffers of the pool as its credit. Each must
/// come back once, by `put_back` or `release`, even after the connection has ended.
class receive_buffers {
 public:
  /// \param frame_bytes  bytes of a buffer, of a pool's too. \errors what the allocator throws.
  receive_buffers(queue_pair& qp, mr_allocator& memory, std::uint32_t depth,
                  std::size_t frame_bytes);
  receive_buffers(const receive_buffers&) = delete;
  receive_buffers& operator=(const receive_buffers&) = delete;
  ~receive_buffers() = default;

  /// Posts all buffers, once.
  void post_all() noexcept;
  /// The queue pair is gone.
  void leave() noexcept { qp_ = nullptr; }

  /// Takes the message that has arrived in the buffer `number`. At most `credit` are taken at once.
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
  /// A part of the frame, as registered memory.
  [[nodiscard]] const_local_mr_slice slice(const arrived_message& a, std::size_t offset,
                                           std::size_t length) const;
  /// Lets a buffer receive again. Buffers are posted several at once, with one doorbell: gives how
  /// many were posted by this.
  [[nodiscard]] std::uint32_t put_back(arrived_message& a) noexcept {
    if (pool_ != nullptr) {
      release(a);
      return 1;
    }
    spare_[spare_count_++] = a.number;
    return spare_count_ == batch_ ? post_spare() : 0;
  }
  /// Gives a pool's buffer back; for a connection that has ended.
  void release(arrived_message& a) noexcept;
  /// True if buffers that were put back wait for others, to be posted with them.
  [[nodiscard]] bool has_spare() const noexcept { return spare_count_ > 0; }
  /// Posts those that wait. Gives how many.
  std::uint32_t post_spare() noexcept;

  /// Frames that may be in flight, or not put back.
  [[nodiscard]] std::uint32_t credit() const noexcept { return credit_; }
  /// Doubles the credit up to `most`, as far as the pool has buffers. False: it has none. For a
  /// pool only.
  [[nodiscard]] bool try_grow(std::uint32_t most) noexcept;
  /// Calls `receive_share::try_shrink_to`.
  [[nodiscard]] bool try_shrink_to(std::uint32_t credit) noexcept;
  /// The credit never becomes less than this.
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
  // One node for each frame of the highest credit so far; own buffers' in the order of numbers.
  std::vector<std::unique_ptr<arrived_message[]>> blocks_;
  arrived_message* nodes_ = nullptr;
  std::vector<arrived_message*> free_;
  std::uint32_t node_count_ = 0;
  // Numbers of own buffers that were put back and are not posted.
  std::array<std::uint32_t, batch_max> spare_{};
  std::uint32_t spare_count_ = 0;
  const std::uint32_t batch_;
};

}  // namespace cordma::detail
