#include "object/context.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>

namespace softverbs {
namespace {

/// Stands for a program's own memory, and tells what is still taken of it.
struct own_memory {
  std::map<void*, std::uint64_t> taken;  ///< with what each is for
  bool is_exhausted = false;
  bool wants_default = false;

  static void* alloc(ibv_pd*, void* self, std::size_t bytes, std::size_t alignment,
                     std::uint64_t what) {
    auto& memory = *static_cast<own_memory*>(self);
    if (memory.wants_default) return IBV_ALLOCATOR_USE_DEFAULT;
    if (memory.is_exhausted) return nullptr;
    void* const made =
        std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    memory.taken.emplace(made, what);
    return made;
  }
  static void free(ibv_pd*, void* self, void* at, std::uint64_t what) {
    auto& memory = *static_cast<own_memory*>(self);
    CHECK(memory.taken.at(at) == what);
    memory.taken.erase(at);
    std::free(at);
  }
};

struct domain_device {
  ~domain_device() {
    CHECK(verb::dealloc_pd(pd) == 0);
    close_context(ctx);
  }
  ibv_pd* parent(ibv_td* td = nullptr) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.td = td;
    return verb::alloc_parent_domain(ctx, &attr);
  }
  ibv_pd* parent(own_memory& memory) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = own_memory::alloc;
    attr.free = own_memory::free;
    attr.pd_context = &memory;
    return verb::alloc_parent_domain(ctx, &attr);
  }
  ibv_cq_ex* cq_in(ibv_pd* domain) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 100;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = domain;
    return verb::create_cq_ex(ctx, &attr);
  }
  ibv_context* ctx = open_context(verbs_context{});
  ibv_pd* pd = verb::alloc_pd(ctx);
};

ibv_qp* qp_in(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.qp_type = IBV_QPT_RC;
  return verb::create_qp(pd, &attr);
}

ibv_srq* srq_in(ibv_pd* pd) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  return verb::create_srq(pd, &attr);
}

}  // namespace

TEST_CASE("a parent domain keeps the domains that it was made of", "[object][domains]") {
  domain_device soft0;
  ibv_td_init_attr none{};
  ibv_td* const td = verb::alloc_td(soft0.ctx, &none);
  REQUIRE(td != nullptr);
  CHECK(td->context == soft0.ctx);
  ibv_pd* const parent = soft0.parent(td);
  REQUIRE(parent != nullptr);
  CHECK(parent->context == soft0.ctx);
  CHECK(verb::dealloc_td(td) == EBUSY);
  CHECK(verb::dealloc_pd(soft0.pd) == EBUSY);
  CHECK(verb::dealloc_pd(parent) == 0);
  CHECK(verb::dealloc_td(td) == 0);
}

TEST_CASE("a domain of wrong arguments is refused", "[object][domains]") {
  domain_device soft0, other;
  ibv_td_init_attr with_unknown{.comp_mask = 1};
  CHECK(verb::alloc_td(soft0.ctx, &with_unknown) == nullptr);
  CHECK(errno == EINVAL);
  const auto refused = [&](ibv_pd* pd, std::uint32_t mask) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.comp_mask = mask;
    errno = 0;
    CHECK(verb::alloc_parent_domain(soft0.ctx, &attr) == nullptr);
    return errno;
  };
  CHECK(refused(nullptr, 0) == EINVAL);
  CHECK(refused(other.pd, 0) == EINVAL);
  CHECK(refused(soft0.pd, 1u << 31) == EINVAL);
  CHECK(refused(soft0.pd, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) == EINVAL);
  CHECK(soft0.cq_in(soft0.pd) == nullptr);  // No parent domain.
  CHECK(errno == EINVAL);
}

TEST_CASE("a parent domain stands for its protection domain", "[object][domains]") {
  domain_device soft0;
  ibv_pd* const parent = soft0.parent();
  ibv_parent_domain_init_attr attr{};
  attr.pd = parent;
  ibv_pd* const grandparent = verb::alloc_parent_domain(soft0.ctx, &attr);
  CHECK(origin_of(parent) == soft0.pd);
  CHECK(origin_of(grandparent) == soft0.pd);
  std::array<std::byte, 64> bytes{};
  ibv_mr* const mr = verb::reg_mr(grandparent, bytes.data(), bytes.size(), 0,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  CHECK(mr->pd == grandparent);
  ibv_sge range{0, 64, mr->lkey};
  CHECK(verb::advise_mr(soft0.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &range,
                        1) == 0);
  CHECK(verb::dealloc_pd(grandparent) == EBUSY);
  CHECK(verb::dereg_mr(mr) == 0);
  CHECK(verb::dealloc_pd(parent) == EBUSY);
  CHECK(verb::dealloc_pd(grandparent) == 0);
  CHECK(verb::dealloc_pd(parent) == 0);
}

TEST_CASE("the queues of a parent domain are in the program's memory", "[object][domains]") {
  domain_device soft0;
  own_memory memory;
  ibv_pd* const parent = soft0.parent(memory);
  REQUIRE(parent != nullptr);
  ibv_cq_ex* const cq = soft0.cq_in(parent);
  REQUIRE(cq != nullptr);
  CHECK(memory.taken.size() == 1);
  auto* const plain = reinterpret_cast<ibv_cq*>(cq);
  CHECK(verb::resize_cq(plain, 1000) == 0);
  CHECK(memory.taken.size() == 1);
  ibv_qp* const qp = qp_in(parent, plain);
  CHECK(memory.taken.size() == 3);
  ibv_srq* const srq = srq_in(parent);
  CHECK(memory.taken.size() == 4);
  CHECK(verb::destroy_srq(srq) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
  CHECK(verb::dealloc_pd(parent) == EBUSY);
  CHECK(verb::destroy_cq(plain) == 0);
  CHECK(memory.taken.empty());
  CHECK(verb::dealloc_pd(parent) == 0);
}

TEST_CASE("a queue for which the program has no memory is not made", "[object][domains]") {
  domain_device soft0;
  own_memory memory;
  ibv_pd* const parent = soft0.parent(memory);
  ibv_cq* const cq = verb::create_cq(soft0.ctx, 10, nullptr, nullptr, 0);
  memory.is_exhausted = true;
  CHECK_THROWS_AS(qp_in(parent, cq), std::bad_alloc);  // Entry points make ENOMEM of it.
  CHECK_THROWS_AS(srq_in(parent), std::bad_alloc);
  CHECK_THROWS_AS(soft0.cq_in(parent), std::bad_alloc);
  memory.wants_default = true;
  ibv_qp* const qp = qp_in(parent, cq);
  REQUIRE(qp != nullptr);
  CHECK(memory.taken.empty());
  CHECK(verb::destroy_qp(qp) == 0);
  CHECK(verb::destroy_cq(cq) == 0);
  CHECK(verb::dealloc_pd(parent) == 0);
}

}  // namespace softverbs
