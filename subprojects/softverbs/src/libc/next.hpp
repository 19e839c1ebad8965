#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <type_traits>

// The next definition of a function of libc: libc's own, or that of a library between, such as a
// sanitizer's.

namespace softverbs::libc {

template <std::size_t Length>
struct function_name {
  consteval function_name(const char (&from)[Length]) { std::copy_n(from, Length, text); }
  char text[Length];
};

/// dlsym(RTLD_NEXT, name). Keeps errno.
void* find_next(const char* name) noexcept;

/// Set when the library is loaded. A constructor of another library may call earlier, hence the
/// search in next().
template <function_name Name>
inline constinit std::atomic<void*> found_next{nullptr};

template <function_name Name>
[[nodiscard]] inline void* search_next() noexcept {
  void* const found = find_next(Name.text);
  // All threads find the same function.
  found_next<Name>.store(found, std::memory_order_relaxed);
  return found;
}

/// Stands for a function that this libc does not have. No such function returns a pointer.
template <class>
struct missing;
template <class Result, class... Parameters>
struct missing<Result(Parameters...)> {
  static Result call(Parameters...) noexcept {
    errno = ENOSYS;
    if constexpr (!std::is_void_v<Result>) return Result{-1};
  }
};
template <class Result, class... Parameters>
struct missing<Result(Parameters..., ...)> {
  static Result call(Parameters..., ...) noexcept {
    errno = ENOSYS;
    return Result{-1};
  }
};

/// The next definition. Async-signal-safe once the library is loaded.
template <function_name Name, class Function>
[[nodiscard]] inline Function* next() noexcept {
  void* found = found_next<Name>.load(std::memory_order_relaxed);
  if (found == nullptr) found = search_next<Name>();
  return found != nullptr ? reinterpret_cast<Function*>(found) : &missing<Function>::call;
}

}  // namespace softverbs::libc
