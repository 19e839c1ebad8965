#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/group/reducer_ref.hpp>
#include <cordma/detail/group/registered_copy.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace cordma {

class runtime;

namespace detail {
class group_context;
}  // namespace detail

/// Operations that a group knows, on integers of 8 to 64 bits, float and double. Integers wrap
/// around. Bit operations are for integers.
enum class reduction : std::uint8_t { sum, product, min, max, bit_and, bit_or, bit_xor };

/// Ranks that act as one (docs/collectives.md). All ranks of a group call its operations in the
/// same order, with the same lengths, root, type and reduction. If calls differ, they end on every
/// rank with errc::ranks_disagree, which names both.
///
/// Several operations may be under way at once, each awaited by a task of its own. They are told
/// apart by the order in which they begin: an operation begins when its task is awaited.
///
/// Slices are of `runtime::memory()`. The memory belongs to the operation until that has ended,
/// however it ends: no peer touches it afterwards. Blocks lie in the order of ranks, without gaps.
/// `in` and `out` are the same memory, where an operation says so, or do not overlap.
///
/// A rank that dies, or is stopped in the middle of an operation, ends what is under way on every
/// rank. The error is errc::rank_failed, and the failure's object is the rank. A rank that left
/// ends what waits for it. The group then serves for `failed_ranks` and `shrink` only.
///
/// Move-only. Dropping a group leaves it, in the background; its operations have ended.
/// \thread the executor's. \cost no allocation once warm.
class CORDMA_EXPORT group {
 public:
  /// A message that `receive` has received.
  struct message {
    unsigned from = 0;  ///< Rank of the sender.
    std::uint32_t tag = 0;
    std::size_t size_bytes = 0;
  };
  /// The work of this rank for all groups of one `join`.
  struct statistics {
    std::uint64_t operations = 0;  ///< Collective operations that have begun.
    std::uint64_t sent = 0;        ///< Messages that went, of operations and by tag.
    std::uint64_t sent_bytes = 0;
    std::uint64_t written = 0;       ///< Messages that were written to their place by RDMA.
    std::uint64_t early = 0;         ///< Messages that came before this rank was ready for them.
    std::uint64_t credit_waits = 0;  ///< Messages that waited until the receiver went on.
    std::uint32_t connections = 0;   ///< Connections to other ranks, now.
    std::size_t receive_bytes = 0;   ///< Registered memory of the receive buffers.
  };

  group() noexcept = default;
  /// Meets the other ranks. The runtime outlives the group, and all groups made of it.
  /// \errors  what is wrong with the variables, the list or the options; errc::timed_out: ranks
  ///   that did not come within `join_timeout`; errors of `runtime::listen` and `connect`.
  static task<group> join(runtime& rt, meeting how = meeting::by_launcher(),
                          const group_options& options = {});
  group(group&&) noexcept = default;
  group& operator=(group&&) noexcept = default;
  ~group();

