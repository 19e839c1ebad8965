#pragma once

#include "node/fork_mutex.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <type_traits>

// The libibverbs of this host, which serves all devices except soft0.

namespace softverbs::real {

/// Held while the real library lists its devices. The real library locks a mutex meanwhile that a
/// forked child would never release: so a fork waits.
extern fork_mutex listing;

/// The symbol of this name and version in the real library; null if there is none. The first call
/// opens the library. If softverbs is preloaded, calls inside the real library reach softverbs
/// first; they carry objects of real devices, and so go straight back.
[[nodiscard]] void* symbol(const char* name, const char* version) noexcept;

template <std::size_t Length>
struct name {
  consteval name(const char (&from)[Length]) { std::copy_n(from, Length, text); }
  char text[Length];
};

/// The result of a verb that fails: NULL, or the errno value. Sets errno, too.
template <class Result>
[[nodiscard]] Result failure(int error) noexcept {
  errno = error;
  if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<Result>) {
    return static_cast<Result>(error);
  }
}

template <name Name, name Version, class Function>
[[nodiscard]] Function* function() noexcept {
  // Without a guard, which a fork could leave locked in the child: all threads find the same
  // symbol.
  static constinit std::atomic<void*> found{nullptr};
  static constinit std::atomic<bool> is_searched{false};
  if (!is_searched.load(std::memory_order_acquire)) {
    found.store(symbol(Name.text, Version.text), std::memory_order_relaxed);
    is_searched.store(true, std::memory_order_release);
  }
  return reinterpret_cast<Function*>(found.load(std::memory_order_relaxed));
}

/// Calls the real library's function. Without one, fails with EOPNOTSUPP.
template <name Name, name Version = "IBVERBS_1.1", class Result, class... Parameters>
Result call(Result (*)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  auto* const target = function<Name, Version, Result(Parameters...)>();
  return target != nullptr ? target(arguments...) : failure<Result>(EOPNOTSUPP);
}

}  // namespace softverbs::real
