#include "support/verbs_faults.hpp"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

// <infiniband/verbs.h> makes these macros, and we define the functions behind them.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace verbs_faults {
namespace {

// Atomic, because runtimes of several threads call; they order nothing else.
std::atomic<unsigned> calls = 0;
std::atomic<unsigned> failing_call = 0;
std::atomic<unsigned> failing_calls = 0;
std::atomic<int> failing_errno = 0;
std::atomic<unsigned> refusals = 0;
std::atomic<const char*> failed = "";
std::atomic<void (*)(void*)> before_modify = nullptr;
std::atomic<void*> about_modify = nullptr;
std::array<std::atomic<long>, kind_count> live{};

/// The library's own function, looked up at the first call. By version, because libibverbs also
/// keeps functions of the same name with an older ABI, and dlsym may find those. No guard, which a
/// fork could leave taken in the child: all who look find the same.
template <class Function>
class real {
 public:
  constexpr real(const char* name, const char* version) : name_{name}, version_{version} {}
  Function& operator*() {
    Function* known = function_.load();
    if (known == nullptr) function_ = known = find();
    return *known;
  }

 private:
  [[nodiscard]] Function* find() const {
    void* const symbol = dlvsym(RTLD_NEXT, name_, version_);
    if (symbol == nullptr) {
      std::fprintf(stderr, "verbs_faults: %s@%s: %s\n", name_, version_, dlerror());
      std::abort();
    }
    return reinterpret_cast<Function*>(symbol);
  }

  const char* name_;
  const char* version_;
  std::atomic<Function*> function_{nullptr};
};

bool must_fail(const char* name) noexcept {
  const unsigned call = ++calls;
  if (failing_call == 0 || call < failing_call || call - failing_call >= failing_calls)
    return false;
  failed = name;
  errno = failing_errno;
  return true;
}

template <class Pointer>
Pointer made(kind k, Pointer object) noexcept {
  if (object != nullptr) ++live[std::size_t(k)];
  return object;
}

int destroyed(kind k, int rc) noexcept {
  if (rc == 0) --live[std::size_t(k)];
  return rc;
}

using create_qp_ex = ibv_qp*(ibv_context*, ibv_qp_init_attr_ex*);
std::atomic<create_qp_ex*> real_create_qp_ex = nullptr;

ibv_qp* create_extended(ibv_context* ctx, ibv_qp_init_attr_ex* attributes) {
  if (must_fail("ibv_create_qp")) return nullptr;
  return made(kind::qp, real_create_qp_ex.load()(ctx, attributes));
}

using create_cq_ex = ibv_cq_ex*(ibv_context*, ibv_cq_init_attr_ex*);
using alloc_parent_domain = ibv_pd*(ibv_context*, ibv_parent_domain_init_attr*);
using alloc_td = ibv_td*(ibv_context*, ibv_td_init_attr*);
std::atomic<create_cq_ex*> real_create_cq_ex = nullptr;
std::atomic<alloc_parent_domain*> real_alloc_parent_domain = nullptr;
std::atomic<alloc_td*> real_alloc_td = nullptr;
std::atomic<bool> thread_domains_are_hidden = false;
std::atomic<unsigned> in_domains = 0;

ibv_cq_ex* create_extended(ibv_context* ctx, ibv_cq_init_attr_ex* attributes) {
  if (must_fail("ibv_create_cq")) return nullptr;
  if ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) ++in_domains;
  return made(kind::cq, real_create_cq_ex.load()(ctx, attributes));
}

ibv_pd* alloc_parent(ibv_context* ctx, ibv_parent_domain_init_attr* attributes) {
  if (must_fail("ibv_alloc_parent_domain")) return nullptr;
  return made(kind::pd, real_alloc_parent_domain.load()(ctx, attributes));
}

ibv_td* alloc_thread(ibv_context* ctx, ibv_td_init_attr* attributes) {
  if (must_fail("ibv_alloc_td")) return nullptr;
  if (!thread_domains_are_hidden) return real_alloc_td.load()(ctx, attributes);
  errno = EOPNOTSUPP;
  return nullptr;
}

template <class Function>
void replace(Function*& called, std::atomic<Function*>& real, Function* ours) {
  if (called == nullptr || called == ours) return;
  real = std::exchange(called, ours);
}

/// These calls are inline, and call what the context says.
void count_extended(ibv_context& ctx) {
  verbs_context* const extended = verbs_get_ctx(&ctx);
  if (extended == nullptr) return;
  replace<create_qp_ex>(extended->create_qp_ex, real_create_qp_ex, &create_extended);
  replace<create_cq_ex>(extended->create_cq_ex, real_create_cq_ex, &create_extended);
  replace(extended->alloc_parent_domain, real_alloc_parent_domain, &alloc_parent);
  replace(extended->alloc_td, real_alloc_td, &alloc_thread);
}

}  // namespace

void fail_call(unsigned k, int errno_value, unsigned times) noexcept {
  calls = 0;
  failing_calls = times;
  failing_call = k;
  failing_errno = errno_value;
  failed = "";
}

void before_next_modify(void (*f)(void* about), void* about) noexcept {
  about_modify = about;
  before_modify = f;
}

void refuse_deregistrations(unsigned count) noexcept { refusals = count; }

void hide_thread_domains(bool are_hidden) noexcept { thread_domains_are_hidden = are_hidden; }
unsigned queues_in_domains() noexcept { return in_domains; }
unsigned calls_made() noexcept { return calls; }
const char* failed_call() noexcept { return failed; }
std::array<long, kind_count> live_objects() noexcept {
  std::array<long, kind_count> counts{};
  for (std::size_t i = 0; i < kind_count; ++i) counts[i] = live[i];
  return counts;
}

