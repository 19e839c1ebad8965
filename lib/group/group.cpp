#include <cordma/group/group.hpp>

#include "base/failures.hpp"
#include "group_context.hpp"
#include "reductions.hpp"

#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace cordma {

using detail::collective_call;
using detail::collective_kind;
using detail::group_context;

namespace {

/// Runs an operation whose arguments the caller's frame keeps.
task<> run(const detail::counted_ref<group_context>& context, const collective_call& call) {
  CORDMA_ASSERT(bool(context), "used an empty group");
  return group_context::run(context, call);
}

detail::reducer to_reducer(const detail::reducer_ref& r) {
  if (r.combine == nullptr) return detail::reducer_of(r.type, r.how);
  return {.combine = r.combine, .user = r.program, .element_bytes = r.element_bytes};
}

/// Runs a reduction, whose reducer lives in this frame.
task<> run_reduction(detail::counted_ref<group_context> context, collective_call call,
                     detail::reducer_ref how) {
  const detail::reducer reducer = to_reducer(how);
  call.reduction = &reducer;
  call.is_reproducible = context->whole().options().reproducible;
  co_await run(context, call);
}

}  // namespace

group::group(detail::counted_ref<group_context> c) noexcept : context_{std::move(c)} {}
group::~group() = default;

task<group> group::join(cordma::runtime& rt, meeting how, const group_options& options) {
  const group_options kept = options;
  detail::counted_ref<detail::world> whole = co_await detail::world::join(rt, how.kind(), kept);
  std::vector<std::uint32_t> all(whole->size());
  for (std::uint32_t r = 0; r < all.size(); ++r) all[r] = r;
  std::uint64_t id = 0;
  std::memcpy(&id, whole->met().name.data(), sizeof id);
  co_return group{group_context::make(std::move(whole), id, std::move(all))};
}

unsigned group::rank() const noexcept { return context_->rank(); }
unsigned group::size() const noexcept { return context_->size(); }

std::vector<unsigned> group::local_peers() const {
  std::vector<unsigned> all;
  for (unsigned r = 0; r < size(); ++r)
    if (context_->hosts().host_of(r) == context_->hosts().host_of(rank())) all.push_back(r);
  return all;
}

std::vector<unsigned> group::failed_ranks() const {
  std::vector<unsigned> all;
  for (unsigned r = 0; r < size(); ++r)
    if (context_->is_gone(r)) all.push_back(r);
  return all;
}

std::optional<failure> group::why_failed() const { return context_->failed(); }
std::string group::algorithms() const { return context_->whole().algorithms().to_string(); }
group::statistics group::counters() const noexcept { return context_->whole().counters(); }
cordma::runtime& group::runtime() const noexcept { return context_->whole().rt(); }

// ---- operations

task<> group::barrier() { return run(context_, {.kind = collective_kind::barrier}); }

task<> group::broadcast(const local_mr_slice& data, unsigned root) {
  return run(context_, {.kind = collective_kind::broadcast, .root = root, .out = data});
}

task<> group::scatter(const const_local_mr_slice& in, const local_mr_slice& out, unsigned root) {
  return run(context_, {.kind = collective_kind::scatter,
                        .root = root,
                        .in = in,
                        .out = out,
                        .blocks = {.each = out.size_bytes()}});
}

task<> group::scatter_uneven(const const_local_mr_slice& in, std::span<const std::size_t> sizes,
                             const local_mr_slice& out, unsigned root) {
  return run(context_, {.kind = collective_kind::scatter,
                        .root = root,
                        .in = in,
                        .out = out,
                        .blocks = {.each = out.size_bytes(), .of = sizes},
                        .is_uneven = true});
}

task<> group::gather(const const_local_mr_slice& in, const local_mr_slice& out, unsigned root) {
  return run(context_, {.kind = collective_kind::gather,
                        .root = root,
                        .in = in,
                        .out = out,
                        .blocks = {.each = in.size_bytes()}});
}

task<> group::gather_uneven(const const_local_mr_slice& in, const local_mr_slice& out,
                            std::span<const std::size_t> sizes, unsigned root) {
  return run(context_, {.kind = collective_kind::gather,
                        .root = root,
                        .in = in,
                        .out = out,
                        .blocks = {.each = in.size_bytes(), .of = sizes},
                        .is_uneven = true});
}

task<> group::all_gather(const const_local_mr_slice& in, const local_mr_slice& out) {
  return run(context_, {.kind = collective_kind::all_gather,
                        .in = in,
                        .out = out,
                        .blocks = {.each = in.size_bytes()}});
}

task<> group::all_gather_uneven(const const_local_mr_slice& in, const local_mr_slice& out,
                                std::span<const std::size_t> sizes) {
  return run(context_, {.kind = collective_kind::all_gather,
                        .in = in,
                        .out = out,
                        .blocks = {.of = sizes},
                        .is_uneven = true});
}

task<> group::all_to_all(const const_local_mr_slice& in, const local_mr_slice& out) {
  const std::size_t block =
      in.size_bytes() / size();  // Refused in the operation if one is shorter.
  return run(context_, {.kind = collective_kind::all_to_all,
                        .in = in,
                        .out = out,
                        .blocks = {.each = block},
                        .received = {.each = block}});
}

task<> group::all_to_all_uneven(const const_local_mr_slice& in, std::span<const std::size_t> sent,
                                const local_mr_slice& out, std::span<const std::size_t> received) {
  return run(context_, {.kind = collective_kind::all_to_all,
                        .in = in,
                        .out = out,
                        .blocks = {.of = sent},
                        .received = {.of = received},
                        .is_uneven = true});
}

