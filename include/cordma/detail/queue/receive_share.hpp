#pragma once

#include <cordma/detail/base/intrusive_list.hpp>

#include <cstdint>

namespace cordma {

class queue_pair_base;
class shared_receives;

namespace detail {
/// Who has buffers that completed: a queue pair's share, or those whose queue pair is gone.
struct receive_holder {
  std::uint32_t held = 0;
  queue_pair_base* qp = nullptr;
};
}  // namespace detail

/// What one queue pair may use of shared receives: of messages that are under way to it, and of
/// those that are not given back, there are never more together than its credit, if its peer keeps
/// to it. Credits are handed out only as far as there are buffers, so that none is ever missing:
/// a receiver-not-ready answer cannot happen. \thread the executor's.
class receive_share : private detail::receive_holder, public list_hook<receive_share> {
 public:
  /// \errors  errc::limit_exceeded: less than `share_min` buffers are left.
  explicit receive_share(shared_receives& pool);
  receive_share(const receive_share&) = delete;
  receive_share& operator=(const receive_share&) = delete;
  /// What is held stays so until it is given back, and the rest is free for others.
  ~receive_share();

  /// Messages that the peer may be allowed.
  [[nodiscard]] std::uint32_t credit() const noexcept { return credit_; }
  /// Of those, such as came and are not given back.
  [[nodiscard]] std::uint32_t held() const noexcept { return receive_holder::held; }
  /// More credit, to be told to the peer; all of it or, false, none.
  [[nodiscard]] bool try_grow(std::uint32_t by) noexcept;
  /// As much, up to `most`, as leaves an eighth of the pool free for queue pairs that are yet to
  /// come; less than both `most` and `share_min` is not worth it. 0: there is none. Then the share
  /// that was not used for longest is asked for what it does not use, and the queue pair is told
  /// when to try again.
  [[nodiscard]] std::uint32_t want(std::uint32_t most) noexcept;
  /// The peer has confirmed that it keeps to so much, from `share_min` to what it has: asked for
  /// more than it can spare, it says how little it needs. False: it does not keep to that, and more
  /// is held; the credit stays.
  [[nodiscard]] bool try_shrink_to(std::uint32_t credit) noexcept;
  [[nodiscard]] shared_receives& pool() const noexcept { return pool_; }

  // For the queue pair.
  void belongs_to(queue_pair_base& of) noexcept;
  /// A message came in that buffer. False: there is no credit for it.
  [[nodiscard]] bool take(std::uint32_t number) noexcept;
  /// All the receives that the device took for it have completed, or are in a completion queue that
  /// will be reaped.
  void all_is_known() noexcept { is_all_known_ = true; }

 private:
  friend class shared_receives;
  /// Wanted more in vain, and is to be told.
  struct wish : list_hook<wish> {
    explicit wish(receive_share& s) noexcept : of{s} {}
    receive_share& of;
  };

  shared_receives& pool_;
  std::uint32_t credit_;
  wish wish_{*this};
  bool is_asked_ = false;        ///< to shrink, and has not
  std::uint64_t last_used_ = 0;  ///< as the pool counts
  bool is_all_known_ = false;
};

}  // namespace cordma