  [[nodiscard]] unsigned rank() const noexcept;
  [[nodiscard]] unsigned size() const noexcept;
  /// Returns the ranks on this rank's host, in order, this one included.
  [[nodiscard]] std::vector<unsigned> local_peers() const;
  /// Returns the ranks that this rank knows to be dead or gone.
  [[nodiscard]] std::vector<unsigned> failed_ranks() const;
  /// Returns why the group serves no more; nothing while it does.
  [[nodiscard]] std::optional<failure> why_failed() const;
  /// Returns the table of algorithms, for people.
  [[nodiscard]] std::string algorithms() const;
  [[nodiscard]] statistics counters() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return bool(context_); }

  /// Waits until all ranks have called it.
  task<> barrier();
  /// Copies `root`'s bytes to all.
  task<> broadcast(const local_mr_slice& data, unsigned root);
  /// Gives each rank its block of `root`'s `in`, which other ranks leave empty. In place: `root`'s
  /// `out` is its block of `in`.
  task<> scatter(const const_local_mr_slice& in, const local_mr_slice& out, unsigned root);
  /// Scatters blocks of `sizes` bytes, which `root` alone gives.
  task<> scatter_uneven(const const_local_mr_slice& in, std::span<const std::size_t> sizes,
                        const local_mr_slice& out, unsigned root);
  /// Collects a block of each rank in `root`'s `out`, which other ranks leave empty. In place:
  /// `root`'s `in` is its block of `out`.
  task<> gather(const const_local_mr_slice& in, const local_mr_slice& out, unsigned root);
  task<> gather_uneven(const const_local_mr_slice& in, const local_mr_slice& out,
                       std::span<const std::size_t> sizes, unsigned root);
  /// Collects a block of each rank on all ranks. In place: `in` is this rank's block of `out`.
  task<> all_gather(const const_local_mr_slice& in, const local_mr_slice& out);
  /// Collects blocks of `sizes` bytes, which all ranks give.
  task<> all_gather_uneven(const const_local_mr_slice& in, const local_mr_slice& out,
                           std::span<const std::size_t> sizes);
  /// Gives the rank's block number r to rank r. In place: `in` is `out`.
  task<> all_to_all(const const_local_mr_slice& in, const local_mr_slice& out);
  /// Gives blocks of `sent` bytes, and takes such of `received`: rank a's `sent[b]` is rank b's
  /// `received[a]`.
  task<> all_to_all_uneven(const const_local_mr_slice& in, std::span<const std::size_t> sent,
                           const local_mr_slice& out, std::span<const std::size_t> received);

  // Reductions combine the ranks' elements of one index. A `reduction` does so for integers, float
  // and double. A function of two elements must be associative and commutative, and throw nothing.
  // Floating point gives the same bits on all ranks. In place: `in` is `out`.

  /// Combines into `root`'s `out`, which other ranks leave empty.
  template <class T, detail::combines<T> F>
  task<> reduce(const_local_mr_slice in, local_mr_slice out, F how, unsigned root) {
    co_await reduce_any(in, out, detail::reducer_ref::of<T>(how), root);
  }
  /// Combines into `out` on all ranks.
  template <class T, detail::combines<T> F>
  task<> all_reduce(const_local_mr_slice in, local_mr_slice out, F how) {
    co_await all_reduce_any(in, out, detail::reducer_ref::of<T>(how));
  }
  /// Combines, and gives each rank its block of the result. In place: `out` is its block of `in`,
  /// whose other blocks may change.
  template <class T, detail::combines<T> F>
  task<> reduce_scatter(const_local_mr_slice in, local_mr_slice out, F how) {
    co_await reduce_scatter_any(in, {}, out, detail::reducer_ref::of<T>(how));
  }
  /// Combines blocks of `sizes` bytes, which all ranks give.
  template <class T, detail::combines<T> F>
  task<> reduce_scatter_uneven(const_local_mr_slice in, std::span<const std::size_t> sizes,
                               local_mr_slice out, F how) {
    co_await reduce_scatter_any(in, sizes, out, detail::reducer_ref::of<T>(how));
  }
  /// Combines the elements of the ranks up to this one.
  template <class T, detail::combines<T> F>
  task<> scan(const_local_mr_slice in, local_mr_slice out, F how) {
    co_await scan_any(in, out, detail::reducer_ref::of<T>(how));
  }

  // The next operations take any memory of the program's, and copy it to registered memory and
  // back: slices cost less. Memory of an operation that fails has undefined contents.

  template <class T>
  task<> broadcast(std::span<T> data, unsigned root) {
    detail::registered_copy copy{*this, std::as_writable_bytes(data)};
    co_await broadcast(copy.slice(), root);
    copy.copy_back();
  }
  template <class T>
  task<> all_gather(std::span<const T> in, std::span<T> out) {
    const detail::registered_copy from{*this, std::as_bytes(in)};
    detail::registered_copy to{*this, std::as_writable_bytes(out)};
    co_await all_gather(from.slice(), to.slice());
    to.copy_back();
  }
  template <class T>
  task<> all_to_all(std::span<const T> in, std::span<T> out) {
    const detail::registered_copy from{*this, std::as_bytes(in)};
    detail::registered_copy to{*this, std::as_writable_bytes(out)};
    co_await all_to_all(from.slice(), to.slice());
    to.copy_back();
  }
  /// Combines in place: on `root`.
  template <class T, detail::combines<T> F>
  task<> reduce(std::span<T> values, F how, unsigned root) {
    detail::registered_copy copy{*this, std::as_writable_bytes(values)};
    co_await reduce<T>(copy.slice(), rank() == root ? copy.slice() : local_mr_slice{}, how, root);
    if (rank() == root) copy.copy_back();
  }
  /// Combines in place: on all ranks.
  template <class T, detail::combines<T> F>
  task<> all_reduce(std::span<T> values, F how) {
    detail::registered_copy copy{*this, std::as_writable_bytes(values)};
    co_await all_reduce<T>(copy.slice(), copy.slice(), how);
    copy.copy_back();
  }
  /// Combines in place: the elements of the ranks up to this one.
  template <class T, detail::combines<T> F>
  task<> scan(std::span<T> values, F how) {
    detail::registered_copy copy{*this, std::as_writable_bytes(values)};
    co_await scan<T>(copy.slice(), copy.slice(), how);
    copy.copy_back();
  }

  // Messages between two ranks, matched by sender and tag, in the order in which they were sent.

  /// Sends to a rank, which may be this one. Ends when the bytes may change. A message of up to
  /// `buffer_bytes` is mostly sent at once; a longer one waits for its receive.
  /// \errors  errc::out_of_range: no such rank.
  task<> send(const const_local_mr_slice& bytes, unsigned to, std::uint32_t tag = 0);
  /// Receives the first message of that rank, or of any, with that tag, or any. A wait that is
  /// stopped loses no message.
  /// \errors  errc::wrong_length: the message is longer than `into`; both are named, and the
  ///   message is for the next `receive`. errc::rank_failed: that rank has left.
  task<message> receive(const local_mr_slice& into, std::optional<unsigned> from = {},
                        std::optional<std::uint32_t> tag = {});

  /// Makes a group of the ranks that give the same colour, in the order of `key`, then of rank.
  /// Without a colour, the rank gets an empty group. All ranks call it.
  task<group> split(std::optional<std::uint32_t> colour, std::uint32_t key = 0);
  /// Makes a group of the same ranks, whose operations are apart from this one's.
  task<group> duplicate();
  /// Makes a group of the ranks that are left, in their order. All of them call it, once this group
  /// has failed. A rank that dies meanwhile is left out, or found dead by the new group.
  /// \errors  errc::rank_failed: the others have cut off this rank.
  task<group> shrink();
  /// Waits until the others know that this rank leaves, and leaves. Other groups of the same ranks
  /// go on. Dropping does the same in the background.
  task<> leave();

  /// Returns the runtime of `join`.
  [[nodiscard]] cordma::runtime& runtime() const noexcept;

 private:
  friend class detail::group_context;
  explicit group(detail::counted_ref<detail::group_context> c) noexcept;
  task<> reduce_any(const const_local_mr_slice& in, const local_mr_slice& out,
                    const detail::reducer_ref& how, unsigned root);
  task<> all_reduce_any(const const_local_mr_slice& in, const local_mr_slice& out,
                        const detail::reducer_ref& how);
  task<> reduce_scatter_any(const const_local_mr_slice& in, std::span<const std::size_t> sizes,
                            const local_mr_slice& out, const detail::reducer_ref& how);
  task<> scan_any(const const_local_mr_slice& in, const local_mr_slice& out,
                  const detail::reducer_ref& how);

  detail::counted_ref<detail::group_context> context_;
};

}  // namespace cordma