task<> group::reduce_any(const const_local_mr_slice& in, const local_mr_slice& out,
                         const detail::reducer_ref& how, unsigned root) {
  return run_reduction(context_,
                       {.kind = collective_kind::reduce, .root = root, .in = in, .out = out}, how);
}

task<> group::all_reduce_any(const const_local_mr_slice& in, const local_mr_slice& out,
                             const detail::reducer_ref& how) {
  return run_reduction(context_, {.kind = collective_kind::all_reduce, .in = in, .out = out}, how);
}

task<> group::reduce_scatter_any(const const_local_mr_slice& in, std::span<const std::size_t> sizes,
                                 const local_mr_slice& out, const detail::reducer_ref& how) {
  return run_reduction(context_,
                       {.kind = collective_kind::reduce_scatter,
                        .in = in,
                        .out = out,
                        .blocks = {.each = out.size_bytes(), .of = sizes},
                        .is_uneven = !sizes.empty()},
                       how);
}

task<> group::scan_any(const const_local_mr_slice& in, const local_mr_slice& out,
                       const detail::reducer_ref& how) {
  return run_reduction(context_, {.kind = collective_kind::scan, .in = in, .out = out}, how);
}

// ---- messages

task<> group::send(const const_local_mr_slice& bytes, unsigned to, std::uint32_t tag) {
  if (to >= size())
    detail::throw_failure(errc::out_of_range, "group::send",
                          detail::detail_text("rank %u of %u", to, size()));
  return detail::tagged_messages::send(context_, bytes, to, tag);
}

task<group::message> group::receive(const local_mr_slice& into, std::optional<unsigned> from,
                                    std::optional<std::uint32_t> tag) {
  if (from && *from >= size())
    detail::throw_failure(errc::out_of_range, "group::receive",
                          detail::detail_text("rank %u of %u", *from, size()));
  return detail::tagged_messages::receive(context_, into, from, tag);
}

// ---- groups

namespace {

/// One rank's answer to `split`.
struct choice {
  std::uint32_t has_colour;
  std::uint32_t colour;
  std::uint32_t key;
};

/// A part of a group that is to be made on this rank. If that fails, other ranks may have made it.
class part {
 public:
  part(const detail::counted_ref<group_context>& of, std::uint64_t id) noexcept
      : of_{of}, id_{id} {}
  part(const part&) = delete;
  ~part() {
    if (!is_made_) of_->whole().disown(id_, of_->members());
  }
  [[nodiscard]] detail::counted_ref<group_context> make(std::vector<std::uint32_t> members) {
    is_made_ = true;
    return group_context::make(detail::counted_ref{of_->whole()}, id_, std::move(members));
  }

 private:
  const detail::counted_ref<group_context> of_;
  const std::uint64_t id_;
  bool is_made_ = false;
};

}  // namespace

task<group> group::split(std::optional<std::uint32_t> colour, std::uint32_t key) {
  const detail::counted_ref<group_context> context = context_;
  const std::uint64_t parts = context->next_id();
  std::optional<part> own_part;
  if (colour) own_part.emplace(context, detail::mixed(parts, *colour));
  local_mr all = runtime().memory().allocate_zeroed(size() * sizeof(choice));
  const local_mr_slice own = all.slice(rank() * sizeof(choice), sizeof(choice));
  own.as<choice>()[0] = {colour.has_value(), colour.value_or(0), key};
  co_await all_gather(own, all.slice());
  if (!colour) co_return group{};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> members;  // Key and rank.
  const auto choices = all.slice().as<choice>();
  for (std::uint32_t r = 0; r < choices.size(); ++r)
    if (choices[r].has_colour != 0 && choices[r].colour == *colour)
      members.emplace_back(choices[r].key, r);
  std::ranges::sort(members);
  std::vector<std::uint32_t> of_whole;
  of_whole.reserve(members.size());
  for (const auto& [ignored, r] : members) of_whole.push_back(context->member(r));
  co_return group{own_part->make(std::move(of_whole))};
}

task<group> group::duplicate() {
  const detail::counted_ref<group_context> context = context_;
  part copy{context, detail::mixed(context->next_id(), UINT64_MAX)};
  co_await barrier();
  co_return group{copy.make(context->members())};
}

task<group> group::shrink() {
  const detail::counted_ref<group_context> context = context_;
  const std::vector<bool> alive = co_await detail::survivors::agree(context);
  std::vector<std::uint32_t> of_whole;
  for (std::uint32_t r = 0; r < alive.size(); ++r)
    if (alive[r]) of_whole.push_back(context->member(r));
  context->vote().made_rest();
  co_return group{group_context::make(detail::counted_ref{context->whole()},
                                      detail::survivors::identity(context->id(), alive),
                                      std::move(of_whole))};
}

task<> group::leave() {
  const detail::counted_ref<detail::world> whole{context_->whole()};
  context_ = {};
  if (whole->references() == 1) co_await whole->close();
}

// ---- copies of the program's memory

namespace detail {

registered_copy::registered_copy(const group& g, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  copy_ = g.runtime().memory().allocate_uninitialized(bytes.size());
  std::memcpy(copy_.bytes().data(), bytes.data(), bytes.size());
}

registered_copy::registered_copy(const group& g, std::span<std::byte> bytes)
    : registered_copy{g, std::span<const std::byte>{bytes}} {
  original_ = bytes;
}

local_mr_slice registered_copy::slice() noexcept {
  return original_.empty() ? local_mr_slice{} : copy_.slice();
}

const_local_mr_slice registered_copy::slice() const noexcept {
  return copy_.size_bytes() == 0 ? const_local_mr_slice{} : copy_.slice();
}

void registered_copy::copy_back() noexcept {
  if (!original_.empty()) std::memcpy(original_.data(), copy_.bytes().data(), original_.size());
}

}  // namespace detail

}  // namespace cordma
