#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <type_traits>

// The libibverbs of this host, which serves all devices but soft0.

namespace softverbs::real {

/// That name and version of the real library, opened at the first call; null when there is none.
/// When we are preloaded, calls inside the real library come to our names first: they carry objects
/// of real devices, and so go straight back.
[[nodiscard]] void* symbol(const char* name, const char* version) noexcept;

template <std::size_t Length>
struct name {
  consteval name(const char (&from)[Length]) { std::copy_n(from, Length, text); }
  char text[Length];
};

/// What a verb returns when it cannot serve: NULL with errno, or the errno value.
template <class Result>
[[nodiscard]] Result failure(int error) noexcept {
  if constexpr (std::is_pointer_v<Result>) {
    errno = error;
    return nullptr;
  } else if constexpr (!std::is_void_v<Result>) {
    return static_cast<Result>(error);
  }
}

template <name Name, name Version, class Function>
[[nodiscard]] Function* function() noexcept {
  static Function* const found = reinterpret_cast<Function*>(symbol(Name.text, Version.text));
  return found;
}

/// Calls the real library's function; without one, nothing but EOPNOTSUPP.
template <name Name, name Version = "IBVERBS_1.1", class Result, class... Parameters>
Result call(Result (*)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  auto* const target = function<Name, Version, Result(Parameters...)>();
  return target != nullptr ? target(arguments...) : failure<Result>(EOPNOTSUPP);
}

}  // namespace softverbs::real
