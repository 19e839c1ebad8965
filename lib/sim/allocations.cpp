#include "allocations.hpp"

#include "callers.hpp"
#include "host_state.hpp"
#include "world_state.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <utility>

// The functions at the end take the place of the language's in a program that links cordma-sim.

namespace cordma::sim::detail {
namespace {

/// The step of a host in which an allocation may fail.
struct step {
  host_state* host = nullptr;
  std::uint64_t* countdown = nullptr;
};
thread_local constinit step current;

bool is_programs(const symbol_name& caller) {
  if (caller.file.starts_with("libsoftverbs")) return false;
  if (caller.function.find("3sim6detail") != std::string::npos) return false;
  for (const std::string_view function :
       {"_ZN6cordma3sim", "_ZNK6cordma3sim", "_ZZN6cordma3sim", "_ZZNK6cordma3sim"})
    if (caller.function.starts_with(function)) return false;
  return true;
}

/// Returns a text that lives as long as the program.
event_text lasting(std::string text) {
  static std::set<std::string> all;
  return event_text::lasting(all.insert(std::move(text)).first->c_str());
}

/// Returns true if an allocation must fail, and notes that.
bool must_fail(const void* returns_to) {
  const step now = std::exchange(current, {});  // The code below allocates, too.
  bool must = false;
  const symbol_name* const caller = caller_behind(returns_to);
  if (caller != nullptr && is_programs(*caller) && --*now.countdown == 0) {
    now.host->world().note(lasting("fault: no memory in " + caller->text()), *now.host);
    must = true;
  }
  current = now;
  return must;
}

inline void check(const void* returns_to) {
  if (current.countdown == nullptr || *current.countdown == 0) [[likely]]
    return;
  if (must_fail(returns_to)) throw std::bad_alloc{};
}

}  // namespace

allocation_scope::allocation_scope(host_state& host, std::uint64_t& countdown) noexcept {
  current = {&host, &countdown};
}
allocation_scope::~allocation_scope() { current = {}; }

fresh_frames::fresh_frames() noexcept
    : kept_{std::exchange(frame_cache::detail::lists, {})},
      state_{std::exchange(frame_cache::detail::state, frame_cache::detail::thread_state::ended)} {}

fresh_frames::~fresh_frames() {
  frame_cache::detail::lists = kept_;
  frame_cache::detail::state = state_;
}

}  // namespace cordma::sim::detail

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CORDMA_SIM_KEEPS_NEW
#endif
#endif

#ifndef CORDMA_SIM_KEEPS_NEW

namespace {

/// Returns the operator new that the program would have.
template <class... Args>
void* allocate(const char* name, std::size_t bytes, Args... args) {
  using function = void* (*)(std::size_t, Args...);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, name));
  return real(bytes, args...);
}

}  // namespace

// Weak: a program that has its own keeps it.
[[gnu::weak]] void* operator new(std::size_t bytes) {
  cordma::sim::detail::check(__builtin_return_address(0));
  return allocate("_Znwm", bytes);
}

[[gnu::weak]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  cordma::sim::detail::check(__builtin_return_address(0));
  return allocate("_ZnwmSt11align_val_t", bytes, alignment);
}

#endif
