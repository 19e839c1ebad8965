#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace cordma::detail {

/// Gives the random bytes of a thread. The default is getrandom(2).
class random_source {
 public:
  random_source() noexcept = default;
  random_source(random_source&&) = delete;
  /// \errors `error`: there are none.
  virtual void fill(std::span<std::byte> out) = 0;

 protected:
  ~random_source() = default;
};

/// Replaces the source of the calling thread until the end of the scope, so that a simulation
/// repeats. Scopes may be nested. \thread one.
class random_scope {
 public:
  explicit random_scope(random_source& source) noexcept;
  random_scope(random_scope&&) = delete;
  ~random_scope();

 private:
  random_source* const outer_;
};

/// Fills `out` from this thread's source: bytes that strangers cannot guess.
/// \errors an errno of getrandom(2). \thread any.
void random_bytes(std::span<std::byte> out);

/// Returns a number, or an array of bytes, at random. \errors as `random_bytes`. \thread any.
template <class T>
T random_value() {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
  T value{};
  random_bytes(std::as_writable_bytes(std::span{&value, 1}));
  return value;
}

}  // namespace cordma::detail
