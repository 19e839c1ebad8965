#pragma once

#include "agent_context.hpp"
#include "grant.hpp"

#include <vector>

namespace cordma {

/// The memory behind an owner's grants, with the windows and registrations that open the memory to
/// the peer. Memory that came back and has a registration of its own is kept for the next request
/// of its size: registering costs a system call. Knows no state but "in use". \thread the
/// executor's. \cost once warm, no allocation.
class grant_memory {
 public:
  using grant = detail::grant;
  static constexpr std::size_t kept_max = 64;
  static constexpr std::size_t kept_bytes_max = std::size_t{64} << 10;  ///< the limit of one piece

  explicit grant_memory(agent_context& context) noexcept : context_{context} {}
  grant_memory(const grant_memory&) = delete;
  grant_memory& operator=(const grant_memory&) = delete;

  /// Counts `cost` bytes and a lease in the totals of all connections.
  /// \errors errc::limit_exceeded, errc of `lend`.
  void reserve(std::size_t cost);
  void release(std::size_t cost) noexcept { context_.lending.release(cost); }

  /// Counts what the peer has by asking.
  void add_requested(std::size_t cost) noexcept { requested_bytes_ += cost; }
  void remove_requested(std::size_t cost) noexcept { requested_bytes_ -= cost; }
  /// Bytes that the peer may still ask for.
  [[nodiscard]] std::size_t left_bytes() const noexcept {
    return context_.options.lending.bytes_max - requested_bytes_;
  }

  /// Zeroed memory for a request: kept, or else from the allocator.
  /// \errors those of the allocator.
  [[nodiscard]] lent_memory find(std::size_t size_bytes, std::size_t alignment);
  /// Registers the memory, or takes a window for it. A grant without a window is open to whoever
  /// knows its key. \errors errc::not_supported; those of the verbs.
  void prepare(grant& g, verbs::access access);
  /// The bind that opens the window of `g` under the key in `g.remote`.
  [[nodiscard]] bind_request bind_of(const grant& g) const noexcept;
  /// Gives a window back that is not bound.
  void return_window(grant& g) noexcept;
  /// Takes the rest of the peer's access away. A window may be left only if the queue pair is in
  /// ERROR. True if the memory is kept, which counts on as lent.
  [[nodiscard]] bool take_back(grant& g) noexcept;

  /// Frees all memory that is kept.
  void drop_all() noexcept;

 private:
  [[nodiscard]] isolation isolation_for(const verbs::memory_region* arena) const;
  [[nodiscard]] bool keep(grant& g) noexcept;
  [[nodiscard]] lent_memory take(std::vector<lent_memory>::iterator at) noexcept;
  void drop_oldest() noexcept;

  agent_context& context_;
  std::vector<lent_memory> kept_;  ///< the oldest first
  std::size_t requested_bytes_ = 0;
};

/// Fails a loan or a request. `because` names the limit.
[[noreturn]] void refuse_to_lend(errc why, const char* because);

}  // namespace cordma
