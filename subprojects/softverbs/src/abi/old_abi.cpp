#include "abi/device_list.hpp"
#include "abi/real_library.hpp"

#include <cstddef>
#include <cstdint>

// The names at IBVERBS_1.0, whose structures have other layouts. soft0 does not exist in that ABI:
// all calls go to the real library. Only the shared library contains this file, because a program
// cannot define versions of a name.

namespace {

using softverbs::is_soft_hidden;

struct hide_soft {
  hide_soft() noexcept { is_soft_hidden = true; }
  ~hide_soft() { is_soft_hidden = before; }
  hide_soft(const hide_soft&) = delete;
  hide_soft& operator=(const hide_soft&) = delete;
  bool before = is_soft_hidden;
};

}  // namespace

using object = void*;

// Defines NAME@IBVERBS_1.0; after the parameters come the arguments to pass on.
#define OLD(RESULT, NAME, PARAMETERS, ...)                                       \
  extern "C" RESULT old_##NAME PARAMETERS {                                      \
    const hide_soft hidden;                                                      \
    return softverbs::real::call<#NAME, "IBVERBS_1.0">(old_##NAME, __VA_ARGS__); \
  }                                                                              \
  __asm__(".symver old_" #NAME ", " #NAME "@IBVERBS_1.0");

OLD(object, ibv_get_device_list, (int* count), count)
OLD(void, ibv_free_device_list, (object list), list)
OLD(const char*, ibv_get_device_name, (object device), device)
OLD(std::uint64_t, ibv_get_device_guid, (object device), device)
OLD(object, ibv_open_device, (object device), device)
OLD(int, ibv_close_device, (object ctx), ctx)
OLD(int, ibv_get_async_event, (object ctx, object event), ctx, event)
OLD(void, ibv_ack_async_event, (object event), event)
OLD(int, ibv_query_device, (object ctx, object attr), ctx, attr)
OLD(int, ibv_query_port, (object ctx, std::uint8_t port, object attr), ctx, port, attr)
OLD(int, ibv_query_gid, (object ctx, std::uint8_t port, int i, object gid), ctx, port, i, gid)
OLD(int, ibv_query_pkey, (object ctx, std::uint8_t port, int i, object pkey), ctx, port, i, pkey)
OLD(object, ibv_alloc_pd, (object ctx), ctx)
OLD(int, ibv_dealloc_pd, (object pd), pd)
OLD(object, ibv_reg_mr, (object pd, object at, std::size_t bytes, int access), pd, at, bytes,
    access)
OLD(int, ibv_dereg_mr, (object mr), mr)
OLD(object, ibv_create_cq, (object ctx, int cqe, object user, object channel, int vector), ctx, cqe,
    user, channel, vector)
OLD(int, ibv_resize_cq, (object cq, int cqe), cq, cqe)
OLD(int, ibv_destroy_cq, (object cq), cq)
OLD(int, ibv_get_cq_event, (object channel, object cq, object user), channel, cq, user)
OLD(void, ibv_ack_cq_events, (object cq, unsigned count), cq, count)
OLD(object, ibv_create_srq, (object pd, object attr), pd, attr)
OLD(int, ibv_modify_srq, (object srq, object attr, int mask), srq, attr, mask)
OLD(int, ibv_query_srq, (object srq, object attr), srq, attr)
OLD(int, ibv_destroy_srq, (object srq), srq)
OLD(object, ibv_create_qp, (object pd, object attr), pd, attr)
OLD(int, ibv_query_qp, (object qp, object attr, int mask, object init), qp, attr, mask, init)
OLD(int, ibv_modify_qp, (object qp, object attr, int mask), qp, attr, mask)
OLD(int, ibv_destroy_qp, (object qp), qp)
OLD(object, ibv_create_ah, (object pd, object attr), pd, attr)
OLD(int, ibv_destroy_ah, (object ah), ah)
OLD(int, ibv_attach_mcast, (object qp, object gid, std::uint16_t lid), qp, gid, lid)
OLD(int, ibv_detach_mcast, (object qp, object gid, std::uint16_t lid), qp, gid, lid)

// A driver interface that libibverbs left long ago; its version still has the name.
extern "C" void old_ibv_register_driver(const char* driver, object init) {
  softverbs::real::call<"ibv_register_driver">(old_ibv_register_driver, driver, init);
}
__asm__(".symver old_ibv_register_driver, ibv_register_driver@IBVERBS_1.1");
