#include "support.hpp"

namespace cordma::test {
namespace {

std::vector<std::byte> made_pattern() {
  std::vector<std::byte> made(pattern_bytes);
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (std::byte& one : made) {
    state = state * 6364136223846793005 + 1442695040888963407;
    one = std::byte(state >> 56);
  }
  return made;
}

part of_length(sim::world& w, std::size_t length) {
  return {std::size_t(w.random(pattern_bytes - length)), length};
}

}  // namespace

std::span<const std::byte> pattern() {
  static const std::vector<std::byte> all = made_pattern();
  return all;
}

const_local_mr registered_pattern(mr_allocator& memory) {
  return memory.register_external(pattern());
}

mr_allocator& reachable_memory(runtime& rt) {
  using enum verbs::access;
  return rt.memory(local_write | remote_write | remote_read | remote_atomic);
}

part any_part(sim::world& w, std::size_t length_max) {
  const std::size_t most = std::size_t{2} << w.random(std::bit_width(length_max) - 1);
  return of_length(w, 1 + w.random(std::min(most, length_max) - 1));
}

part usual_part(sim::world& w) {
  if (w.random(9) != 0) return any_part(w, 4 * kib);
  const std::size_t most = 8 * kib << (w.random(9) == 0 ? w.random(5) : 0);
  return of_length(w, 4 * kib + 1 + w.random(most - 4 * kib - 1));
}

cast::cast(sim::world& of, unsigned count) : w{of}, is_down(count) {
  for (unsigned n = 0; n < count; ++n) hosts.push_back(&w.add_host("h" + std::to_string(n)));
}

bool cast::are_running_from(unsigned first) const {
  return to_be_started > 0 || std::any_of(hosts.begin() + first, hosts.end(),
                                          [](const sim::host* h) { return h->is_running(); });
}

task<connection> connect_patiently(runtime& rt, endpoint to, const connection_changes& with) {
  for (;;) {
    result<connection> made = co_await as_result(rt.connect(to, with));
    if (made.has_value()) co_return std::move(made).value();
    if (code_of(made) != std::error_code{ECONNREFUSED, std::system_category()})
      static_cast<void>(std::move(made).value());
    co_await sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace cordma::test
