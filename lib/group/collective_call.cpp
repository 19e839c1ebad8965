#include "collective_call.hpp"

#include "base/failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <array>
#include <functional>
#include <limits>

namespace cordma::detail {
namespace {

constexpr std::array<const char*, collective_kinds> names{
    "barrier", "broadcast",  "scatter",        "gather",     "all_gather",
    "reduce",  "all_reduce", "reduce_scatter", "all_to_all", "scan",
};

/// One call on one rank, with what an error names.
struct checked_call {
  const collective_call& call;
  unsigned rank;
  unsigned ranks;

  [[nodiscard]] const char* name() const noexcept { return to_string(call.kind); }
  [[nodiscard]] bool is_root() const noexcept { return rank == call.root; }
  [[nodiscard]] std::size_t own() const noexcept { return call.blocks.at(rank); }
  [[nodiscard]] std::size_t all() const noexcept { return bytes_of(call.blocks, 0, ranks); }

  void has_root() const {
    if (call.root < ranks) return;
    throw_failure(errc::out_of_range, name(),
                  detail_text("root %u is none of %u ranks, 0 to %u", call.root, ranks, ranks - 1));
  }
  void has_length(const char* argument, const const_local_mr_slice& memory,
                  std::size_t length) const {
    if (memory.size_bytes() == length) return;
    throw_failure(errc::wrong_length, name(),
                  detail_text("`%s` of rank %u has %zu bytes, and must have %zu", argument, rank,
                              memory.size_bytes(), length));
  }
  void has_list(const char* argument, const block_sizes& blocks, bool is_known) const {
    const std::size_t expected = call.is_uneven && is_known ? ranks : 0;
    if (blocks.of.size() == expected) return;
    throw_failure(errc::wrong_length, name(),
                  detail_text("`%s` of rank %u lists %zu lengths, and must list %zu", argument,
                              rank, blocks.of.size(), expected));
  }
  void has_elements(std::size_t length) const {
    CORDMA_ASSERT(call.reduction != nullptr, "a reduction needs an operation");
    const std::size_t element = call.reduction->element_bytes;
    if (length % element == 0) return;
    throw_failure(errc::wrong_length, name(),
                  detail_text("%zu bytes on rank %u are no whole number of elements of %zu bytes",
                              length, rank, element));
  }
  /// The part at `offset` of the longer of both may be the shorter one; else they do not overlap.
  void is_apart(std::size_t offset) const {
    const auto in = call.in.bytes();
    const auto out = call.out.bytes();
    constexpr std::less<const std::byte*> before;
    if (in.empty() || out.empty()) return;
    if (!before(in.data(), out.data() + out.size()) || !before(out.data(), in.data() + in.size()))
      return;
    const bool is_in_longer = in.size() >= out.size();
    const auto& longer = is_in_longer ? in : std::span<const std::byte>{out};
    const auto& shorter = is_in_longer ? std::span<const std::byte>{out} : in;
    if (shorter.data() == longer.data() + offset) return;
    throw_failure(
        errc::out_of_range, name(),
        detail_text("`in` and `out` of rank %u overlap at %p and %p: let the shorter begin "
                    "at offset %zu of the other, or lie outside",
                    rank, static_cast<const void*>(in.data()), static_cast<const void*>(out.data()),
                    offset));
  }

  void scatters() const {
    has_root();
    has_list("blocks", call.blocks, is_root());
    has_length("out", call.out, own());
    has_length("in", call.in, is_root() ? all() : 0);
    is_apart(is_root() ? bytes_of(call.blocks, 0, rank) : 0);
  }
  void gathers() const {
    has_root();
    has_list("blocks", call.blocks, is_root());
    has_length("in", call.in, own());
    has_length("out", call.out, is_root() ? all() : 0);
    is_apart(is_root() ? bytes_of(call.blocks, 0, rank) : 0);
  }
  void gathers_on_all() const {
    has_list("blocks", call.blocks, true);
    has_length("in", call.in, own());
    has_length("out", call.out, all());
    is_apart(bytes_of(call.blocks, 0, rank));
  }
  void reduces() const {
    const bool has_result = call.kind != collective_kind::reduce || is_root();
    if (call.kind == collective_kind::reduce) has_root();
    has_elements(call.in.size_bytes());
    has_length("out", call.out, has_result ? call.in.size_bytes() : 0);
    is_apart(0);
  }
  void reduces_blocks() const {
    has_list("blocks", call.blocks, true);
    for (unsigned of = 0; of < (call.is_uneven ? ranks : 1); ++of) has_elements(call.blocks.at(of));
    has_length("in", call.in, all());
    has_length("out", call.out, own());
    is_apart(bytes_of(call.blocks, 0, rank));
  }
  void goes_to_all() const {
    has_list("blocks", call.blocks, true);
    has_list("received", call.received, true);
    has_length("in", call.in, all());
    has_length("out", call.out, bytes_of(call.received, 0, ranks));
    const bool is_same = call.in.bytes().data() == call.out.bytes().data();
    if (!call.is_uneven || !is_same) return is_apart(0);
    if (call.in.empty()) return;
    throw_failure(errc::out_of_range, name(),
                  detail_text("`in` and `out` of rank %u are the same memory, with blocks that may "
                              "differ in length: give two",
                              rank));
  }
};

}  // namespace

const char* to_string(collective_kind kind) noexcept { return names[std::size_t(kind)]; }

std::size_t bytes_of(const block_sizes& blocks, unsigned first, unsigned last) noexcept {
  constexpr std::size_t highest = std::numeric_limits<std::size_t>::max();
  if (blocks.of.empty()) {
    const std::size_t count = last - first;
    return count != 0 && blocks.each > highest / count ? highest : blocks.each * count;
  }
  std::size_t bytes = 0;
  for (const std::size_t one : blocks.of.subspan(first, last - first))
    bytes = one > highest - bytes ? highest : bytes + one;
  return bytes;
}

std::size_t collective_call::size_bytes(unsigned ranks) const noexcept {
  switch (kind) {
    case collective_kind::barrier: return 0;
    case collective_kind::broadcast: return out.size_bytes();
    case collective_kind::scatter:
    case collective_kind::gather:
    case collective_kind::all_to_all: return is_uneven ? 0 : blocks.each;
    case collective_kind::all_gather:
    case collective_kind::reduce_scatter: return bytes_of(blocks, 0, ranks);
    case collective_kind::reduce:
    case collective_kind::all_reduce:
    case collective_kind::scan: return in.size_bytes();
  }
  return 0;
}

void collective_call::check(unsigned rank, unsigned ranks) const {
  const checked_call checked{*this, rank, ranks};
  switch (kind) {
    case collective_kind::barrier: return;
    case collective_kind::broadcast: return checked.has_root();
    case collective_kind::scatter: return checked.scatters();
    case collective_kind::gather: return checked.gathers();
    case collective_kind::all_gather: return checked.gathers_on_all();
    case collective_kind::reduce:
    case collective_kind::all_reduce:
    case collective_kind::scan: return checked.reduces();
    case collective_kind::reduce_scatter: return checked.reduces_blocks();
    case collective_kind::all_to_all: return checked.goes_to_all();
  }
}

}  // namespace cordma::detail
