#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

// The attributes of soft0, as verbs_context queries them. `..._bytes` is the size of the structure
// in the caller's header, which may be older or newer than ours.

namespace softverbs {

inline constexpr unsigned only_port = 1;

int query_port(ibv_context* ctx, std::uint8_t port, ibv_port_attr* attr, std::size_t attr_bytes);
int query_device_ex(ibv_context* ctx, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t attr_bytes);
int query_rt_values(ibv_context* ctx, ibv_values_ex* values);

}  // namespace softverbs
