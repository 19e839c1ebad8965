#include "callers.hpp"

#include <execinfo.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace cordma::sim::detail {
namespace {

constexpr std::size_t frames_max = 32;

/// Returns true for a function of the language's library, whose templates are in the program.
bool is_of_language(const symbol_name& s) {
  for (const std::string_view file : {"libstdc++", "libc++", "libc.so", "libasan", "libtsan"})
    if (s.file.starts_with(file)) return true;
  for (const std::string_view function :
       {"_ZSt", "_ZNSt", "_ZNKSt", "_ZZNSt", "_ZN9__gnu_cxx", "_ZNK9__gnu_cxx"})
    if (s.function.starts_with(function)) return true;
  return false;
}

}  // namespace

const symbol_name& name_of(const void* address) {
  static std::map<const void*, symbol_name> known;
  const auto [at, is_new] = known.try_emplace(address);
  if (is_new) at->second = symbol_of(address);
  return at->second;
}

const symbol_name* caller_behind(const void* returns_to) {
  std::array<void*, frames_max> frames;
  const int count = ::backtrace(frames.data(), int(frames.size()));
  const auto last = frames.begin() + count;
  for (auto at = std::find(frames.begin(), last, returns_to); at != last; ++at) {
    const symbol_name& name = name_of(*at);
    if (!is_of_language(name)) return &name;
  }
  return nullptr;
}

}  // namespace cordma::sim::detail
