#pragma once

#include "node/node.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

// The checks of each entry point before it serves soft0.

namespace softverbs::entry {

/// The verbs that softverbs_fail_call() knows. The _ex, _iova and _iova2 forms count as the verb
/// itself, because the macros of <infiniband/verbs.h> choose among them.
inline constexpr auto verbs = std::to_array<std::string_view>({"ibv_open_device",
                                                               "ibv_close_device",
                                                               "ibv_query_device",
                                                               "ibv_query_rt_values",
                                                               "ibv_query_port",
                                                               "ibv_query_gid",
                                                               "ibv_query_gid_table",
                                                               "ibv_query_gid_type",
                                                               "ibv_query_pkey",
                                                               "ibv_get_pkey_index",
                                                               "ibv_get_async_event",
                                                               "ibv_alloc_pd",
                                                               "ibv_dealloc_pd",
                                                               "ibv_open_xrcd",
                                                               "ibv_close_xrcd",
                                                               "ibv_alloc_td",
                                                               "ibv_dealloc_td",
                                                               "ibv_alloc_parent_domain",
                                                               "ibv_reg_mr",
                                                               "ibv_reg_dmabuf_mr",
                                                               "ibv_rereg_mr",
                                                               "ibv_dereg_mr",
                                                               "ibv_advise_mr",
                                                               "ibv_alloc_mw",
                                                               "ibv_bind_mw",
                                                               "ibv_dealloc_mw",
                                                               "ibv_create_comp_channel",
                                                               "ibv_destroy_comp_channel",
                                                               "ibv_create_cq",
                                                               "ibv_resize_cq",
                                                               "ibv_destroy_cq",
                                                               "ibv_poll_cq",
                                                               "ibv_start_poll",
                                                               "ibv_req_notify_cq",
                                                               "ibv_get_cq_event",
                                                               "ibv_create_srq",
                                                               "ibv_modify_srq",
                                                               "ibv_query_srq",
                                                               "ibv_get_srq_num",
                                                               "ibv_destroy_srq",
                                                               "ibv_post_srq_recv",
                                                               "ibv_create_qp",
                                                               "ibv_modify_qp",
                                                               "ibv_modify_qp_rate_limit",
                                                               "ibv_query_qp",
                                                               "ibv_destroy_qp",
                                                               "ibv_attach_mcast",
                                                               "ibv_detach_mcast",
                                                               "ibv_post_send",
                                                               "ibv_wr_complete",
                                                               "ibv_post_recv",
                                                               "ibv_init_ah_from_wc",
                                                               "ibv_create_ah",
                                                               "ibv_destroy_ah"});

inline constexpr std::size_t unknown_verb = verbs.size();

constexpr std::size_t index_of(std::string_view name) noexcept {
  return static_cast<std::size_t>(std::find(verbs.begin(), verbs.end(), name) - verbs.begin());
}

/// The index of a verb in `verbs`; an unknown name does not compile.
struct verb_name {
  consteval verb_name(const char* name) : index{index_of(name)} {
    if (index == unknown_verb) throw "not in the list of verbs";
  }
  std::size_t index;
};

// Each entry point tests only `needs_checks` (node/node.hpp). The flag is set once a program
// requests a fault (softverbs.h), and in a forked child, whose inherited objects answer EIO. A
// simulated host that wants to hear of calls sets it, too.

/// The error with which the verb must fail now, or 0.
int refusal(verb_name verb, ibv_context* ctx) noexcept;

/// `if (int e = entry::refused("ibv_post_send", qp->context)) return e;`
[[nodiscard]] inline int refused(verb_name verb, ibv_context* ctx) noexcept {
  return needs_checks.load(std::memory_order_relaxed) ? refusal(verb, ctx) : 0;
}

/// True for an object that a forked child inherited: destroying it succeeds and frees nothing.
[[nodiscard]] bool orphaned(ibv_context* ctx) noexcept;

/// The `nth` call of that verb from now on fails with `error`. \thread any.
void fail_call(std::size_t verb, unsigned nth, int error) noexcept;
void fail_no_call() noexcept;

}  // namespace softverbs::entry