std::string to_string(const std::array<long, kind_count>& counts) {
  static constexpr const char* names[] = {"device", "pd", "mr", "channel", "cq", "qp", "srq"};
  std::string text;
  for (std::size_t i = 0; i < kind_count; ++i) {
    text += (i == 0 ? "" : ", ") + std::string{names[i]} + " " + std::to_string(counts[i]);
  }
  return text;
}

}  // namespace verbs_faults

using verbs_faults::destroyed;
using verbs_faults::kind;
using verbs_faults::made;
using verbs_faults::must_fail;
using verbs_faults::real;

extern "C" {

ibv_context* ibv_open_device(ibv_device* device) {
  static constinit real<ibv_context*(ibv_device*)> next{"ibv_open_device", "IBVERBS_1.1"};
  if (must_fail("ibv_open_device")) return nullptr;
  ibv_context* const ctx = made(kind::device, (*next)(device));
  if (ctx != nullptr) verbs_faults::count_extended(*ctx);
  return ctx;
}

int ibv_close_device(ibv_context* ctx) {
  static constinit real<int(ibv_context*)> next{"ibv_close_device", "IBVERBS_1.1"};
  return destroyed(kind::device, (*next)(ctx));
}

ibv_pd* ibv_alloc_pd(ibv_context* ctx) {
  static constinit real<ibv_pd*(ibv_context*)> next{"ibv_alloc_pd", "IBVERBS_1.1"};
  if (must_fail("ibv_alloc_pd")) return nullptr;
  return made(kind::pd, (*next)(ctx));
}

int ibv_dealloc_pd(ibv_pd* pd) {
  static constinit real<int(ibv_pd*)> next{"ibv_dealloc_pd", "IBVERBS_1.1"};
  return destroyed(kind::pd, (*next)(pd));
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  static constinit real<ibv_mr*(ibv_pd*, void*, std::size_t, int)> next{"ibv_reg_mr",
                                                                        "IBVERBS_1.1"};
  if (must_fail("ibv_reg_mr")) return nullptr;
  return made(kind::mr, (*next)(pd, address, length, access));
}

// ibv_reg_mr is this function when the compiler cannot tell that no optional access flag is set.
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  static constinit real<ibv_mr*(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned)> next{
      "ibv_reg_mr_iova2", "IBVERBS_1.8"};
  if (must_fail("ibv_reg_mr")) return nullptr;
  return made(kind::mr, (*next)(pd, address, length, iova, access));
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                          int fd, int access) {
  static constinit real<ibv_mr*(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int)> next{
      "ibv_reg_dmabuf_mr", "IBVERBS_1.12"};
  if (must_fail("ibv_reg_dmabuf_mr")) return nullptr;
  return made(kind::mr, (*next)(pd, offset, length, iova, fd, access));
}

int ibv_dereg_mr(ibv_mr* mr) {
  static constinit real<int(ibv_mr*)> next{"ibv_dereg_mr", "IBVERBS_1.1"};
  if (verbs_faults::refusals > 0) {
    --verbs_faults::refusals;
    return EBUSY;
  }
  return destroyed(kind::mr, (*next)(mr));
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* ctx) {
  static constinit real<ibv_comp_channel*(ibv_context*)> next{"ibv_create_comp_channel",
                                                              "IBVERBS_1.0"};
  if (must_fail("ibv_create_comp_channel")) return nullptr;
  return made(kind::channel, (*next)(ctx));
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  static constinit real<int(ibv_comp_channel*)> next{"ibv_destroy_comp_channel", "IBVERBS_1.0"};
  return destroyed(kind::channel, (*next)(channel));
}

ibv_cq* ibv_create_cq(ibv_context* ctx, int depth, void* cq_context, ibv_comp_channel* channel,
                      int comp_vector) {
  static constinit real<ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int)> next{
      "ibv_create_cq", "IBVERBS_1.1"};
  if (must_fail("ibv_create_cq")) return nullptr;
  return made(kind::cq, (*next)(ctx, depth, cq_context, channel, comp_vector));
}

int ibv_destroy_cq(ibv_cq* cq) {
  static constinit real<int(ibv_cq*)> next{"ibv_destroy_cq", "IBVERBS_1.1"};
  return destroyed(kind::cq, (*next)(cq));
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  static constinit real<ibv_srq*(ibv_pd*, ibv_srq_init_attr*)> next{"ibv_create_srq",
                                                                    "IBVERBS_1.1"};
  if (must_fail("ibv_create_srq")) return nullptr;
  return made(kind::srq, (*next)(pd, attributes));
}

int ibv_destroy_srq(ibv_srq* srq) {
  static constinit real<int(ibv_srq*)> next{"ibv_destroy_srq", "IBVERBS_1.1"};
  std::uint32_t number = 0;
  const bool is_xrc = ibv_get_srq_num(srq, &number) == 0;
  const int rc = (*next)(srq);
  return is_xrc ? rc : destroyed(kind::srq, rc);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  static constinit real<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)> next{"ibv_create_qp", "IBVERBS_1.1"};
  if (must_fail("ibv_create_qp")) return nullptr;
  return made(kind::qp, (*next)(pd, attributes));
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  static constinit real<int(ibv_qp*, ibv_qp_attr*, int)> next{"ibv_modify_qp", "IBVERBS_1.1"};
  if (auto* const f = verbs_faults::before_modify.exchange(nullptr)) f(verbs_faults::about_modify);
  if (must_fail("ibv_modify_qp")) return errno;
  return (*next)(qp, attributes, mask);
}

int ibv_destroy_qp(ibv_qp* qp) {
  static constinit real<int(ibv_qp*)> next{"ibv_destroy_qp", "IBVERBS_1.1"};
  return destroyed(kind::qp, (*next)(qp));
}

}  // extern "C"
